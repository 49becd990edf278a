//! Archives in directories, and what is read from them.

use std::collections::BTreeSet;
use std::path::Path;

use orrery_checkpoint::{Archive, Bounds, CheckpointError, Commitment, Found, NetworkState, Work};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, Network};
use orrery_testkit::archive::naive::{Held, Naive};
use orrery_testkit::archive::{PASSPHRASE, RawState, write};
use orrery_testkit::scratch::scratch;
use stellar_xdr::{LedgerEntry, Limits, ReadXdr};
use tempfile::TempDir;

pub fn network() -> Network {
    Network::from_passphrase(PASSPHRASE)
}

/// Bounds for small states, with so little memory that several runs are sorted and merged.
pub fn small() -> Bounds {
    Bounds { memory: 4000, spare: 0, ..Bounds::default() }
}

pub fn commitment(raw: &RawState) -> Commitment {
    Commitment {
        ledger: LedgerSeq(raw.ledger),
        protocol: raw.protocol,
        bucket_list_hash: Hash32(raw.hash()),
    }
}

/// An archive in a directory.
pub fn archive(raw: &RawState) -> TempDir {
    let directory = scratch();
    write(directory.path(), raw.files());
    directory
}

/// Reads the state of a ledger to its end.
pub fn read(
    archive: &Archive,
    commitment: Commitment,
    contracts: Option<&BTreeSet<ContractId>>,
    bounds: Bounds,
) -> Result<Vec<Found>, CheckpointError> {
    let directory = scratch();
    let work = Work { directory: directory.path(), contracts, bounds, observe: &|_| true };
    let found = read_with(archive, commitment, &work);
    assert_only_buckets(directory.path());
    found
}

pub fn read_with(
    archive: &Archive,
    commitment: Commitment,
    work: &Work<'_>,
) -> Result<Vec<Found>, CheckpointError> {
    let state: NetworkState = archive.state(commitment, &network())?;
    state.fetch(archive, work)?.entries(work)?.collect()
}

/// Asserts that nothing of a sort is left.
pub fn assert_only_buckets(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("bucket-") && name.ends_with(".xdr.gz"), "{name}");
    }
}

/// What was found, in the form of the naive reader. Asserts the order.
pub fn collected(found: Vec<Found>) -> Naive {
    let mut naive = Naive::default();
    let mut last = None;
    for found in found {
        let place = match &found {
            Found::Setting(_) => (0, [0; 32], [0; 32]),
            Found::Code(code) => (1, code.hash.0, [1; 32]),
            Found::Data(data) => (2, data.contract.0, data.key_hash.0),
        };
        assert!(last < Some(place) || place.0 == 0, "{last:?} {place:?}");
        last = Some(place);
        match found {
            Found::Setting(setting) => {
                let entry = entry(&setting.entry);
                let hash = orrery_testkit::archive::naive::key_hash(&entry.to_key());
                assert_eq!(naive.settings.insert(hash, entry), None);
            }
            Found::Code(code) => {
                let held = Held {
                    value: code.last_modified.0,
                    live_until: code.live_until.map(|until| until.0),
                    is_evicted: code.is_evicted,
                };
                naive.code.insert(code.hash.0, held);
            }
            Found::Data(data) => {
                let held = Held {
                    value: entry(&data.entry),
                    live_until: data.live_until.map(|until| until.0),
                    is_evicted: data.is_evicted,
                };
                naive.data.insert((data.contract.0, data.key_hash.0), held);
            }
        }
    }
    naive
}

fn entry(xdr: &[u8]) -> LedgerEntry {
    LedgerEntry::from_xdr(xdr, Limits::none()).unwrap()
}
