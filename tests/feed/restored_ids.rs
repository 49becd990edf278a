//! Clients of a store that is backed up and restored, or killed at any write, and that then stores ledgers
//! in another order, while retention removes what is old: no id stands for two events, and no client misses
//! an event that is stored. One client follows the durable events after its last id, as a stream does; one
//! drops the ids that it knows, as a receiver of webhooks does; one asks for pages, which have events that
//! are not durable yet, up to the moment of the kill.
//!
//! Small: 24 histories; full: 20,000.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use orrery_ledger::domain::{Direction, EventId, Page};
use orrery_store::{Durability, EventQuery, EventRecord, Retention, Store, TopicFilter, audit};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use orrery_testkit::crash::{Kill, copied};
use orrery_testkit::histories;
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{FIRST, add, open};

const LAST: u32 = FIRST + 24;

/// What tells one event of the chain from the others.
type Event = String;

/// A copy of a data directory, with the progress of the webhooks that is stored in it.
struct Backup {
    directory: TempDir,
    delivered_to: EventId,
}

struct History {
    rng: ChaCha8Rng,
    directory: TempDir,
    store: Option<Arc<Store>>,
    backup: Option<Backup>,
    /// Every event that was given out, by id.
    given: BTreeMap<EventId, Event>,
    /// The last id of the stream, and its events.
    streamed_to: EventId,
    streamed: BTreeSet<Event>,
    /// Ids of events that were not stored any more at some time: retention has removed them, or a crash.
    removed: BTreeSet<EventId>,
    /// Stored progress of the webhooks, and what their receiver has taken.
    delivered_to: EventId,
    received: BTreeMap<EventId, Event>,
    /// The last id of the pages, and their events.
    paged_to: EventId,
    paged: BTreeSet<Event>,
}

impl History {
    fn new(seed: u64) -> Self {
        let directory = scratch();
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            store: Some(Arc::new(open(directory.path(), &[]))),
            directory,
            backup: None,
            given: BTreeMap::new(),
            streamed_to: EventId(0),
            streamed: BTreeSet::new(),
            removed: BTreeSet::new(),
            delivered_to: EventId(0),
            received: BTreeMap::new(),
            paged_to: EventId(0),
            paged: BTreeSet::new(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..5 => self.add(),
            5..7 => self.stream(),
            7..9 => self.deliver(),
            9..11 => self.read_pages(),
            11 => self.back_up(),
            12 => self.restore(),
            13 => self.kill(),
            14..17 => self.kill_at_a_write(),
            17 => self.prune(),
            18 => self.store().flush().unwrap(),
            _ => self.reopen(),
        }
    }

    /// Stores some missing ledgers.
    fn add(&mut self) {
        let is_missing = |ledger: &u32| self.store().range_of((*ledger).into()).is_none();
        let missing: Vec<u32> = (FIRST..=LAST).filter(is_missing).collect();
        let Some(&first) = missing.choose(&mut self.rng) else { return };
        let count = self.rng.random_range(1..5);
        let durability = *[Durability::Synced, Durability::Deferred].choose(&mut self.rng).unwrap();
        for ledger in missing.into_iter().filter(|ledger| *ledger >= first).take(count) {
            add(self.store(), ledger..=ledger, durability);
        }
    }

    /// Returns the durable events after an id, as a stream and the webhooks read them.
    fn after(&mut self, id: EventId) -> Vec<(EventId, Event)> {
        let durable = self.store().last_durable_event();
        let mut events = self.readable_after(id);
        events.retain(|(id, _)| *id <= durable);
        events
    }

    /// Returns all events after an id, as a page has them.
    fn readable_after(&mut self, id: EventId) -> Vec<(EventId, Event)> {
        let events = page_after(self.store(), id);
        self.give(&events);
        events
    }

    /// Records that events were given out with these ids.
    fn give(&mut self, events: &[(EventId, Event)]) {
        for (id, event) in events {
            let before = self.given.entry(*id).or_insert_with(|| event.clone());
            assert_eq!(before, event, "id {id} was given to another event");
        }
    }

    /// Returns the ids of all events.
    fn ids(&self) -> BTreeSet<EventId> {
        page_after(self.store(), EventId(0)).into_iter().map(|(id, _)| id).collect()
    }

    /// Removes some of what is old.
    fn prune(&mut self) {
        let before = self.ids();
        let mut kept = || self.rng.random_bool(0.6).then(|| self.rng.random_range(0..20));
        let (raw_ledgers, events, transactions) = (kept(), kept(), kept());
        let retention = Retention { raw_ledgers, events, transactions, wait_for_consumers: 0 };
        while !self.store().prune(&retention).unwrap().is_nothing() {}
        self.removed.extend(before.difference(&self.ids()));
    }

    fn stream(&mut self) {
        let events = self.after(self.streamed_to);
        for (id, event) in events {
            self.streamed_to = id;
            self.streamed.insert(event);
        }
    }

    fn deliver(&mut self) {
        let events = self.after(self.delivered_to);
        for (id, event) in events {
            self.delivered_to = id;
            self.received.entry(id).or_insert(event);
        }
    }

    fn read_pages(&mut self) {
        let events = self.readable_after(self.paged_to);
        for (id, event) in events {
            self.paged_to = id;
            self.paged.insert(event);
        }
    }

    /// Goes on with the files as they are now, which is what a killed process leaves.
    fn kill(&mut self) {
        let left = copied(self.directory.path());
        self.go_on_with(left);
    }

    fn go_on_with(&mut self, files: TempDir) {
        self.store = None;
        self.directory = files;
        self.store = Some(Arc::new(open(self.directory.path(), &[])));
    }

    /// Is killed in the middle of its work. A client reads a page just before.
    fn kill_at_a_write(&mut self) {
        let at = (self.rng.random_range(0..6), self.rng.random());
        let read = Arc::new(Mutex::new(Vec::new()));
        let (reader, paged_to) = (Arc::clone(&read), self.paged_to);
        let store = self.store.clone().unwrap();
        let weak = Arc::downgrade(&store);
        let last_moment = move || {
            let Some(store) = weak.upgrade() else { return };
            *reader.lock().unwrap() = page_after(&store, paged_to);
        };
        let before = self.ids();
        let kill = Kill::plan(&store, self.directory.path(), at, last_moment);
        match self.rng.random_range(0..10) {
            0..6 => (0..3).for_each(|_| self.add()),
            6 | 7 => store.flush().unwrap(),
            _ => self.prune(),
        }
        let Some(files) = kill.files(&store) else { return };
        drop(store);
        let events = std::mem::take(&mut *read.lock().unwrap());
        self.give(&events);
        for (id, event) in events {
            self.paged_to = id;
            self.paged.insert(event);
        }
        self.go_on_with(files);
        self.removed.extend(before.difference(&self.ids()));
    }

    fn back_up(&mut self) {
        let checkpoint = self.store().checkpoint().unwrap();
        let directory = copied(checkpoint.directory());
        self.backup = Some(Backup { directory, delivered_to: self.delivered_to });
    }

    /// Replaces the store by the backup, which has no record of what was acknowledged after it.
    fn restore(&mut self) {
        let Some(Backup { directory, delivered_to }) = self.backup.take() else { return };
        std::fs::remove_file(directory.path().join("acknowledged")).unwrap();
        self.store = None;
        self.directory = directory;
        self.delivered_to = delivered_to;
        self.store = Some(Arc::new(open(self.directory.path(), &[])));
    }

    fn reopen(&mut self) {
        self.store = None;
        if self.rng.random_bool(0.2) {
            // As the advice after a loss of acknowledged ledgers says.
            let _ = std::fs::remove_file(self.directory.path().join("acknowledged"));
        }
        self.store = Some(Arc::new(open(self.directory.path(), &[])));
    }

    fn end(mut self) {
        self.store().flush().unwrap();
        self.stream();
        self.deliver();
        self.read_pages();
        let mut stored = self.after(EventId(0));
        // A client is told of those that are gone, and a backup may bring them back.
        stored.retain(|(id, _)| !self.removed.contains(id));
        let received: BTreeSet<&Event> = self.received.values().collect();
        for (id, event) in &stored {
            assert!(self.streamed.contains(event), "the stream misses {event}, id {id}");
            assert!(received.contains(event), "the receiver misses {event}, id {id}");
            assert!(self.paged.contains(event), "the pages miss {event}, id {id}");
        }
        drop(self.store.take());
        let audited = audit(self.directory.path(), None, &|_| {}).unwrap();
        assert!(audited.problems.is_empty(), "{:?}", audited.problems);
    }
}

/// Returns all events of a store after an id, in ascending order.
fn page_after(store: &Store, id: EventId) -> Vec<(EventId, Event)> {
    let page =
        Page { cursor: Some(id), direction: Direction::OldestFirst, ..Page::first(usize::MAX) };
    let query =
        EventQuery { ledgers: None, contracts: Vec::new(), topics: TopicFilter::default(), page };
    let mut events = Vec::new();
    let visit = |event: &EventRecord<'_>| {
        let key = (event.ledger, event.application_order, event.placement);
        events.push((event.id, format!("{key:?}")));
    };
    store.events(&query, visit).unwrap();
    events
}

#[test]
fn no_id_is_given_twice_and_no_event_is_missed() {
    histories::run(24, 20_000, |seed| {
        let mut history = History::new(seed);
        (0..40).for_each(|_| history.step());
        history.end();
    });
}
