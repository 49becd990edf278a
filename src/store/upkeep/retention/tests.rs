use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use orrery_ledger::decode::decode;
use orrery_testkit::sandbox::local;

use super::*;
use crate::feed::retention_floor::first_kept;
use crate::indexes::events_by_address;
use crate::ingest::commit::Durability;
use crate::ingest::prepare::{IndexOptions, PreparedLedger};
use crate::sample_ledgers::{chain, commit, everything, open, store_of};
use crate::state::consumers::spec::{ConsumerSpec, Needs, StartPosition};
use crate::upkeep::audit::audit;
use crate::upkeep::extensions::Extensions;

const FIRST: u32 = 2;
const LEDGERS: u32 = 30;

/// Raw ledgers from [`FIRST`] on.
static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| chain(11, 5..=30, LEDGERS));

/// Fills a store with the ledgers from `first` on.
fn store(directory: &Path, first: u32, options: &IndexOptions) -> Store {
    store_of(directory, &CHAIN[(first - FIRST) as usize..], options)
}

fn keep(events: Option<u32>, transactions: Option<u32>) -> Retention {
    Retention { raw_ledgers: events, events, transactions, wait_for_consumers: 0 }
}

fn prune_all(store: &Store, retention: &Retention) {
    while !store.prune(retention).unwrap().is_nothing() {}
}

/// Counts the rows of each family that retention prunes.
fn rows(store: &Store) -> BTreeMap<&'static str, u64> {
    let families = [
        Family::LedgerXdr,
        Family::Events,
        Family::EventsByContract,
        Family::EventsByTopic,
        Family::Index(events_by_address::FAMILY),
        Family::Transactions,
        Family::TxByHash,
        Family::TxByContract,
        Family::Entries,
    ];
    let count = |family: Family| {
        let mut rows = 0;
        let visit = |_: &[u8], _: &[u8]| {
            rows += 1;
            Ok(())
        };
        store.database.scan(family, visit).unwrap();
        (family.name(), rows)
    };
    families.into_iter().map(count).collect()
}

/// A pruned store has as many rows, family by family, as a store of only the kept ledgers.
#[test]
fn pruning_in_any_order_leaves_no_rows_behind() {
    const KEPT: u32 = 5;
    let both = keep(Some(KEPT), Some(KEPT));
    let orders: [&[Retention]; 5] = [
        &[both],
        &[keep(Some(KEPT), None), both],
        &[keep(None, Some(KEPT)), both],
        &[keep(Some(20), Some(12)), both],
        &[keep(Some(12), Some(20)), keep(Some(11), Some(11)), both],
    ];
    for options in [everything(), IndexOptions { raw_ledgers: true, ..IndexOptions::default() }] {
        let fresh = tempfile::tempdir().unwrap();
        let fresh = store(fresh.path(), FIRST + LEDGERS - KEPT, &options);
        assert!(rows(&fresh).values().all(|rows| *rows > 0), "{:?}", rows(&fresh));
        for order in orders {
            let directory = tempfile::tempdir().unwrap();
            let pruned = store(directory.path(), FIRST, &options);
            order.iter().for_each(|retention| prune_all(&pruned, retention));
            assert_eq!(rows(&pruned), rows(&fresh), "{order:?}");
            let (left, wanted) = (pruned.status().totals, fresh.status().totals);
            assert_eq!((left.events, left.transactions), (wanted.events, wanted.transactions));
            drop(pruned);
            let audit = audit(directory.path(), None, &|_| {}).unwrap();
            assert_eq!(audit.problems, []);
        }
    }
}

#[test]
fn concurrent_prunes_subtract_from_totals_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), FIRST, &everything());
    // A floor that rises step by step gives every thread something to remove each time.
    let threads = 4;
    let barrier = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for kept in (3..LEDGERS).rev() {
                    barrier.wait();
                    prune_all(&store, &keep(Some(kept), Some(kept)));
                }
            });
        }
    });
    let totals = store.status().totals;
    assert!(totals.events > 0 && totals.transactions > 0, "{totals:?}");
    drop(store);
    let audit = audit(directory.path(), None, &|_| {}).unwrap();
    assert_eq!(audit.problems, []);
}

/// A ledger that is stored while a round is under way is older than the floors of the round, which
/// has not recorded it as lost.
#[test]
fn a_round_removes_nothing_that_was_stored_after_it_began() {
    const OLD: usize = 12;
    let directory = tempfile::tempdir().unwrap();
    let spec = ConsumerSpec {
        name: "witness",
        families: &[],
        needs: Needs { raw_ledgers: true, events: true, transactions: true },
        start: StartPosition::FirstLedger,
    };
    let extensions = Extensions { consumers: vec![spec], ..Extensions::default() };
    let store = Store::open_with(directory.path(), Some(&local()), extensions).unwrap();
    let commit = |raw: &[u8]| {
        let view = decode(raw, local().id()).unwrap();
        let prepared = PreparedLedger::new(&view, &everything()).unwrap();
        store.commit(prepared, Durability::Synced).unwrap();
    };
    let step = || store.consume("witness", 100, |_, _| Ok::<_, StoreError>(())).unwrap();
    let retention = keep(Some(5), Some(5));
    CHAIN[OLD..].iter().for_each(|raw| commit(raw));
    step();
    prune_all(&store, &retention);
    for raw in &CHAIN[..OLD] {
        let round = store.begin_round(&retention).unwrap().unwrap();
        commit(raw);
        let stored = rows(&store);
        assert!(store.finish_round(round).unwrap().is_nothing());
        assert_eq!(rows(&store), stored);
        step();
        prune_all(&store, &retention);
        assert!(store.consumer("witness").unwrap().lost.is_empty());
    }
    let fresh = tempfile::tempdir().unwrap();
    let fresh = self::store(fresh.path(), FIRST + LEDGERS - 5, &everything());
    assert_eq!(rows(&store), rows(&fresh), "later rounds remove it");
}

/// A directory that has only floors gets the same sets as one in which they were kept from the start.
#[test]
fn floors_of_an_older_directory_become_sets() {
    const OLD: u32 = 12;
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), FIRST + OLD, &everything());
    prune_all(&store, &keep(Some(5), Some(9)));
    CHAIN[..OLD as usize].iter().for_each(|raw| commit(&store, raw, &everything()));
    store.flush().unwrap();
    let removed = store.status().removed;
    assert_eq!((removed.events.ledgers(), removed.transactions.ledgers()), (13, 9));
    let mut totals = store.status().totals.encode();
    for floor in [FIRST + LEDGERS - 5, FIRST + LEDGERS - 9] {
        totals.extend_from_slice(&floor.to_be_bytes());
    }
    let mut batch = store.database.batch();
    batch.put_raw(Family::Meta, TOTALS_ROW, &totals).unwrap();
    for row in [&b"removed_raw_ledgers"[..], b"removed_events", b"removed_transactions"] {
        batch.delete_raw(Family::Meta, row).unwrap();
    }
    store.database.write_synced(batch).unwrap();
    drop(store);
    assert_eq!(audit(directory.path(), None, &|_| {}).unwrap().problems, []);
    for _ in 0..2 {
        let store = open(directory.path());
        let found = store.status().removed;
        // Ledgers that never had a transaction may be among those without transactions.
        let mut more = found.transactions.clone();
        more.remove_all(&removed.transactions);
        for ledger in more.ranges().iter().flat_map(|range| range.first.0..=range.last.0) {
            let row = store.ledger(LedgerSeq(ledger)).unwrap().unwrap();
            assert_eq!(row.counts.stored_transactions, 0, "{ledger}");
        }
        let mut transactions = found.transactions.clone();
        transactions.remove_all(&more);
        assert_eq!((&found.events, &transactions), (&removed.events, &removed.transactions));
        assert_eq!(store.removed(Needs::RECORDS).unwrap(), found.of(Needs::RECORDS));
        drop(store);
        assert_eq!(audit(directory.path(), None, &|_| {}).unwrap().problems, []);
    }
}

/// What is removed of a single ledger may be the last write before a restart.
#[test]
fn a_store_opens_after_one_raw_ledger_was_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), FIRST, &everything());
    let raw_ledgers = Some(LEDGERS - 1);
    assert!(store.prune(&Retention { raw_ledgers, ..Retention::default() }).unwrap().raw_ledgers);
    store.flush().unwrap();
    drop(store);
    assert_eq!(audit(directory.path(), None, &|_| {}).unwrap().problems, []);
    assert!(open(directory.path()).raw_ledger(LedgerSeq(FIRST)).unwrap().is_none());
}

/// Readers that must not take what is left of a ledger for the whole of it read the sets from the
/// database: those in memory are changed after the write.
#[test]
fn removal_is_known_before_the_sets_in_memory_are_changed() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), FIRST, &everything());
    let before = store.status().removed;
    prune_all(&store, &keep(Some(5), Some(5)));
    *store.removed.write() = before;
    let last = LedgerSeq(FIRST + LEDGERS - 6);
    let gone = LedgerSet::from(LedgerRange { first: LedgerSeq(FIRST), last });
    for needs in [Needs::RAW_LEDGERS, Needs::EVENTS, Needs::TRANSACTIONS] {
        assert_eq!(store.removed(needs).unwrap(), gone);
    }
    assert_eq!(store.lost_events(EventId(0)).unwrap().unwrap().ledgers.last, last);
    assert!(!store.has_all_transactions(last).unwrap());
    assert_eq!(store.entry_reader(last).unwrap().complete(), None);
}

#[test]
fn the_first_kept_ledger_is_computed_without_overflow() {
    let first = |kept, latest| first_kept(kept, LedgerSeq(latest)).0;
    assert_eq!(first(None, 100), 0);
    assert_eq!(first(Some(0), 100), 101);
    assert_eq!(first(Some(1), 100), 100);
    assert_eq!(first(Some(101), 100), 0);
    assert_eq!(first(Some(u32::MAX), 100), 0);
    assert_eq!(first(Some(1), u32::MAX), u32::MAX);
    assert_eq!(first(Some(u32::MAX), u32::MAX), 1);
    assert_eq!(first(Some(0), u32::MAX), u32::MAX);
}
