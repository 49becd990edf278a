//! Tests for the index of entries: its rows, their removal by retention, and the detection of
//! damage.

use std::path::Path;
use std::sync::LazyLock;

use orrery_ledger::decode::{ChangedEntry, decode};
use orrery_testkit::sandbox::local;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tempfile::TempDir;

use super::*;
use crate::db::database::Database;
use crate::db::directory::RAW_DIRECTORY;
use crate::feed::retention_floor::Retention;
use crate::ingest::prepare::IndexOptions;
use crate::sample_ledgers::{chain, commit, store_of};
use crate::upkeep::audit::{Audit, audit};

const LEDGERS: u32 = 40;

/// Raw ledgers, beginning with sequence 2.
static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| chain(3, 5..=20, LEDGERS));

fn ledger(sequence: u32) -> &'static Vec<u8> {
    &CHAIN[sequence as usize - 2]
}

fn stored(directory: &Path, ledgers: impl Iterator<Item = u32>) -> Store {
    store_of(directory, ledgers.map(ledger), &IndexOptions::default())
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows_of(database: &Database) -> Rows {
    let mut rows = Rows::new();
    database
        .scan(Family::Entries, |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
    rows
}

fn raw(directory: &Path) -> std::path::PathBuf {
    directory.join(RAW_DIRECTORY)
}

fn sound(directory: &Path) -> Audit {
    let audited = audit(directory, None, &|_| {}).unwrap();
    assert_eq!(audited.problems, []);
    audited
}

/// Returns every key that the chain changes, with the positions of the transactions that change it.
fn changes() -> std::collections::BTreeMap<Vec<u8>, Vec<TransactionPosition>> {
    let mut changes = std::collections::BTreeMap::<_, Vec<_>>::new();
    for xdr in CHAIN.iter() {
        let view = decode(xdr, local().id()).unwrap();
        let ledger = view.header.sequence;
        for transaction in &view.transactions {
            let application_order = transaction.application_order;
            for ChangedEntry { key, .. } in &transaction.changed_entries {
                let position = TransactionPosition { ledger, application_order };
                changes.entry(key.to_ledger_key()).or_default().push(position);
            }
        }
    }
    changes
}

#[test]
fn previous_and_next_changes_are_found() {
    let directory = tempfile::tempdir().unwrap();
    // Newer ledgers are ingested first; the order must not matter.
    let store = stored(directory.path(), (20..=LEDGERS + 1).chain(2..20));
    let reader = store.entry_reader(LedgerSeq(20)).unwrap();
    assert_eq!(reader.complete(), Some(LedgerRange::new(2, LEDGERS + 1)));
    let changes = changes();
    assert!(changes.len() > 50, "{}", changes.len());
    for (key, positions) in &changes {
        let key = EntryKey::from_ledger_key(key).unwrap();
        for window in positions.windows(2) {
            assert_eq!(reader.next_change(&key, window[0]).unwrap(), Some(window[1]));
            assert_eq!(reader.last_change(&key, window[1]).unwrap(), Some(window[0]));
            assert!(reader.transaction(window[1], |record| assert!(record.successful)).unwrap());
        }
        let (first, last) = (positions[0], positions[positions.len() - 1]);
        assert_eq!(reader.last_change(&key, first).unwrap(), None);
        assert_eq!(reader.next_change(&key, last).unwrap(), None);
        let never = TransactionPosition { ledger: LedgerSeq(u32::MAX), ..last };
        assert_eq!(reader.last_change(&key, never).unwrap(), Some(last));
    }
    let mut in_ledger = Vec::new();
    reader.transactions_of(LedgerSeq(9), |record| in_ledger.push(record.position)).unwrap();
    assert!(in_ledger.is_sorted() && in_ledger.iter().all(|at| at.ledger == LedgerSeq(9)));
}

/// The cache of rows next to a ledger must not change any result, for every ledger and any order of
/// lookups.
#[test]
fn cached_changes_give_the_same_results_from_every_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let store = stored(directory.path(), 2..=LEDGERS + 1);
    let changes = changes();
    let at = |ledger, application_order| TransactionPosition { ledger, application_order };
    let mut rng = StdRng::seed_from_u64(7);
    let mut asked = 0;
    for sequence in 1..=LEDGERS + 2 {
        let ledger = LedgerSeq(sequence);
        let reader = store.entry_reader(ledger).unwrap();
        for (key, positions) in &changes {
            let key = EntryKey::from_ledger_key(key).unwrap();
            let edges = [at(ledger, 0), at(ledger, 0x00ff_ffff), at(LedgerSeq(1), 1)];
            let within =
                positions.iter().copied().filter(|one| one.ledger.0.abs_diff(sequence) < 2);
            let mut from: Vec<_> =
                within.chain(edges).flat_map(|one| [(one, true), (one, false)]).collect();
            from.shuffle(&mut rng);
            for (one, forward) in from {
                let (found, expected) = match forward {
                    true => (reader.next_change(&key, one), positions.iter().find(|it| **it > one)),
                    false => (
                        reader.last_change(&key, one),
                        positions.iter().rev().find(|it| **it < one),
                    ),
                };
                assert_eq!(found.unwrap().as_ref(), expected, "{key:?} {one:?} {forward}");
                asked += 1;
            }
        }
    }
    assert!(asked > 10_000, "{asked}");
}

#[test]
fn retention_takes_the_rows_with_the_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let store = stored(directory.path(), 2..=LEDGERS + 1);
    let retention = Retention { transactions: Some(10), ..Retention::default() };
    while !store.prune(&retention).unwrap().is_nothing() {}
    let kept = LedgerRange::new(LEDGERS - 8, LEDGERS + 1);
    assert_eq!(store.entry_reader(LedgerSeq(40)).unwrap().complete(), Some(kept));
    assert_eq!(store.entry_reader(LedgerSeq(20)).unwrap().complete(), None);
    drop(store);
    sound(directory.path());
    let left = rows_of(&Database::open(&raw(directory.path())).unwrap());
    let positions = changes().into_values().flatten().filter(|at| kept.contains(at.ledger));
    assert!(!left.is_empty() && left.len() <= positions.count());
}

#[test]
fn only_ranges_with_all_transactions_are_complete() {
    let directory = tempfile::tempdir().unwrap();
    let store = stored(directory.path(), (2..10).chain(12..20));
    let complete = |ledger| store.entry_reader(LedgerSeq(ledger)).unwrap().complete();
    assert_eq!(complete(5), Some(LedgerRange::new(2, 9)));
    assert_eq!(complete(12), Some(LedgerRange::new(12, 19)));
    assert_eq!(complete(10), None);
    // Only transactions of listed contracts are stored.
    let listed = IndexOptions { contracts: Some(Default::default()), ..IndexOptions::default() };
    commit(&store, ledger(20), &listed);
    assert_eq!((complete(5), complete(12)), (Some(LedgerRange::new(2, 9)), None));
}

/// Returns a damaged copy of a store.
fn damaged(sound: &Path, damage: impl Fn(&Database, &Rows)) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy(sound, directory.path());
    let database = Database::open(&raw(directory.path())).unwrap();
    damage(&database, &rows_of(&database));
    directory
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn put(database: &Database, family: Family, key: &[u8], value: Option<&[u8]>) {
    let mut batch = database.batch();
    match value {
        Some(value) => batch.put_raw(family, key, value).unwrap(),
        None => batch.delete_range(family, key, &[key, &[0]].concat()).unwrap(),
    }
    database.write_synced(batch).unwrap();
}

#[test]
fn damage_to_the_entry_index_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    drop(stored(directory.path(), 2..=LEDGERS + 1));
    sound(directory.path());
    type Damage = fn(&Database, &Rows);
    let damages: [(Damage, &str); 5] = [
        (|db, rows| put(db, Family::Entries, &rows[rows.len() / 2].0, None), "is missing"),
        (
            |db, rows| {
                let (key, value) = &rows[rows.len() / 2];
                put(db, Family::Entries, key, Some(&[3 - (value[0] & 1)]));
            },
            "points to the wrong record",
        ),
        (
            |db, rows| {
                let mut key = rows[rows.len() / 2].0.clone();
                key[0] ^= 0x55;
                put(db, Family::Entries, &key, Some(&[1]));
            },
            "points to a record that is not stored",
        ),
        (
            |db, rows| put(db, Family::Entries, &rows[3].0, Some(&[16])),
            "points to the wrong record",
        ),
        (|db, _| put(db, Family::KnownEntries, &[0; 36], Some(b"colour")), "is damaged"),
    ];
    for (damage, sentence) in damages {
        let copy = damaged(directory.path(), damage);
        let problems = audit(copy.path(), None, &|_| {}).unwrap().problems;
        assert!(problems.iter().any(|one| one.to_string().contains(sentence)), "{problems:?}");
    }
}
