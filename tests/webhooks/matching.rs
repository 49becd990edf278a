//! The consumer against a model: random subscriptions with every pattern of filter, created and
//! deleted at random moments, over random ledgers in any order. Small: 6 histories; full: 400, with
//! 100,000 events and more.

use std::collections::BTreeSet;

use orrery::domain::{ContractId, Direction, EventId, LedgerRange, Page};
use orrery::store::{Durability, EventQuery, IndexOptions, Retention, Store, TopicFilter};
use orrery::webhooks::filter::Filter;
use orrery::webhooks::manage::NewSubscriptions;
use orrery::webhooks::rows::State;
use rand::Rng;
use rand::seq::IndexedRandom;
use stellar_xdr::{Hash, Limits, ScAddress, ScVal, WriteXdr};

use super::world::{Chain, World, options, owner, symbol, wanted};
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;

const LEDGERS: u32 = 30;

/// A subscription in the model.
struct Known {
    id: u32,
    filter: Filter,
    include_backfill: bool,
    /// Place in the feed, and newest ledger, when the subscription was created.
    after: (u64, u32),
    expected: BTreeSet<u64>,
}

/// An event in the model.
pub struct Event {
    pub id: u64,
    pub contract: Option<[u8; 32]>,
    pub topics: Vec<Vec<u8>>,
}

/// Returns whether an event matches a filter. Written from the API's documentation, independently
/// of the code.
pub fn matches(filter: &Filter, event: &Event) -> bool {
    let topics = (0..4).all(|at| match &filter.topics[at] {
        None => true,
        Some(wanted) => event.topics.get(at) == Some(wanted),
    });
    let contract = filter.contract.is_none() || filter.contract == event.contract;
    let address = filter.address.as_ref().is_none_or(|it| event.topics.contains(it));
    topics && contract && address
}

/// Returns an address as the XDR of a topic, and as a strkey.
pub fn address(byte: u8) -> (Vec<u8>, String) {
    let address = ScAddress::Contract(stellar_xdr::ContractId(Hash([byte; 32])));
    (ScVal::Address(address.clone()).to_xdr(Limits::none()).unwrap(), address.to_string())
}

fn topics() -> Vec<Vec<u8>> {
    let symbols = (0..6).map(|number| symbol(&format!("topic{number}")));
    symbols.chain((0..4).map(|byte| address(byte).0)).collect()
}

/// Returns a query for all events of some ledgers, of these contracts; of all contracts when there
/// are none.
fn events_of(ledgers: LedgerRange, contracts: Vec<ContractId>) -> EventQuery {
    EventQuery {
        ledgers: Some(ledgers),
        contracts,
        topics: TopicFilter::default(),
        page: Page {
            direction: Direction::OldestFirst,
            cursor: None::<EventId>,
            offset: 0,
            limit: usize::MAX,
        },
    }
}

/// Returns the stored events of a ledger.
pub fn stored_events(store: &Store, ledger: u32) -> Vec<Event> {
    let query = events_of(LedgerRange::new(ledger, ledger), Vec::new());
    let mut events = Vec::new();
    let visit = |event: &orrery::store::EventRecord<'_>| {
        events.push(Event {
            id: event.id.0,
            contract: event.contract.copied(),
            topics: event.topics.iter().map(|topic| topic.to_vec()).collect(),
        });
    };
    store.events(&query, visit).unwrap();
    events
}

struct History {
    world: World,
    chain: Chain,
    known: Vec<Known>,
    stored: BTreeSet<u32>,
    pattern: usize,
}

impl History {
    fn store(&mut self, ledger: u32) {
        self.chain.commit(&self.world.store, ledger);
        self.stored.insert(ledger);
        let (place, events) =
            (self.world.store.last_place(), stored_events(&self.world.store, ledger));
        for known in &mut self.known {
            let is_new = known.include_backfill || ledger > known.after.1;
            if place > known.after.0 && is_new {
                let wanted = events.iter().filter(|event| matches(&known.filter, event));
                known.expected.extend(wanted.map(|event| event.id));
            }
        }
    }

    fn subscribe(&mut self) {
        let Self { world, chain, .. } = self;
        let rng = &mut chain.rng;
        // Takes all patterns of filter parts in turn.
        let pattern = self.pattern % 128;
        self.pattern += 1;
        let gives = |bit: usize| pattern >> bit & 1 == 1;
        let mut topic =
            |bit| gives(bit).then(|| chain.universe.topics.choose(rng).unwrap().clone());
        let topics = [topic(0), topic(1), topic(2), topic(3)];
        let by_address = gives(4).then(|| address(rng.random_range(0..4)));
        // A filter needs a contract or an address.
        let contract = (gives(5) || by_address.is_none())
            .then(|| *chain.universe.contracts.choose(rng).unwrap());
        let filter = Filter {
            contract: contract.map(|contract| contract.0),
            topics: topics.clone(),
            address: by_address.as_ref().map(|(xdr, _)| xdr.clone()),
        };
        let any = chain.universe.contracts[0];
        let number = self.known.len();
        let made = world.webhooks.create(
            &owner("ana"),
            NewSubscriptions {
                contracts: contract.into_iter().collect(),
                filter: filter.clone(),
                address: by_address.map(|(_, text)| text),
                include_backfill: gives(6),
                ..wanted(&format!("https://example.com/{number}"), any)
            },
        );
        let latest = world.store.status().latest().map_or(0, |latest| latest.0);
        self.known.push(Known {
            id: made.unwrap().ids[0],
            filter,
            include_backfill: gives(6),
            after: (world.store.last_place(), latest),
            expected: BTreeSet::new(),
        });
    }

    fn step(&mut self) {
        match self.chain.rng.random_range(0..10) {
            0..4 => {
                let next = self.stored.last().map_or(3, |last| last + 1);
                let skipped = u32::from(self.chain.rng.random_bool(0.1));
                self.store(next + skipped);
            }
            4 => {
                let last = self.stored.last().copied().unwrap_or(1);
                let missing: Vec<u32> = (1..last).filter(|it| !self.stored.contains(it)).collect();
                if let Some(ledger) = missing.choose(&mut self.chain.rng) {
                    self.store(*ledger);
                }
            }
            5..8 => (0..8).for_each(|_| self.subscribe()),
            8 => self.world.feed(),
            _ => {
                let at = self.chain.rng.random_range(0..self.known.len().max(1));
                if at < self.known.len() {
                    let gone = self.known.remove(at);
                    self.world.webhooks.delete(&owner("ana"), gone.id).unwrap();
                    let again = self.world.webhooks.delete(&owner("ana"), gone.id);
                    assert!(again.is_err(), "it is gone");
                }
            }
        }
    }

    fn check(&self) -> usize {
        self.world.feed();
        for known in &self.known {
            let made = self.world.deliveries("ana", known.id);
            assert!(made.iter().all(|(_, it)| it.state == State::Pending));
            let events: BTreeSet<u64> =
                made.iter().map(|(number, _)| number.event().unwrap().0).collect();
            assert_eq!(events.len(), made.len());
            assert_eq!(events, known.expected, "{:?} {:?}", known.filter, known.after);
        }
        self.known.iter().map(|known| known.expected.len()).sum()
    }
}

#[test]
fn filters_agree_with_the_model() {
    let (mut events, mut deliveries) = (0, 0);
    for seed in 0..size::choose(6, 400) {
        let directory = scratch();
        let mut history = History {
            world: World::open(directory.path()),
            chain: Chain::new(seed, topics()),
            known: Vec::new(),
            stored: BTreeSet::new(),
            pattern: seed as usize * 17,
        };
        while history.stored.last().is_none_or(|last| *last < LEDGERS) {
            history.step();
        }
        deliveries += history.check();
        events += history.world.store.status().totals.events;
    }
    assert!(deliveries > 100, "{deliveries}");
    println!("{events} events, {deliveries} deliveries");
}

/// Ledgers that retention removes before the consumer reads them, and ledgers restricted to other
/// contracts.
#[test]
fn ledgers_missing_from_a_subscription_are_reported() {
    let directory = scratch();
    let world = World::open(directory.path());
    let mut chain = Chain::new(5, topics());
    let [first, second] = [chain.universe.contracts[0], chain.universe.contracts[1]];
    let create = |number: u32, wanted_of: NewSubscriptions| {
        let endpoint = format!("https://example.com/{number}").parse().unwrap();
        world
            .webhooks
            .create(&owner("ana"), NewSubscriptions { endpoint, ..wanted_of })
            .unwrap()
            .ids[0]
    };
    let of = |contract| wanted("https://example.com/", contract);
    let missing = |id: u32| -> Vec<(u32, u32)> {
        let subscription = world.registry.get(id).unwrap();
        let missing = world.webhooks.missing(&subscription);
        missing.ranges().iter().map(|range| (range.first.0, range.last.0)).collect()
    };
    let mut store = |ledgers: std::ops::RangeInclusive<u32>, contracts: Option<&[ContractId]>| {
        chain.grow(*ledgers.end());
        let contracts = contracts.map(|some| some.iter().copied().collect());
        let options = IndexOptions { contracts, ..options() };
        for ledger in ledgers {
            let ledger = chain.ledgers[ledger as usize - 1].prepare(&options);
            world.store.commit(ledger, Durability::Synced).unwrap();
        }
    };
    store(20..=22, None);
    let live = create(1, of(first));
    let all = create(2, NewSubscriptions { include_backfill: true, ..of(first) });
    store(23..=25, None);
    world.feed();
    store(26..=40, None);
    store(10..=12, None);
    let keep = Retention { events: Some(5), wait_for_consumers: 0, ..Retention::default() };
    while !world.store.prune(&keep).unwrap().is_nothing() {}
    let late = create(3, of(first));
    for _ in 0..2 {
        assert_eq!(missing(live), [(26, 35)]);
        assert_eq!(missing(all), [(10, 12), (26, 35)]);
        assert_eq!(missing(late), [], "it was made later");
        world.feed();
    }
    let ledgers: BTreeSet<u32> =
        world.deliveries("ana", live).iter().map(|(_, delivery)| delivery.ledger).collect();
    assert!(ledgers.iter().all(|ledger| (23..=25).contains(ledger) || *ledger > 35), "{ledgers:?}");
    assert!(ledgers.iter().any(|ledger| *ledger > 35), "{ledgers:?}");

    let other = create(4, of(second));
    let by_address = create(
        5,
        NewSubscriptions {
            contracts: Vec::new(),
            filter: Filter { address: Some(address(1).0), ..Filter::default() },
            address: Some(address(1).1),
            ..of(first)
        },
    );
    store(41..=43, Some(&[second]));
    store(44..=45, Some(&[second, first]));
    store(46..=47, None);
    store(48..=48, Some(&[second]));
    store(5..=6, Some(&[second]));
    world.feed();
    assert_eq!(missing(live), [(26, 35), (41, 43), (48, 48)]);
    assert_eq!(missing(all), [(5, 6), (10, 12), (26, 35), (41, 43), (48, 48)]);
    assert_eq!(missing(late), [(41, 43), (48, 48)]);
    assert_eq!(missing(other), []);
    assert_eq!(missing(by_address), [(41, 45), (48, 48)], "of other contracts nothing is known");
    // A replay lists what is not stored or was removed, and not the older ledgers stored after that.
    let range = LedgerRange::new(5, 48);
    let replayed = world.webhooks.replay_ledgers(&owner("ana"), all, range, &|| false).unwrap();
    assert_eq!((replayed.next, replayed.missing.ranges()), (None, &[LedgerRange::new(7, 35)][..]));
    drop(world);
    // The missing ledgers are stored.
    let world = World::open(directory.path());
    let live = world.registry.get(live).unwrap();
    assert_eq!(world.webhooks.missing(&live).ledgers(), 10 + 3 + 1);
}

/// A step that is too large is written in parts, each with the position of the next.
#[test]
fn a_ledger_with_very_many_matches_is_processed_in_parts() {
    let directory = scratch();
    let world = World::open(directory.path());
    let mut chain = Chain::new(1, topics());
    let contract = chain.universe.contracts[0];
    chain.commit(&world.store, 1);
    let all: Vec<u32> = (0..400)
        .map(|number| world.subscribe("ana", &format!("https://example.com/{number}"), contract))
        .collect();
    let previous = chain.ledgers[0].hash;
    let dense = chain.universe.dense_ledger(&mut chain.rng, 2, previous);
    world.store.commit(dense.prepare(&options()), Durability::Synced).unwrap();
    world.feed();
    let mut of_contract = 0;
    let all_of_two = events_of(LedgerRange::new(2, 2), vec![contract]);
    world.store.events(&all_of_two, |_| of_contract += 1).unwrap();
    assert!(of_contract > 100, "{of_contract}");
    for id in all {
        assert_eq!(world.deliveries("ana", id).len(), of_contract);
    }
}
