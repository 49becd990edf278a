//! Sections of consecutive recorded ledgers, and stores of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use orrery::decode::{decode, header};
use orrery::domain::{ContractId, Network};
use orrery::source::files::LedgerFiles;
use orrery::store::{Durability, IndexOptions, PreparedLedger, Store};
use tempfile::TempDir;

use orrery_testkit::{data, size};

/// Consecutive ledgers of one network.
pub struct Section {
    pub name: String,
    pub network: Network,
    /// Whether they start right after genesis, so that contract entries that they do not mention
    /// are absent.
    pub from_genesis: bool,
    /// XDR of the `LedgerCloseMeta`s by sequence.
    pub ledgers: BTreeMap<u32, Vec<u8>>,
}

/// A store in a temporary directory of its own.
pub struct Stored {
    pub store: Store,
    directory: TempDir,
}

impl Stored {
    /// Closes the store and returns its directory.
    pub fn close(self) -> TempDir {
        self.directory
    }
}

impl Section {
    pub fn first(&self) -> u32 {
        *self.ledgers.keys().next().unwrap()
    }

    pub fn last(&self) -> u32 {
        *self.ledgers.keys().next_back().unwrap()
    }

    /// All contracts that its transactions touch.
    pub fn contracts(&self) -> Vec<ContractId> {
        let mut contracts = BTreeSet::new();
        for xdr in self.ledgers.values() {
            let view = decode(xdr, self.network.id()).unwrap();
            contracts.extend(view.transactions.into_iter().flat_map(|one| one.contracts));
        }
        contracts.into_iter().collect()
    }

    /// Stores the ledgers in the given order.
    pub fn store(&self, order: impl IntoIterator<Item = u32>, options: &IndexOptions) -> Stored {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Some(&self.network)).unwrap();
        for sequence in order {
            self.commit(&store, sequence, options);
        }
        store.flush().unwrap();
        Stored { store, directory }
    }

    pub fn commit(&self, store: &Store, sequence: u32, options: &IndexOptions) {
        let view = decode(&self.ledgers[&sequence], self.network.id()).unwrap();
        let prepared = PreparedLedger::new(&view, options).unwrap();
        store.commit(prepared, Durability::Deferred).unwrap();
    }
}

/// The ledgers of some files, split wherever the sequence does not increase by one.
fn sections(name: &str, paths: &[PathBuf], network: &str, from_genesis: bool) -> Vec<Section> {
    let network = Network::from_name_or_passphrase(network);
    let mut sections: Vec<Section> = Vec::new();
    for ledger in LedgerFiles::new(paths) {
        let xdr = ledger.unwrap().xdr;
        let sequence = header(&xdr).unwrap().sequence.0;
        let continued = sections.last_mut().filter(|section| section.last() + 1 == sequence);
        match continued {
            Some(section) => drop(section.ledgers.insert(sequence, xdr)),
            None => sections.push(Section {
                name: format!("{name}, section {}", sections.len()),
                network: network.clone(),
                from_genesis: from_genesis && sequence == 2,
                ledgers: BTreeMap::from([(sequence, xdr)]),
            }),
        }
    }
    sections
}

/// Streams of stellar-core's tests, from ledger 2 on, with every change since genesis: all of them,
/// or every fourth in small runs.
pub fn core_tests() -> Vec<Section> {
    if data::missing() {
        return Vec::new();
    }
    let folder = data::folder().unwrap().join("ledgers/core-tests");
    let mut files: Vec<PathBuf> = Vec::new();
    for suite in fs::read_dir(folder).unwrap() {
        files.extend(fs::read_dir(suite.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
    }
    files.sort();
    let every = size::choose(4, 1) as usize;
    let files = files.into_iter().step_by(every);
    files.flat_map(|file| sections(&name(&file), &[file], "(V) (;,,;) (V)", true)).collect()
}

/// A recorded local network, from ledger 98 on.
pub fn local_network() -> Option<Section> {
    if data::missing() {
        return None;
    }
    let file = data::folder().unwrap().join("local-network/local-vault.xdr.zst");
    if !file.exists() {
        eprintln!("skipped: there is no {}", file.display());
        return None;
    }
    let mut sections = sections("local network", &[file], "local", false);
    assert_eq!(sections.len(), 1);
    sections.pop()
}

/// Twelve ledgers of the public network.
pub fn public() -> Option<Section> {
    if data::missing() {
        return None;
    }
    let lake = data::folder().unwrap().join("ledgers/lake-pubnet");
    let mut sections = sections("public network", &[lake], "mainnet", false);
    assert_eq!(sections.len(), 1);
    sections.pop()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}
