//! An open lake, and the reading of its batch files.

use std::sync::Arc;

use bytes::Bytes;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Origin, RawLedger};

use super::error::LakeError;
use super::files::LakeFiles;
use super::layout::Layout;
use crate::records::{Record, RecordError, Records};

/// Maximum size of a ledger in a lake, in bytes after decompression: fifty times the largest seen
/// on the public network. Limits the damage of a decompression bomb.
const LONGEST_LEDGER: u64 = 64 << 20;

/// Maximum size of all ledgers in one file, in bytes after decompression.
const MAX_UNPACKED: u64 = 512 << 20;

/// The directory that was chosen, in a lake with one directory for each reset of the network.
#[derive(Clone)]
pub(super) struct ResetDirectory {
    pub(super) parent: Arc<dyn LakeFiles>,
    pub(super) name: String,
}

/// What says how a lake's keys are composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayoutOf {
    Manifest,
    Settings,
}

impl LayoutOf {
    /// Names it in messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Manifest => "its .config.json",
            Self::Settings => "the settings",
        }
    }

    /// Returns where a wrong layout is corrected.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Manifest => "ledgersPerBatch and batchesPerPartition in its .config.json",
            Self::Settings => "lake_ledgers_per_batch and lake_batches_per_partition in [source]",
        }
    }
}

/// An open lake.
#[derive(Clone)]
pub struct Lake {
    pub(super) store: Arc<dyn LakeFiles>,
    pub(super) layout: Layout,
    pub(super) layout_of: LayoutOf,
    pub(super) passphrase: Option<String>,
    /// The directory that was chosen, in a lake with one directory for each reset of the network.
    pub(super) reset_directory: Option<ResetDirectory>,
}

impl Lake {
    /// Returns the layout of the lake's keys.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the location of the lake, for messages.
    pub fn place(&self) -> String {
        self.store.place("")
    }

    /// Returns whether the file with `ledger` exists.
    pub async fn has(&self, ledger: LedgerSeq) -> Result<bool, LakeError> {
        self.store.exists(&self.layout.key_of(ledger)).await
    }

    /// Returns all ledgers of the file that holds `ledger`; `None` when the file does not exist.
    pub async fn file_of(&self, ledger: LedgerSeq) -> Result<Option<Vec<RawLedger>>, LakeError> {
        let key = self.layout.key_of(ledger);
        let Some(bytes) = self.store.get(&key).await? else { return Ok(None) };
        let place = self.store.place(&key);
        let promised = self.layout.batch_of(ledger);
        let unpacked = tokio::task::spawn_blocking({
            let place = place.clone();
            move || unpack(&place, bytes, promised)
        });
        match unpacked.await {
            Ok(ledgers) => ledgers.map(Some),
            Err(error) => Err(LakeError::transport(&place, error)),
        }
    }

    pub(super) fn gap(&self, ledger: LedgerSeq) -> LakeError {
        let (place, key) = (self.place(), self.layout.key_of(ledger));
        LakeError::Other(format!(
            "the lake {place} has a gap: ledger {ledger} is missing (expected in {key})"
        ))
    }
}

/// Unpacks a batch file and checks that it holds the ledgers that its name promises. The very first
/// batch may begin at ledger 2.
fn unpack(place: &str, bytes: Bytes, promised: LedgerRange) -> Result<Vec<RawLedger>, LakeError> {
    let content = |error: RecordError| {
        LakeError::Content(format!("cannot take ledgers from {place}: {error}"))
    };
    let name: Arc<str> = Arc::from(place);
    let mut ledgers = Vec::new();
    let mut total = 0u64;
    for record in Records::of(bytes, LONGEST_LEDGER).map_err(content)? {
        let Record { sequence, xdr, compressed } = record.map_err(content)?;
        total += xdr.len() as u64;
        if total > MAX_UNPACKED {
            return Err(LakeError::too_large(place, "unpacks to", MAX_UNPACKED));
        }
        let origin = Origin { name: Arc::clone(&name), position: None };
        ledgers.push(RawLedger { sequence, xdr, compressed, origin });
    }
    let first = promised.first.max(LedgerSeq::FIRST);
    let expected = (first.0..=promised.last.0).map(LedgerSeq);
    if ledgers.iter().map(|ledger| ledger.sequence).eq(expected) {
        return Ok(ledgers);
    }
    let found = match (ledgers.first(), ledgers.last()) {
        (Some(first), Some(last)) => format!("ledgers {} to {}", first.sequence, last.sequence),
        _ => "no ledger".to_owned(),
    };
    Err(LakeError::Content(format!("{place} holds {found}, but its name promises {promised}")))
}
