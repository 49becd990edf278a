//! Tests with damage that no checksum can detect, because it was written by a regular write: each
//! kind must be reported with its place. (Flipped bytes are covered by a test of the whole
//! program.)

mod damages;

use std::path::Path;
use std::sync::LazyLock;

use orrery_ledger::decode::decode;
use orrery_ledger::domain::{CloseTime, ContractId, CoveredLedgers, Digest, SummedLedgers};
use orrery_testkit::sandbox::local;
use tempfile::TempDir;

use super::*;
use crate::db::database::Batch;
use crate::encoding::columns::{ContractTag, RunKey, TransactionKey};
use crate::encoding::compression::{Content, compress, decompress};
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::positions::Positions;
use crate::encoding::raw_form;
use crate::encoding::records::TransactionPosition;
use crate::feed::retention_floor::Retention;
use crate::indexes::index::{self, key, record_key};
use crate::indexes::tx_by_hash::{self, HashEntry, HashRole};
use crate::ingest::prepare::IndexOptions;
use crate::read::covered_ledgers::StoredLedgers;
use crate::sample_ledgers::{chain, commit, everything, store_of};
use crate::state::coverage::CoveredRange;
use crate::state::ingest_runs::IngestRun;
use crate::state::store::Store;
use crate::state::totals::TOTALS_ROW;

const LEDGERS: u32 = 40;
/// A ledger that is not stored, so that there are two ranges.
const LEFT_OUT: u32 = 20;

/// Raw ledgers, beginning with sequence 2.
static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| chain(7, 5..=30, LEDGERS));

fn ledger(sequence: u32) -> &'static Vec<u8> {
    &CHAIN[sequence as usize - 2]
}

/// Stores the chain in an order that produces several runs.
fn store(directory: &Path, options: &IndexOptions) -> Store {
    let order = (30..=LEDGERS + 1).chain(2..15).chain(15..30).filter(|s| *s != LEFT_OUT);
    store_of(directory, order.map(ledger), options)
}

fn stored(options: &IndexOptions) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    drop(store(directory.path(), options));
    directory
}

fn audited(directory: &Path, wanted: Option<LedgerRange>) -> Audit {
    audit(directory, wanted, &|_| {}).unwrap()
}

#[track_caller]
fn assert_sound(audit: &Audit) {
    assert_eq!(audit.problems, [], "a sound store");
    assert!(!audit.more_problems);
}

#[test]
fn a_sound_store_passes_every_check() {
    for options in [everything(), IndexOptions::default()] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let store = store(at, &options);
        assert!(matches!(audit(at, None, &|_| {}), Err(StoreError::InUse(_))));
        let covered = store.completeness().unwrap();
        drop(store);
        let audit = audited(at, None);
        assert_sound(&audit);
        assert_eq!(audit.network, local());
        let of_store: Vec<_> = covered
            .iter()
            .map(
                |StoredLedgers {
                     covered: CoveredLedgers { ledgers, events, digest, .. }, ..
                 }| {
                    SummedLedgers { ledgers: *ledgers, events: *events, digest: *digest }
                },
            )
            .collect();
        assert_eq!(audit.ranges, of_store);
        assert_eq!(audit.ranges.len(), 2);
        let raw = if options.raw_ledgers { u64::from(LEDGERS) - 1 } else { 0 };
        assert_eq!((audit.raw_ledgers, audit.without_events), (raw, 0));

        for (first, last) in [(2, 9), (9, 33), (14, 15), (LEFT_OUT, LEFT_OUT), (40, u32::MAX)] {
            let part = audited(at, Some(LedgerRange::new(first, last)));
            assert_sound(&part);
            let ledgers: u64 = part.ranges.iter().map(|range| range.ledgers.len()).sum();
            let expected = (first..=last.min(LEDGERS + 1)).filter(|s| *s != LEFT_OUT).count();
            assert_eq!(ledgers, expected as u64);
        }
    }
    assert!(matches!(
        audit(tempfile::tempdir().unwrap().path(), None, &|_| {}),
        Err(StoreError::Empty(_))
    ));
}

#[test]
fn stores_with_listed_contracts_and_changed_settings_pass() {
    let first = decode(&CHAIN[30], local().id()).unwrap();
    let contract = first.events.iter().find_map(|event| event.contract).unwrap();
    let listed = [ContractId(*contract)].into_iter().collect();
    let options = IndexOptions { contracts: Some(listed), ..everything() };
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), &options);
    commit(&store, ledger(LEFT_OUT), &IndexOptions::default());
    let covered = store.completeness().unwrap();
    assert_eq!(covered.len(), 1);
    assert_eq!(covered[0].indexed_as.len(), 2, "{:?}", covered[0].indexed_as);
    store.flush().unwrap();
    drop(store);
    assert_sound(&audited(directory.path(), None));
}

#[test]
fn pruned_data_is_reported_as_unchecked_and_not_as_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), &everything());
    let whole = store.completeness().unwrap();
    let kept = |raw, events, transactions| Retention {
        raw_ledgers: Some(raw),
        events: Some(events),
        transactions: Some(transactions),
        wait_for_consumers: 0,
    };
    let sound = |store: Store, unchecked: &dyn Fn(&Audit) -> bool| {
        drop(store);
        let audit = audited(directory.path(), None);
        assert_sound(&audit);
        assert!(unchecked(&audit), "{audit:?}");
        Store::open(directory.path(), None).unwrap()
    };
    // The first of several prune steps.
    assert!(!store.prune(&kept(30, 10, 35)).unwrap().is_nothing());
    let store = sound(store, &|audit| audit.without_events > 0);
    while !store.prune(&kept(30, 10, 35)).unwrap().is_nothing() {}
    let store = sound(store, &|audit| {
        audit.without_events > 20 && audit.without_transactions > 0 && audit.raw_ledgers == 29
    });
    while !store.prune(&kept(30, 10, 5)).unwrap().is_nothing() {}
    let store = sound(store, &|audit| audit.without_transactions > 20);
    // Events can still be found after their transactions are pruned, and a backfill may arrive
    // late.
    commit(&store, ledger(LEFT_OUT), &everything());
    store.flush().unwrap();
    let store = sound(store, &|audit| audit.ranges.len() == 1);
    while !store.prune(&kept(30, 10, 5)).unwrap().is_nothing() {}
    let sums = |ranges: &[StoredLedgers]| {
        (ranges.iter().map(|range| range.covered.events).sum::<u64>(), ranges.len())
    };
    assert!(sums(&store.completeness().unwrap()).0 > sums(&whole).0);
    sound(store, &|audit| audit.without_events > 20);
}

/// Damages an open database.
type Damage = fn(&Database, &mut Batch<'_>);

/// Returns all rows of a family.
fn rows(database: &Database, family: Family) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    database
        .scan(family, |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
    rows
}

/// Returns a row from the middle of a family.
fn row(database: &Database, family: Family) -> (Vec<u8>, Vec<u8>) {
    let mut rows = rows(database, family);
    rows.swap_remove(rows.len() / 2)
}

fn remove(database: &Database, batch: &mut Batch<'_>, family: Family) {
    let (key, _) = row(database, family);
    batch.delete_range(family, &key, &[key.as_slice(), &[0]].concat()).unwrap();
}

/// Changes the first row of `tx_by_hash` whose entry `wanted` accepts; deletes it when `change`
/// returns false.
fn change_hash(
    database: &Database,
    batch: &mut Batch<'_>,
    wanted: impl Fn(&HashEntry) -> bool,
    change: impl Fn(&mut HashEntry) -> bool,
) {
    let found = rows(database, Family::TxByHash).into_iter().find_map(|(key, value)| {
        let entry = HashEntry::decode(&value).unwrap();
        wanted(&entry).then_some((key, entry))
    });
    let (key, mut entry) = found.unwrap();
    if change(&mut entry) {
        put_hash(batch, &key, &entry);
    } else {
        batch.delete_range(Family::TxByHash, &key, &[key.as_slice(), &[0]].concat()).unwrap();
    }
}

fn put_hash(batch: &mut Batch<'_>, key: &[u8], entry: &HashEntry) {
    let mut value = Vec::new();
    entry.encode(&mut value);
    batch.put_raw(Family::TxByHash, key, &value).unwrap();
}

fn change_ledger(database: &Database, batch: &mut Batch<'_>, change: impl Fn(&mut LedgerRow)) {
    let (key, value) = row(database, Family::Ledgers);
    let mut row = LedgerRow::decode(&value).unwrap();
    change(&mut row);
    batch.put_raw(Family::Ledgers, &key, &row.encode()).unwrap();
}

fn change_totals(database: &Database, batch: &mut Batch<'_>, change: impl Fn(&mut Totals)) {
    let mut totals = Totals::load(database).unwrap();
    change(&mut totals);
    batch.put_raw(Family::Meta, TOTALS_ROW, &totals.encode()).unwrap();
}

/// Changes the last byte of a record's decompressed content.
fn change_content(database: &Database, batch: &mut Batch<'_>, family: Family, content: Content) {
    let (key, value) = row(database, family);
    let mut bytes = decompress(content, &value).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    batch.put_raw(family, &key, &compress(content, &bytes).unwrap()).unwrap();
}

/// Returns a row that holds a block of transactions.
fn transaction_block(database: &Database) -> (Vec<u8>, Vec<u8>) {
    let mut rows = rows(database, Family::Transactions).into_iter();
    rows.find(|(_, value)| value[0] == 0).unwrap()
}

fn position(ledger: u32) -> TransactionPosition {
    TransactionPosition { ledger: LedgerSeq(ledger), application_order: 0xf_ffff }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn damaged(sound: &Path, damage: Damage) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy(sound, directory.path());
    let database = Database::open(&directory.path().join(RAW_DIRECTORY)).unwrap();
    let mut batch = database.batch();
    damage(&database, &mut batch);
    database.write_synced(batch).unwrap();
    directory
}

#[test]
fn every_kind_of_damage_is_reported() {
    let sound = stored(&everything());
    for (name, damage, sentence) in damages::DAMAGES {
        let directory = damaged(sound.path(), *damage);
        let audit = audited(directory.path(), None);
        let problems: Vec<String> = audit.problems.iter().map(ToString::to_string).collect();
        assert!(problems.iter().any(|problem| problem.contains(sentence)), "{name}: {problems:#?}");
        assert!(problems.iter().all(|problem| !problem.contains('\n')), "{name}: {problems:#?}");
    }
}

#[test]
fn damage_is_reported_only_within_the_audited_range() {
    let sound = stored(&everything());
    let directory = damaged(sound.path(), |db, batch| {
        let (key, value) = rows(db, Family::TxByContract).pop().unwrap();
        let stray = [&key[..ContractTag::LEN], &TransactionKey(position(33)).encode()].concat();
        batch.put_raw(Family::TxByContract, &stray, &value).unwrap();
        let (key, _) = rows(db, Family::EventsByTopic).swap_remove(0);
        let tag = key.len() - 8;
        assert!(record_key::<BlockKey>(tag, &key).unwrap().0 > EventId(0));
        // Ledger 30 was stored first, so it has the first event ids.
        let stray = index::key(&[8; 9], &BlockKey(EventId(1)));
        batch.put_raw(Family::EventsByTopic, &stray, &[0]).unwrap();
    });
    let problems_in =
        |first, last| audited(directory.path(), Some(LedgerRange::new(first, last))).problems.len();
    assert_eq!((problems_in(2, 29), problems_in(34, 100)), (0, 0));
    assert_eq!((problems_in(33, 33), problems_in(30, 31), problems_in(0, u32::MAX)), (1, 1, 2));
}

#[test]
fn totals_are_compared_when_all_is_looked_at_and_nothing_else_is_wrong() {
    let sound = stored(&everything());
    let wrong: Damage = |db, batch| change_totals(db, batch, |totals| totals.events += 1);
    let directory = damaged(sound.path(), wrong);
    assert_sound(&audited(directory.path(), Some(LedgerRange::new(2, 9))));
    assert_eq!(audited(directory.path(), None).problems.len(), 1);
    let without_an_event_block =
        damaged(sound.path(), |db, batch| remove(db, batch, Family::Events));
    let told = audited(without_an_event_block.path(), None).problems;
    assert!(!told.is_empty() && told.iter().all(|told| !told.place.contains("totals")), "{told:?}");
}
