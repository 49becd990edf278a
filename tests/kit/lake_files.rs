//! A ledger lake in a directory, to which ledgers can be added, and sandbox ledgers to add.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use orrery_ledger::domain::{LedgerSeq, Network};
use orrery_sandbox::network::{FIRST_MARKET_LEDGER, Sandbox};
use tempfile::TempDir;

use super::forged::{Extent, Ledger, forgers_key};
use super::sandbox::{self, local, sandbox};

/// Files per partition directory of the lake.
const PER_PARTITION: u32 = 64;

/// Ledgers of a sandbox network, starting at ledger 2.
#[derive(Clone)]
pub struct Chain {
    pub network: Network,
    ledgers: Vec<Vec<u8>>,
}

impl Chain {
    /// Ledgers 2 to `last`; another seed makes others.
    pub fn made(seed: u64, last: u32) -> Self {
        Self::of(seed, last, 0..=6, |sandbox| sandbox.with_milliseconds(LedgerSeq(12), 3))
    }

    /// As [`Self::made`], on a network with a market.
    pub fn with_market(seed: u64, last: u32) -> Self {
        Self::of(seed, last, 3..=9, |sandbox| sandbox.with_market(FIRST_MARKET_LEDGER))
    }

    fn of(
        seed: u64,
        last: u32,
        transactions_per_ledger: RangeInclusive<usize>,
        with: impl Fn(Sandbox) -> Sandbox,
    ) -> Self {
        let sandbox = with(sandbox(seed, transactions_per_ledger));
        Self { network: local(), ledgers: sandbox::ledgers(sandbox, last - 1) }
    }

    /// The same ledgers, of which key `sequence % keys` has signed each.
    pub fn signed_by(&self, keys: &[SigningKey]) -> Self {
        self.signed_from(2, keys)
    }

    /// The same ledgers, of which the keys have signed those from `first` on in turn.
    pub fn signed_from(&self, first: u32, keys: &[SigningKey]) -> Self {
        self.changed(first, &|_| (), &|sequence| keys[sequence as usize % keys.len()].clone())
    }

    /// The chain with a change to the ledgers from `first` on, which a forger has linked and signed
    /// again with a key of its own.
    pub fn forged(&self, first: u32, change: &dyn Fn(&mut Ledger)) -> Self {
        self.changed(first, change, &|_| forgers_key(255))
    }

    /// The chain with a change to one ledger, in which all hashes are right again. The next one does
    /// not follow it.
    pub fn with_lie(&self, sequence: u32, extent: Extent, change: &dyn Fn(&mut Ledger)) -> Self {
        let Self { network, mut ledgers } = Self::clone(self);
        let raw = &mut ledgers[sequence as usize - 2];
        let mut ledger = Ledger::read(raw).unwrap();
        change(&mut ledger);
        ledger.make_right(extent, network.id(), &forgers_key(255));
        *raw = ledger.encode();
        Self { network, ledgers }
    }

    fn changed(
        &self,
        first: u32,
        change: &dyn Fn(&mut Ledger),
        key: &dyn Fn(u32) -> SigningKey,
    ) -> Self {
        let Self { network, mut ledgers } = Self::clone(self);
        let mut previous = None;
        for (sequence, raw) in (2..).zip(&mut ledgers) {
            let mut ledger = Ledger::read(raw).unwrap();
            if sequence >= first {
                if let Some(previous) = &previous {
                    ledger.link_to(previous);
                }
                change(&mut ledger);
                ledger.make_right(Extent::Signature, network.id(), &key(sequence));
                *raw = ledger.encode();
            }
            previous = Some(ledger.header.hash);
        }
        Self { network, ledgers }
    }

    pub fn xdr(&self, sequence: u32) -> &[u8] {
        &self.ledgers[sequence as usize - 2]
    }
}

/// A lake in a temporary directory.
pub struct LakeFiles {
    directory: TempDir,
}

impl LakeFiles {
    /// An empty lake of a network.
    pub fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let manifest = serde_json::json!({
            "networkPassphrase": network.passphrase(),
            "version": "1.0",
            "compression": "zstd",
            "ledgersPerBatch": 1,
            "batchesPerPartition": PER_PARTITION,
        });
        fs::write(directory.path().join(".config.json"), manifest.to_string()).unwrap();
        Self { directory }
    }

    /// A lake with these ledgers of a chain.
    pub fn with(chain: &Chain, ledgers: RangeInclusive<u32>) -> Self {
        let lake = Self::new(&chain.network);
        ledgers.for_each(|sequence| lake.add(chain, sequence));
        lake
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn text(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    /// Adds or replaces a ledger atomically, as a writer of lakes does.
    pub fn add(&self, chain: &Chain, sequence: u32) {
        self.add_xdr(sequence, chain.xdr(sequence));
    }

    /// As [`Self::add`], with the XDR of the ledger.
    pub fn add_xdr(&self, sequence: u32, xdr: &[u8]) {
        let mut batch = Vec::with_capacity(xdr.len() + 12);
        for word in [sequence, sequence, 1] {
            batch.extend_from_slice(&word.to_be_bytes());
        }
        batch.extend_from_slice(xdr);
        let file = self.file(sequence);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let unfinished = self.path().join("unfinished");
        fs::write(&unfinished, zstd::encode_all(&*batch, 1).unwrap()).unwrap();
        fs::rename(unfinished, file).unwrap();
    }

    /// Adds a ledger of another lake: the same file.
    pub fn link(&self, from: &Self, sequence: u32) {
        let file = self.file(sequence);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::hard_link(from.file(sequence), file).unwrap();
    }

    /// Removes a ledger.
    pub fn remove(&self, sequence: u32) {
        fs::remove_file(self.file(sequence)).unwrap();
    }

    fn file(&self, sequence: u32) -> PathBuf {
        let first = sequence / PER_PARTITION * PER_PARTITION;
        let last = first + PER_PARTITION - 1;
        let partition = format!("{:08X}--{first}-{last}", u32::MAX - first);
        let name = format!("{:08X}--{sequence}.xdr.zst", u32::MAX - sequence);
        self.path().join(partition).join(name)
    }
}
