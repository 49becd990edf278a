//! The state of a sandbox as a history archive has it.

use orrery_ledger::domain::LedgerSeq;
use stellar_xdr::{Limits, WriteXdr};

use super::buckets::Buckets;
use super::error::{Result, SandboxError};
use super::sandbox::Sandbox;
use super::settings;

/// The state of a network after one ledger, as history archives publish it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// XDR `LedgerHeader` of the ledger, whose `bucketListHash` is that of the state.
    pub header: Vec<u8>,
    /// Files of the archive: paths below its root, and content.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Sandbox {
    /// Keeps lists of buckets from now on, so that headers have the hash of the real state and
    /// [`Self::checkpoint`] can be asked for. The settings of the network belong to that state, and
    /// archived entries are evicted after some ledgers. Ledgers differ from those of a network without
    /// buckets in their headers and evicted keys alone. A [snapshot](Self::snapshot) does not contain
    /// the lists.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn with_buckets(mut self) -> Result<Self> {
        let entries = self.state.entries().map(|(_, entry)| entry.clone());
        let buckets = Buckets::new(entries.chain(settings::entries()?))?;
        self.buckets = Some(buckets);
        Ok(self)
    }

    /// Returns the state after the latest ledger, as a history archive has it. On a public network only
    /// every 64th ledger has a checkpoint.
    ///
    /// # Errors
    /// When the sandbox has made no ledger [with buckets](Self::with_buckets).
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let header = &self.tip.header;
        let buckets = self.buckets.as_ref();
        let buckets = buckets.filter(|buckets| buckets.hash() == header.bucket_list_hash);
        let Some(buckets) = buckets else {
            return Err(SandboxError(
                "the sandbox has made no ledger with buckets: call with_buckets before".to_owned(),
            ));
        };
        let ledger = header.ledger_seq;
        let files = buckets.files(ledger, self.config.network.passphrase())?;
        let header = header.to_xdr(Limits::none())?;
        Ok(Checkpoint { ledger: LedgerSeq(ledger), header, files })
    }
}
