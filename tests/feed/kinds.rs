//! Kinds of consumers: rows in shared families, cursors, and what other processes do with them.

use std::ops::ControlFlow;
use std::path::Path;

use orrery_ledger::domain::Direction::{self, NewestFirst, OldestFirst};
use orrery_ledger::domain::{LedgerRange, LedgerSet};
use orrery_ledger::verify::Policy;
use orrery_store::{
    ConsumerKind, Durability, Extensions, Fault, Index, Indexes, KindChanges, Needs, SharedFamily,
    Store, StoreError, audit_with, read_contents,
};
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{FIRST, WITNESS, add};

const NAMES: SharedFamily = SharedFamily { name: "reader_names", compressed: false };
const PAGES: SharedFamily = SharedFamily { name: "reader_pages", compressed: true };

const READERS: ConsumerKind = ConsumerKind {
    name: "readers",
    families: &[NAMES, PAGES],
    needs: Needs { raw_ledgers: false, events: true, transactions: false },
};

/// A family that no kind has.
const STRANGE: SharedFamily = SharedFamily { name: "strange", compressed: true };

fn extensions() -> Extensions {
    Extensions { consumers: vec![WITNESS], ..Extensions::default() }.with_kind(READERS)
}

fn open(directory: &Path) -> Store {
    Store::open_with(directory, Some(&local()), extensions()).unwrap()
}

fn change(store: &Store, change: impl FnOnce(&mut KindChanges<'_>)) -> Result<(), StoreError> {
    let mut changes = store.change_kind(&READERS);
    change(&mut changes);
    changes.write()
}

/// Creates a reader with a name and some pages.
fn create(store: &Store, id: u8) -> Result<(), StoreError> {
    change(store, |changes| {
        changes.put_cursor(id, store.last_place());
        changes.put(&NAMES.row([id]), format!("reader {id}")).unwrap();
        (0..4).for_each(|page| changes.put(&PAGES.row([id, page]), [page]).unwrap());
    })
}

/// Returns the numbers of a reader's pages, from one on.
fn pages(store: &Store, id: u8, from: u8, direction: Direction) -> Vec<u8> {
    let mut found = Vec::new();
    let visit = |rest: Vec<u8>, page: &[u8]| {
        assert_eq!(rest, page);
        found.push(page[0]);
        Ok::<_, StoreError>(ControlFlow::Continue(()))
    };
    store.shared_rows().scan(PAGES, direction, &[id], &[from], visit).unwrap();
    found
}

#[test]
fn consumers_of_a_kind_are_created_changed_and_deleted() {
    let directory = scratch();
    let store = open(directory.path());
    add(&store, FIRST..=9, Durability::Synced);
    (1..=3).for_each(|id| create(&store, id).unwrap());
    let status = store.consumer("readers/2").unwrap();
    assert_eq!((status.kind(), status.place, status.active), ("readers", 8, false));
    assert_eq!(store.shared_row(&NAMES.row([2])).unwrap().unwrap(), b"reader 2");
    assert_eq!(store.shared_row(&NAMES.row([4])).unwrap(), None);
    assert_eq!(pages(&store, 2, 0, OldestFirst), [0, 1, 2, 3]);
    assert_eq!(pages(&store, 2, 2, OldestFirst), [2, 3]);
    assert_eq!(pages(&store, 2, 2, NewestFirst), [2, 1, 0]);
    assert_eq!(pages(&store, 2, u8::MAX, NewestFirst), [3, 2, 1, 0]);
    let mut seen = 0;
    let one = |_: Vec<u8>, _: &[u8]| {
        seen += 1;
        Ok::<_, StoreError>(ControlFlow::Break(()))
    };
    store.shared_rows().scan(PAGES, OldestFirst, &(), &(), one).unwrap();
    assert_eq!(seen, 1);

    add(&store, 10..=12, Durability::Synced);
    let ledgers: LedgerSet = LedgerRange::new(4, 6).into();
    change(&store, |changes| {
        changes.put_cursor(1, 5);
        changes.put_seen(1, &ledgers, false);
        changes.put_cursor(2, 11);
    })
    .unwrap();
    let [first, second] = ["readers/1", "readers/2"].map(|name| store.consumer(name).unwrap());
    assert_eq!((first.place, first.lost, second.place), (8, ledgers.clone(), 11));
    change(&store, |changes| changes.put_seen(1, &ledgers, true)).unwrap();
    assert_eq!(store.consumer("readers/1").unwrap().lost, LedgerSet::default());

    let snapshot = store.shared_rows();
    change(&store, |changes| {
        changes.delete_consumer(2);
        changes.delete(&NAMES.row([2])).unwrap();
        changes.delete_range(PAGES, &[2], &[3]).unwrap();
    })
    .unwrap();
    assert_eq!(snapshot.get(&NAMES.row([2])).unwrap().as_deref(), Some(b"reader 2".as_slice()));
    drop(snapshot);
    let check = |store: Store| {
        assert_eq!((store.consumer("readers/2"), store.cursor("readers/2").unwrap()), (None, None));
        assert!(pages(&store, 2, 0, OldestFirst).is_empty());
        assert_eq!(pages(&store, 1, 3, OldestFirst), [3]);
        assert_eq!(pages(&store, 3, 0, NewestFirst), [0]);
        assert_eq!(store.consumer("readers/1").unwrap().place, 8);
    };
    check(store);
    check(open(directory.path()));
}

#[test]
fn a_failed_write_changes_nothing_in_memory() {
    let directory = scratch();
    let store = open(directory.path());
    add(&store, FIRST..=9, Durability::Synced);
    create(&store, 1).unwrap();
    add(&store, 10..=12, Durability::Synced);
    let before = store.consumers();
    for fault in [Fault::NotWritten, Fault::Written] {
        store.faults().plan(move |_| Some(fault));
        let failed = change(&store, |changes| {
            changes.put_cursor(1, 11);
            changes.put(&NAMES.row([1]), "renamed").unwrap();
            changes.put_cursor(2, 11);
        });
        assert!(failed.unwrap_err().to_string().contains("planned"));
        assert_eq!(store.consumers(), before);
        store.faults().clear();
        // This reads the rows of the consumers again.
        let is_written = fault == Fault::Written;
        let place = if is_written { 11 } else { 8 };
        assert_eq!(store.cursor("readers/1").unwrap(), Some(place));
        assert_eq!(store.cursor("readers/2").unwrap().is_some(), is_written);
        let name: &[u8] = if is_written { b"renamed" } else { b"reader 1" };
        assert_eq!(store.shared_row(&NAMES.row([1])).unwrap().unwrap(), name);
    }
}

#[test]
fn a_store_without_the_kind_keeps_its_rows() {
    let directory = scratch();
    let store = open(directory.path());
    add(&store, FIRST..=9, Durability::Synced);
    create(&store, 1).unwrap();
    drop(store);
    let store = Store::open(directory.path(), None).unwrap();
    let refused = [
        store.shared_row(&NAMES.row([1])).map(drop),
        store.shared_rows().get(&PAGES.row([1, 0])).map(drop),
        store.change_kind(&READERS).put(&NAMES.row([1]), "renamed"),
    ];
    for outcome in refused {
        let error = outcome.unwrap_err();
        assert!(matches!(error, StoreError::UnknownFamily(_)), "{error}");
    }
    add(&store, 10..=12, Durability::Synced);
    store.compact().unwrap();
    let sizes = store.sizes().unwrap();
    assert!(sizes["reader_names"] > 0 && sizes["reader_pages"] > 0, "{sizes:?}");
    drop(store);
    let store = open(directory.path());
    assert_eq!(store.shared_row(&NAMES.row([1])).unwrap().unwrap(), b"reader 1");
    assert_eq!(pages(&store, 1, 0, OldestFirst), [0, 1, 2, 3]);
    assert!(store.shared_rows().get(&STRANGE.row([])).is_err());
}

#[test]
fn families_that_exist_only_in_part_are_reported() {
    let directory = scratch();
    let audited = || audit_with(directory.path(), &extensions(), None, Policy::default(), &|_| {});
    drop(Store::open(directory.path(), Some(&local())).unwrap());
    assert_eq!(audited().unwrap().problems, [], "it was never opened with the kind");
    let store = open(directory.path());
    add(&store, FIRST..=9, Durability::Synced);
    create(&store, 1).unwrap();
    drop(store);
    assert_eq!(audited().unwrap().problems, []);
    assert_eq!(read_contents(directory.path()).unwrap().ranges.len(), 1);
    let raw = directory.path().join("raw");
    let options = orrery_store::rocksdb::Options::default();
    let names = orrery_store::rocksdb::DB::list_cf(&options, &raw).unwrap();
    orrery_store::rocksdb::DB::open_cf(&options, &raw, names).unwrap().drop_cf(PAGES.name).unwrap();
    let missing = "the database has no family 'reader_pages': the data directory is damaged";
    assert_eq!(audited().unwrap_err().to_string(), missing);
}

#[test]
fn names_of_families_that_are_in_use_are_refused() {
    let directory = scratch();
    let kind = |families| ConsumerKind { families, ..READERS };
    let events = kind(&[SharedFamily { name: "events", compressed: true }]);
    let index = Index::of_events(NAMES.name, 4, |_, _| ());
    let refused = [
        (Extensions::default().with_kind(events), "a kind of consumers", "events"),
        (extensions().with_kind(READERS), "a kind of consumers", NAMES.name),
        (
            Extensions { indexes: Indexes::default().with(index), ..extensions() },
            "an index",
            NAMES.name,
        ),
    ];
    for (extensions, registered, family) in refused {
        let error = Store::open_with(directory.path(), Some(&local()), extensions).unwrap_err();
        let sentence = format!(
            "{registered} is registered for the family '{family}', which is already in use"
        );
        assert_eq!(error.to_string(), sentence);
    }
}
