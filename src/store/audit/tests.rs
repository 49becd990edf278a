//! Damage that no checksum can find, because it was written as it is: each kind must be told, with its
//! place. (Flipped bytes are the matter of a test of the whole program.)

use std::path::Path;
use std::sync::LazyLock;

use tempfile::TempDir;

use super::super::columns::{
    ContractBlockKey, ContractTransactionKey, HashKey, HashTag, TopicBlockKey,
};
use super::super::columns::{ContractTag, Key, RunKey};
use super::super::compression::Content;
use super::super::compression::{compress, decompress};
use super::super::coverage::CoveredRange;
use super::super::database::Batch;
use super::super::lookup::{HashEntry, HashRole};
use super::super::positions::Positions;
use super::super::raw_form;
use super::super::runs::Run;
use super::super::{Durability, IndexOptions, PreparedLedger, Retention, Store};
use super::*;
use crate::decode::decode;
use crate::domain::ContractId;
use crate::source::sandbox::{Sandbox, SandboxConfig};

mod drift;

const LEDGERS: u32 = 40;
/// Not stored, so that there are two ranges.
const LEFT_OUT: u32 = 20;

fn network() -> Network {
    Network::from_name_or_passphrase("local")
}

/// Ledgers from 2 on.
static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let config = SandboxConfig {
        network: network(),
        seed: 7,
        start_time: 1_750_000_000,
        close_interval: 5,
        transactions_per_ledger: 5..=30,
    };
    let mut sandbox = Sandbox::new(config).unwrap();
    (0..LEDGERS).map(|_| sandbox.next_ledger().unwrap()).collect()
});

fn everything() -> IndexOptions {
    IndexOptions { classic_events: true, fee_events: true, contracts: None, raw_ledgers: true }
}

fn commit(store: &Store, sequence: u32, options: &IndexOptions) {
    let view = decode(&CHAIN[sequence as usize - 2], network().id()).unwrap();
    let prepared = PreparedLedger::new(&view, options).unwrap();
    store.commit(prepared, Durability::Deferred).unwrap();
}

/// Stores the chain in an order that makes several runs.
fn store(directory: &Path, options: &IndexOptions) -> Store {
    let store = Store::open(directory, Some(&network())).unwrap();
    let order = (30..=LEDGERS + 1).chain(2..15).chain(15..30).filter(|s| *s != LEFT_OUT);
    order.for_each(|sequence| commit(&store, sequence, options));
    store.flush().unwrap();
    store
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
    assert_eq!(audit.drift, [], "exact totals");
    assert!(!audit.more_problems);
}

#[test]
fn a_sound_store_is_found_sound_in_every_part() {
    for options in [everything(), IndexOptions::default()] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let store = store(at, &options);
        assert!(matches!(audit(at, None, &|_| {}), Err(StoreError::InUse(_))));
        let covered = store.completeness().unwrap();
        drop(store);
        let audit = audited(at, None);
        assert_sound(&audit);
        assert_eq!(audit.network, network());
        let of_store: Vec<_> =
            covered.iter().map(|range| (range.ledgers, range.events, range.digest)).collect();
        let of_audit: Vec<_> =
            audit.ranges.iter().map(|range| (range.ledgers, range.events, range.digest)).collect();
        assert_eq!(of_audit, of_store);
        assert_eq!(of_audit.len(), 2);
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
fn listed_contracts_and_changed_settings_are_sound() {
    let first = decode(&CHAIN[30], network().id()).unwrap();
    let contract = first.events.iter().find_map(|event| event.contract).unwrap();
    let listed = [ContractId(*contract)].into_iter().collect();
    let options = IndexOptions { contracts: Some(listed), ..everything() };
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), &options);
    commit(&store, LEFT_OUT, &IndexOptions::default());
    let covered = store.completeness().unwrap();
    assert_eq!(covered.len(), 1);
    assert_eq!(covered[0].indexed_as.len(), 2, "{:?}", covered[0].indexed_as);
    store.flush().unwrap();
    drop(store);
    assert_sound(&audited(directory.path(), None));
}

#[test]
fn what_retention_removed_is_unchecked_and_no_damage() {
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
    // One step of several.
    assert!(!store.prune(&kept(30, 10, 35)).unwrap().is_nothing());
    let store = sound(store, &|audit| audit.without_events > 0);
    while !store.prune(&kept(30, 10, 35)).unwrap().is_nothing() {}
    let store = sound(store, &|audit| {
        audit.without_events > 20 && audit.without_transactions > 0 && audit.raw_ledgers == 29
    });
    while !store.prune(&kept(30, 10, 5)).unwrap().is_nothing() {}
    let store = sound(store, &|audit| audit.without_transactions > 20);
    // Events go on being found after their transactions are gone, and a backfill may come late.
    commit(&store, LEFT_OUT, &everything());
    store.flush().unwrap();
    let store = sound(store, &|audit| audit.ranges.len() == 1);
    while !store.prune(&kept(30, 10, 5)).unwrap().is_nothing() {}
    let sums = |ranges: &[super::super::CoveredLedgers]| {
        (ranges.iter().map(|range| range.events).sum::<u64>(), ranges.len())
    };
    assert!(sums(&store.completeness().unwrap()).0 > sums(&whole).0);
    sound(store, &|audit| audit.without_events > 20);
}

/// A way to damage an open database.
type Damage = fn(&Database, &mut Batch<'_>);

/// The rows of a family.
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

/// A row from the middle of a family.
fn row(database: &Database, family: Family) -> (Vec<u8>, Vec<u8>) {
    let mut rows = rows(database, family);
    rows.swap_remove(rows.len() / 2)
}

fn remove(database: &Database, batch: &mut Batch<'_>, family: Family) {
    let (key, _) = row(database, family);
    batch.delete_range(family, &key, &[key.as_slice(), &[0]].concat()).unwrap();
}

/// A row of `tx_by_hash` whose entry is as wanted, with the entry changed.
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
        batch.put_raw(Family::TxByHash, &key, &entry.encode()).unwrap();
    } else {
        batch.delete_range(Family::TxByHash, &key, &[key.as_slice(), &[0]].concat()).unwrap();
    }
}

fn change_ledger(database: &Database, batch: &mut Batch<'_>, change: impl Fn(&mut LedgerRow)) {
    let (key, value) = row(database, Family::Ledgers);
    let mut row = LedgerRow::decode(&value).unwrap();
    change(&mut row);
    batch.put_raw(Family::Ledgers, &key, &row.encode()).unwrap();
}

/// Changes the last byte of a record's content.
fn change_content(database: &Database, batch: &mut Batch<'_>, family: Family, content: Content) {
    let (key, value) = row(database, family);
    let mut bytes = decompress(content, &value).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    batch.put_raw(family, &key, &compress(content, &bytes).unwrap()).unwrap();
}

/// A row that holds a block of transactions.
fn transaction_block(database: &Database) -> (Vec<u8>, Vec<u8>) {
    let mut rows = rows(database, Family::Transactions).into_iter();
    rows.find(|(_, value)| value[0] == 0).unwrap()
}

fn position(ledger: u32) -> TransactionPosition {
    TransactionPosition { ledger: LedgerSeq(ledger), application_order: 0xf_ffff }
}

/// What is done, and a word that must then be in a sentence about it.
const DAMAGES: &[(&str, Damage, &str)] = &[
    (
        "no row for a contract",
        |db, batch| remove(db, batch, Family::EventsByContract),
        "is missing",
    ),
    (
        "a row for a contract that has no event there",
        |db, batch| {
            let (key, value) = row(db, Family::EventsByContract);
            let block = ContractBlockKey::decode(&key).unwrap().block;
            let stray = ContractBlockKey { contract: ContractTag([9; 8]), block };
            batch.put(Family::EventsByContract, &stray, value).unwrap();
        },
        "leads to nothing",
    ),
    (
        "a row for events that were never stored",
        |_, batch| {
            let stray = ContractBlockKey { contract: ContractTag([9; 8]), block: EventId(1 << 40) };
            batch.put(Family::EventsByContract, &stray, [0]).unwrap();
        },
        "leads to nothing",
    ),
    (
        "another event for a topic",
        |db, batch| {
            let (key, value) = row(db, Family::EventsByTopic);
            let mut positions = Positions::decode(&value).unwrap();
            positions.0 ^= 1 << 63;
            let mut bytes = Vec::new();
            positions.encode(&mut bytes);
            batch.put_raw(Family::EventsByTopic, &key, &bytes).unwrap();
        },
        "does not lead to where it should",
    ),
    ("no row for a topic", |db, batch| remove(db, batch, Family::EventsByTopic), "is missing"),
    (
        "a row of a topic that is none",
        |db, batch| {
            let (key, _) = row(db, Family::EventsByTopic);
            TopicBlockKey::decode(&key).unwrap();
            batch.put_raw(Family::EventsByTopic, &key, &[64]).unwrap();
        },
        "is damaged",
    ),
    (
        "no row for a contract's transaction",
        |db, batch| remove(db, batch, Family::TxByContract),
        "is missing",
    ),
    (
        "a row for a transaction that is not stored",
        |_, batch| {
            let key =
                ContractTransactionKey { contract: ContractTag([9; 8]), position: position(9) };
            batch.put(Family::TxByContract, &key, []).unwrap();
        },
        "leads to nothing",
    ),
    (
        "no row for a hash",
        |db, batch| change_hash(db, batch, |e| e.role == HashRole::Only && e.events > 0, |_| false),
        "is missing",
    ),
    (
        "no row for an inner hash",
        |db, batch| change_hash(db, batch, |e| matches!(e.role, HashRole::Inner(_)), |_| false),
        "tx_by_hash",
    ),
    (
        "no row for an outer hash",
        |db, batch| change_hash(db, batch, |e| matches!(e.role, HashRole::Outer { .. }), |_| false),
        "tx_by_hash",
    ),
    (
        "a hash whose events lie elsewhere",
        |db, batch| {
            let change = |entry: &mut HashEntry| {
                entry.first_event.0 += 1;
                true
            };
            change_hash(db, batch, |entry| entry.events > 0, change);
        },
        "does not lead to where it should",
    ),
    (
        "a hash that forgot a fee event",
        |db, batch| {
            let change = |entry: &mut HashEntry| entry.fee_events.pop().is_some();
            change_hash(db, batch, |entry| !entry.fee_events.is_empty(), change);
        },
        "does not lead to where it should",
    ),
    (
        "a hash of another transaction",
        |_, batch| {
            let key = HashKey { tag: HashTag([1; 6]), position: position(9) };
            let entry = HashEntry {
                role: HashRole::Only,
                first_event: EventId(1),
                position: 0,
                events: 1,
                fee_events: Vec::new(),
            };
            batch.put(Family::TxByHash, &key, entry.encode()).unwrap();
        },
        "leads to nothing",
    ),
    ("no event block", |db, batch| remove(db, batch, Family::Events), "are missing"),
    (
        "another event",
        |db, batch| change_content(db, batch, Family::Events, Content::Events),
        "not those of the ledger's digest",
    ),
    (
        "events that no zstd wrote",
        |db, batch| {
            let (key, _) = row(db, Family::Events);
            batch.put_raw(Family::Events, &key, b"events").unwrap();
        },
        "could not be compressed or decompressed",
    ),
    (
        "events beyond the last",
        |db, batch| {
            let (_, value) = row(db, Family::Events);
            batch.put(Family::Events, &BlockKey(EventId(1 << 40)), value).unwrap();
        },
        "belongs to no ledger",
    ),
    ("no transaction", |db, batch| remove(db, batch, Family::Transactions), "were stored"),
    (
        "another transaction",
        |db, batch| {
            let (key, value) = transaction_block(db);
            let mut bytes = decompress(Content::Transactions, &value[1..]).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            let changed = compress(Content::Transactions, &bytes).unwrap();
            batch.put_raw(Family::Transactions, &key, &[&value[..1], &changed].concat()).unwrap();
        },
        "the stored transactions are not those",
    ),
    (
        "a transaction that is not in the block that it names",
        |db, batch| {
            let (key, _) = transaction_block(db);
            batch.put_raw(Family::Transactions, &key, &[1, 1]).unwrap();
        },
        "transactions",
    ),
    (
        "a transaction of a ledger that is not stored",
        |db, batch| {
            let (_, value) = row(db, Family::Transactions);
            batch.put(Family::Transactions, &TransactionKey(position(LEFT_OUT)), value).unwrap();
        },
        "belongs to no ledger",
    ),
    ("no ledger", |db, batch| remove(db, batch, Family::Ledgers), "covered, and not stored"),
    (
        "a ledger that is not covered",
        |db, batch| {
            let (_, value) = row(db, Family::Ledgers);
            batch.put(Family::Ledgers, &LedgerKey(LedgerSeq(LEFT_OUT)), value).unwrap();
        },
        "in no covered range",
    ),
    (
        "another hash",
        |db, batch| {
            change_ledger(db, batch, |row| row.hash = Default::default());
        },
        "links to",
    ),
    (
        "another digest",
        |db, batch| change_ledger(db, batch, |row| row.digest = Digest::default()),
        "not the sum of ledgers",
    ),
    (
        "other ids",
        |db, batch| change_ledger(db, batch, |row| row.first_event.0 += 1),
        "and those before it end at",
    ),
    (
        "other kinds of events",
        |db, batch| {
            change_ledger(db, batch, |row| {
                row.counts.fee_events -= 1;
                row.counts.classic_events += 1;
            });
        },
        "not as many as the ledger's row says",
    ),
    (
        "other counts of transactions",
        |db, batch| change_ledger(db, batch, |row| row.counts.failed += 1),
        "not the ledger that its row describes",
    ),
    (
        "other settings",
        |db, batch| change_ledger(db, batch, |row| row.indexed_as.fee_events = false),
        "its settings leave out",
    ),
    (
        "another close time",
        |db, batch| change_ledger(db, batch, |row| row.close_time += 1),
        "close time",
    ),
    (
        "a range with another digest",
        |db, batch| {
            let (key, value) = row(db, Family::Ranges);
            let first = LedgerKey::decode(&key).unwrap().0;
            let mut range = CoveredRange::decode(first, &value).unwrap();
            range.sums.digest += Digest::from([1; 32]);
            batch.put_raw(Family::Ranges, &key, &range.encode()).unwrap();
        },
        "not the sum of ledgers",
    ),
    ("no range", |db, batch| remove(db, batch, Family::Ranges), "in no covered range"),
    (
        "a run that ends elsewhere",
        |db, batch| {
            let (key, value) = rows(db, Family::Runs).swap_remove(0);
            let mut run = Run::decode(&value).unwrap();
            run.end_event.0 += 1;
            batch.put_raw(Family::Runs, &key, &run.encode()).unwrap();
        },
        "its events begin at",
    ),
    (
        "runs that share a ledger",
        |db, batch| {
            let (_, value) = rows(db, Family::Runs).swap_remove(0);
            let mut run = Run::decode(&value).unwrap();
            let last = rows(db, Family::Runs).len() as u32;
            let end = Run::decode(&rows(db, Family::Runs).pop().unwrap().1).unwrap().end_event;
            (run.first_event, run.end_event) = (end, end);
            batch.put(Family::Runs, &RunKey(last), run.encode()).unwrap();
        },
        "share ledgers",
    ),
    (
        "something that is never written",
        |_, batch| batch.put_raw(Family::Meta, b"colour", b"blue").unwrap(),
        "nothing of this name",
    ),
    (
        "the raw form of another ledger",
        |db, batch| {
            let raw = rows(db, Family::LedgerXdr);
            batch.put_raw(Family::LedgerXdr, &raw[3].0, &raw[4].1).unwrap();
        },
        "not the ledger that its row describes",
    ),
    (
        "a raw form with another header",
        |db, batch| {
            let (key, value) = row(db, Family::LedgerXdr);
            let mut xdr = raw_form::unpack(&value).unwrap();
            // In the hash of the set of transactions, which nothing else speaks of.
            xdr[8 + 32 + 4 + 32 + 5] ^= 1;
            let value = raw_form::pack(&xdr, None).unwrap();
            batch.put_raw(Family::LedgerXdr, &key, &value).unwrap();
        },
        "hashes to",
    ),
    (
        "the raw form of a ledger that is not stored",
        |db, batch| {
            let (_, value) = row(db, Family::LedgerXdr);
            batch.put(Family::LedgerXdr, &LedgerKey(LedgerSeq(LEFT_OUT)), value).unwrap();
        },
        "belongs to no ledger",
    ),
];

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
    let database = Database::open(&directory.path().join(RAW_DIRECTORY), &[]).unwrap();
    let mut batch = database.batch();
    damage(&database, &mut batch);
    database.write_synced(batch).unwrap();
    directory
}

#[test]
fn every_kind_of_damage_is_told() {
    let sound = stored(&everything());
    for (name, damage, sentence) in DAMAGES {
        let directory = damaged(sound.path(), *damage);
        let audit = audited(directory.path(), None);
        let told: Vec<String> = audit.problems.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|told| told.contains(sentence)), "{name}: {told:#?}");
        assert!(told.iter().all(|told| !told.contains('\n')), "{name}: {told:#?}");
    }
}

#[test]
fn damage_is_told_only_where_one_looks() {
    let sound = stored(&everything());
    let directory = damaged(sound.path(), |db, batch| {
        let (key, value) = rows(db, Family::TxByContract).pop().unwrap();
        let mut key = ContractTransactionKey::decode(&key).unwrap();
        key.position.ledger = LedgerSeq(33);
        key.position.application_order = 0xf_ffff;
        batch.put(Family::TxByContract, &key, value).unwrap();
        let (key, _) = rows(db, Family::EventsByTopic).swap_remove(0);
        let block = TopicBlockKey::decode(&key).unwrap().block;
        assert!(block.0 > 0);
        let tag = super::super::columns::TopicTag([8; 9]);
        // The first ledger stored was 30.
        let key = TopicBlockKey { tag, block: EventId(1) };
        batch.put(Family::EventsByTopic, &key, [0]).unwrap();
    });
    let told =
        |first, last| audited(directory.path(), Some(LedgerRange::new(first, last))).problems.len();
    assert_eq!((told(2, 29), told(34, 100)), (0, 0));
    assert_eq!((told(33, 33), told(30, 31), told(0, u32::MAX)), (1, 1, 2));
}
