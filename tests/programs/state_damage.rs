//! Damage to the index of entries that no checksum can detect, because it was written as such:
//! lookups report it or ignore it, and never return a wrong entry.

use std::path::Path;

use orrery::domain::LedgerSeq;
use orrery::programs::engine::{EntryState, PreState, StateError};
use orrery::programs::state::States;
use orrery::store::{IndexOptions, Store, StoreError};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::state::{host_call, timeline};
use crate::state_sections::{Section, local_network};
use crate::state_timeline::{Timeline, Truth};
use orrery_testkit::size;

const FAMILY: &str = "entries";
/// Length of a tag in bytes; below, that of a position.
const TAG: usize = 8;
const POSITION: usize = 7;

fn open(directory: &Path) -> rocksdb::DB {
    let raw = directory.join("raw");
    let options = rocksdb::Options::default();
    let names = rocksdb::DB::list_cf(&options, &raw).unwrap();
    rocksdb::DB::open_cf(&options, &raw, names).unwrap()
}

type Rows = Vec<(Box<[u8]>, Box<[u8]>)>;

fn rows(db: &rocksdb::DB) -> Rows {
    let family = db.cf_handle(FAMILY).unwrap();
    let rows = db.iterator_cf(family, rocksdb::IteratorMode::Start);
    rows.map(Result::unwrap).collect()
}

/// Indices of rows that are followed by another row of the same entry: the loss of any other row
/// cannot be detected.
fn followed(rows: &Rows) -> Vec<usize> {
    (1..rows.len()).filter(|n| rows[n - 1].0[..TAG] == rows[*n].0[..TAG]).map(|n| n - 1).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    /// A row is missing.
    Lost,
    /// A row points to another transaction.
    Moved,
    /// A row's flags, which say what of the entry changed, are wrong.
    Flags,
    /// An extra row points to a transaction that did not change the entry.
    Stray,
    /// A row's value cannot be parsed.
    Malformed,
}

fn damage(rng: &mut ChaCha8Rng, directory: &Path, kind: Damage) {
    let db = open(directory);
    let family = db.cf_handle(FAMILY).unwrap();
    let rows = rows(&db);
    let victim = *followed(&rows).choose(rng).unwrap();
    let (key, value) = &rows[victim];
    let (other, _) = rows.choose(rng).unwrap();
    let elsewhere = [&key[..TAG], &other[TAG..TAG + POSITION]].concat();
    if matches!(kind, Damage::Lost | Damage::Moved) {
        db.delete_cf(family, key).unwrap();
    }
    match kind {
        Damage::Lost => {}
        Damage::Moved | Damage::Stray => db.put_cf(family, &elsewhere, value).unwrap(),
        Damage::Flags => db.put_cf(family, key, [value[0] ^ rng.random_range(1..3)]).unwrap(),
        Damage::Malformed => db.put_cf(family, key, [value[0], 7]).unwrap(),
    }
    db.flush_wal(true).unwrap();
}

/// Numbers of correct, unknown and failed lookups.
fn ask(section: &Section, timeline: &Timeline, store: &Store) -> (u64, u64, u64) {
    let (mut right, mut unknown, mut failed) = (0, 0, 0);
    let states = States::new(store, None);
    for checked in &timeline.checked {
        let Some(call) = host_call(store, checked, section) else { continue };
        let of_ledger = states.at(LedgerSeq(checked.ledger)).unwrap();
        let state = of_ledger.before(checked.order, &[]);
        for key in call.footprint_keys() {
            match state.entry(key) {
                Ok(EntryState::Unknown) => unknown += 1,
                Ok(EntryState::Absent) => {
                    assert!(
                        !matches!(timeline.truth(key, checked.when), Truth::Present(_)),
                        "{key:?}"
                    );
                    right += 1;
                }
                Ok(EntryState::Present(entry, _)) => {
                    match timeline.truth(key, checked.when) {
                        Truth::Present(truth) => assert_eq!(*entry, truth),
                        other => panic!("{key:?} is {other:?}"),
                    }
                    right += 1;
                }
                Err(StateError::Store(error)) => {
                    let Some(StoreError::Corrupt { family, .. }) = error.downcast_ref() else {
                        panic!("{error}");
                    };
                    assert_eq!(*family, FAMILY);
                    failed += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    (right, unknown, failed)
}

#[test]
fn a_damaged_entry_index_never_gives_wrong_entries() {
    let Some(section) = local_network() else { return };
    let timeline = timeline(&section);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for kind in [Damage::Lost, Damage::Moved, Damage::Flags, Damage::Stray, Damage::Malformed] {
        let mut sum = (0, 0, 0);
        for _ in 0..size::choose(6, 60) {
            let stored = section.store(section.first()..=section.last(), &IndexOptions::default());
            let directory = stored.close();
            damage(&mut rng, directory.path(), kind);
            let store = Store::open(directory.path(), None).unwrap();
            let (right, unknown, failed) = ask(&section, &timeline, &store);
            sum = (sum.0 + right, sum.1 + unknown, sum.2 + failed);
        }
        eprintln!("{kind:?}: {} right, {} unknown, {} failed", sum.0, sum.1, sum.2);
        assert!(sum.0 > 0);
        // Changed flags may come out as no flags at all, which counts as malformed.
        if kind != Damage::Flags {
            assert_eq!(sum.2 > 0, kind == Damage::Malformed, "{kind:?}");
        }
    }
}
