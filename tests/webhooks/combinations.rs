//! Every combination of the parts of a filter and of how an event matches them, each constructed on
//! purpose: which of four topics are set and whether they match, whether a contract and an address
//! are set and match, whether older ledgers are wanted, and whether the event's ledger is older.
//! Each event is compared with what its combination implies, and with every filter by the model.
//!
//! Small: each combination once; full: a hundred times, with 100,000 events and as many subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use orrery::decode::{EventType, Placement};
use orrery::domain::{CloseTime, ContractId};
use orrery::settings;
use orrery::store::Durability;
use orrery::webhooks::filter::Filter;
use orrery::webhooks::manage::NewSubscriptions;
use orrery::webhooks::rows::State;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use stellar_xdr::{Limits, TransactionMeta, TransactionMetaV4, WriteXdr};

use super::matching::{Event, address, matches, stored_events};
use super::world::{World, options, owner, symbol, wanted};
use orrery_testkit::model;
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;

/// Number of subsets of the four topics.
const PATTERNS: u8 = 16;
/// Number of combinations that are subscribed to before the next ledgers are stored.
const AT_ONCE: usize = 32;
/// First live ledger; those before it are backfilled.
const FIRST: u32 = 1000;

/// A contract or address in a filter, and whether the event matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    NotGiven,
    Matches,
    Differs,
}

/// A combination of a filter and an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    /// Bit mask of the topics that the filter sets; the first topic is the lowest bit.
    given: u8,
    topics_match: bool,
    contract: Part,
    address: Part,
    include_backfill: bool,
    is_older: bool,
}

/// How the topics of an event differ from those of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Manner {
    /// The topic at this position differs, and all others match.
    At(usize),
    /// The event has too few topics for the filter's last one.
    TooFew,
    /// The topic wanted at this position is at another position.
    Elsewhere(usize),
}

impl Cell {
    fn all() -> Vec<Self> {
        use Part::{Differs, Matches, NotGiven};
        let parts = [NotGiven, Matches, Differs];
        let mut all = Vec::new();
        for given in 0..PATTERNS {
            for topics_match in [true, false] {
                for (contract, address) in parts.iter().flat_map(|it| parts.map(|of| (*it, of))) {
                    // Without topics none can differ, and a filter needs a contract or an address.
                    let is_one =
                        (given != 0 || topics_match) && (contract, address) != (NotGiven, NotGiven);
                    for (include_backfill, is_older) in
                        [(false, false), (false, true), (true, false), (true, true)]
                    {
                        all.extend(is_one.then_some(Self {
                            given,
                            topics_match,
                            contract,
                            address,
                            include_backfill,
                            is_older,
                        }));
                    }
                }
            }
        }
        all
    }

    /// Returns the combination of a subscription and an event of `ledger`.
    fn of(known: &Known, event: &Event, ledger: u32) -> Self {
        let Filter { contract, topics, address } = &known.filter;
        let part = |is_given: bool, does_match: bool| match (is_given, does_match) {
            (false, _) => Part::NotGiven,
            (true, true) => Part::Matches,
            (true, false) => Part::Differs,
        };
        let is_given = |at: &usize| topics[*at].is_some();
        Self {
            given: (0..4).filter(is_given).map(|at| 1 << at).sum(),
            topics_match: (0..4)
                .filter(is_given)
                .all(|at| event.topics.get(at) == topics[at].as_ref()),
            contract: part(contract.is_some(), *contract == event.contract),
            address: part(
                address.is_some(),
                event.topics.iter().any(|topic| Some(topic) == address.as_ref()),
            ),
            include_backfill: known.include_backfill,
            is_older: ledger <= known.after_ledger,
        }
    }

    fn is_delivered(&self) -> bool {
        self.topics_match
            && self.contract != Part::Differs
            && self.address != Part::Differs
            && (self.include_backfill || !self.is_older)
    }

    fn positions(&self) -> Vec<usize> {
        (0..4).filter(|at| self.given >> at & 1 == 1).collect()
    }

    /// Returns the ways in which topics can differ in this combination.
    fn manners(&self) -> Vec<Manner> {
        let positions = self.positions();
        let last = *positions.last().unwrap();
        let mut manners: Vec<Manner> = positions.iter().copied().map(Manner::At).collect();
        manners.extend(positions.iter().copied().map(Manner::Elsewhere));
        // A matching address needs at least one topic.
        manners.extend((last > 0 || self.address != Part::Matches).then_some(Manner::TooFew));
        manners
    }
}

/// A subscription and the deliveries expected for it.
struct Known {
    id: u32,
    filter: Filter,
    include_backfill: bool,
    after_ledger: u32,
    cell: Cell,
    manner: Option<Manner>,
    expected: BTreeSet<u64>,
}

/// One store with all combinations.
struct History {
    world: World,
    rng: ChaCha8Rng,
    known: Vec<Known>,
    hashes: Vec<[u8; 32]>,
    next: u32,
    older: u32,
    /// How often each combination was constructed and verified.
    met: BTreeMap<Cell, usize>,
    /// Ways in which topics differed, by subset of topics.
    differed: BTreeSet<(u8, Manner)>,
    turns: BTreeMap<(u8, Part), usize>,
    events: usize,
    deliveries: usize,
}

impl History {
    fn new(world: World, seed: u64, ledgers: u32) -> Self {
        let mut hashes = vec![[0; 32]];
        for sequence in 1..=FIRST + ledgers {
            let previous = hashes[sequence as usize - 1];
            hashes.push(Sha256::digest([&previous[..], &sequence.to_be_bytes()].concat()).into());
        }
        Self {
            world,
            rng: ChaCha8Rng::seed_from_u64(seed),
            known: Vec::new(),
            hashes,
            next: FIRST,
            older: 1,
            met: BTreeMap::new(),
            differed: BTreeSet::new(),
            turns: BTreeMap::new(),
            events: 0,
            deliveries: 0,
        }
    }

    /// Picks a topic out of few, so that filters also match events made for other filters.
    fn topic(&mut self) -> Vec<u8> {
        match self.rng.random_range(0..10) {
            0 => address(self.rng.random_range(0..6)).0,
            _ => symbol(&format!("topic{}", self.rng.random_range(0..12))),
        }
    }

    fn topic_but(&mut self, unwanted: &[&Vec<u8>]) -> Vec<u8> {
        loop {
            let topic = self.topic();
            if !unwanted.contains(&&topic) {
                return topic;
            }
        }
    }

    fn contract(&mut self) -> ContractId {
        // For each first byte there are two contracts, which differ in the last byte.
        let mut id = [self.rng.random_range(1..5); 32];
        id[31] = self.rng.random_range(0..2);
        ContractId(id)
    }

    fn subscribe(&mut self, cell: Cell) {
        let by_address =
            (cell.address != Part::NotGiven).then(|| address(self.rng.random_range(0..6)));
        let own_address = by_address.as_ref().map(|(xdr, _)| xdr);
        let manner = (!cell.topics_match).then(|| {
            let manners = cell.manners();
            let turn = self.turns.entry((cell.given, cell.address)).or_default();
            *turn += 1;
            manners[*turn % manners.len()]
        });
        let mut topics: [Option<Vec<u8>>; 4] = Default::default();
        for at in cell.positions() {
            // An address that must not match must not be one of the filter's topics while these
            // match.
            let unwanted: Vec<&Vec<u8>> = own_address
                .into_iter()
                .filter(|_| cell.address == Part::Differs || manner.is_some())
                .collect();
            topics[at] = Some(self.topic_but(&unwanted));
        }
        let contract = (cell.contract != Part::NotGiven).then(|| self.contract());
        let filter = Filter {
            contract: contract.map(|contract| contract.0),
            topics,
            address: own_address.cloned(),
        };
        let number = self.known.len();
        let made = self.world.webhooks.create(
            &owner("ana"),
            NewSubscriptions {
                contracts: contract.into_iter().collect(),
                filter: filter.clone(),
                address: by_address.map(|(_, text)| text),
                include_backfill: cell.include_backfill,
                ..wanted(&format!("https://example.com/{number}"), ContractId([0; 32]))
            },
        );
        self.known.push(Known {
            id: made.unwrap().ids[0],
            filter,
            include_backfill: cell.include_backfill,
            after_ledger: self.world.store.status().latest().map_or(0, |latest| latest.0),
            cell,
            manner,
            expected: BTreeSet::new(),
        });
    }

    /// Creates an event that matches a subscription's filter as its combination says.
    fn event_for(&mut self, known: usize) -> model::Event {
        let Known { filter, cell, manner, .. } = &self.known[known];
        let (filter, cell, manner) = (filter.clone(), *cell, *manner);
        let own_address = filter.address.as_ref();
        let positions = cell.positions();
        let length = match manner {
            Some(Manner::TooFew) => {
                let last = *positions.last().unwrap();
                let least = usize::from(cell.address == Part::Matches);
                self.rng.random_range(least..=last)
            }
            _ => {
                let least = positions.last().map_or(0, |last| last + 1);
                // One more topic than a filter can set.
                self.rng.random_range(least.max(usize::from(cell.address == Part::Matches))..=5)
            }
        };
        let mut topics = Vec::new();
        for at in 0..length {
            let wanted = filter.topics.get(at).and_then(Option::as_ref);
            let is_other =
                matches!(manner, Some(Manner::At(it) | Manner::Elsewhere(it)) if it == at);
            topics.push(match wanted {
                Some(wanted) if !is_other => wanted.clone(),
                _ => {
                    let unwanted: Vec<_> = wanted.into_iter().chain(own_address).collect();
                    self.topic_but(&unwanted)
                }
            });
        }
        if let Some(Manner::Elsewhere(at)) = manner {
            let wanted = filter.topics[at].clone().unwrap();
            let free: Vec<_> = (0..topics.len()).filter(|it| !positions.contains(it)).collect();
            match free.choose(&mut self.rng) {
                Some(free) => topics[*free] = wanted,
                None => topics.push(wanted),
            }
        }
        let has_address = topics.iter().any(|topic| Some(topic) == own_address);
        if cell.address == Part::Matches && !has_address {
            let own_address = own_address.cloned().unwrap();
            let is_free = |at: &usize| {
                !positions.contains(at) && Some(&topics[*at]) != self.moved(&filter, manner)
            };
            let free: Vec<_> = (0..topics.len()).filter(is_free).collect();
            let differing = match manner {
                Some(Manner::At(at)) => Some(at),
                Some(Manner::TooFew) if !topics.is_empty() => Some(topics.len() - 1),
                _ => None,
            };
            match (free.choose(&mut self.rng), differing) {
                (Some(free), _) => topics[*free] = own_address,
                // Replaces the topic that differs, or the last one when there are too few.
                (None, Some(at)) => topics[at] = own_address,
                (None, None) => topics.push(own_address),
            }
        }
        let contract = match (cell.contract, filter.contract) {
            (Part::Matches, Some(contract)) => Some(contract),
            (Part::Differs, Some(contract)) if self.rng.random_bool(0.5) => {
                let mut twin = contract;
                twin[31] ^= 1;
                Some(twin)
            }
            (Part::Differs, Some(_)) => None,
            _ => self.rng.random_bool(0.8).then(|| self.contract().0),
        };
        model::Event {
            transaction: 0,
            placement: Placement::Operation { operation: 0, event_index: 0 },
            contract,
            event_type: EventType::Contract,
            topics,
            data: symbol("data"),
        }
    }

    /// Returns the topic that was moved to another position, if any.
    fn moved<'f>(&self, filter: &'f Filter, manner: Option<Manner>) -> Option<&'f Vec<u8>> {
        match manner {
            Some(Manner::Elsewhere(at)) => filter.topics[at].as_ref(),
            _ => None,
        }
    }

    /// Stores a ledger with one event for each of these subscriptions, and checks that each has the
    /// intended combination.
    fn store(&mut self, sequence: u32, targets: &[usize]) {
        let mut events: Vec<model::Event> =
            targets.iter().map(|known| self.event_for(*known)).collect();
        for (number, event) in (0..).zip(&mut events) {
            event.placement = Placement::Operation { operation: number / 3, event_index: number };
        }
        let contracts = events.iter().filter_map(|event| event.contract.map(ContractId));
        let contracts: BTreeSet<_> = contracts.collect();
        let meta = TransactionMeta::V4(TransactionMetaV4::default());
        let transaction = model::Transaction {
            hash: self.rng.random(),
            inner_hash: None,
            smart_contract: true,
            successful: true,
            account: [1; 32],
            contracts: contracts.into_iter().collect(),
            parts: [vec![1], vec![2], meta.to_xdr(Limits::none()).unwrap()],
        };
        let ledger = model::Ledger {
            sequence,
            hash: self.hashes[sequence as usize],
            previous_hash: self.hashes[sequence as usize - 1],
            close_time: CloseTime::Seconds(1_700_000_000 + u64::from(sequence)),
            raw: Vec::new(),
            transactions: vec![transaction],
            events,
        };
        self.world.store.commit(ledger.prepare(&options()), Durability::Synced).unwrap();
        let stored = stored_events(&self.world.store, sequence);
        assert_eq!(stored.len(), targets.len());
        for ((event, made), known) in stored.iter().zip(&ledger.events).zip(targets) {
            assert!(event.contract == made.contract && event.topics == made.topics);
            let known = &self.known[*known];
            assert_eq!(
                Cell::of(known, event, sequence),
                known.cell,
                "{:?} {:?}",
                known.filter,
                known.manner
            );
            assert_eq!(
                known.cell.is_delivered(),
                is_wanted(known, event, sequence),
                "the model: {:?}",
                known.cell
            );
            *self.met.entry(known.cell).or_default() += 1;
            self.differed.extend(known.manner.map(|manner| (known.cell.given, manner)));
        }
        self.events += stored.len();
        for known in &mut self.known {
            let wanted = stored.iter().filter(|event| is_wanted(known, event, sequence));
            let ids: Vec<u64> = wanted.map(|event| event.id).collect();
            known.expected.extend(ids);
        }
    }

    fn run(&mut self, cells: &mut [Cell]) {
        // A newest ledger exists before the first subscription.
        self.store(self.next, &[]);
        cells.shuffle(&mut self.rng);
        for cells in cells.chunks(AT_ONCE) {
            let first = self.known.len();
            cells.iter().for_each(|cell| self.subscribe(*cell));
            let made = first..self.known.len();
            let (older, live): (Vec<_>, Vec<_>) =
                made.partition(|known| self.known[*known].cell.is_older);
            // Some sequences are skipped. When one is filled in later, it counts as new for
            // subscriptions that were made before it.
            self.next += 2;
            self.store(self.next, &live);
            let is_gap = self.rng.random_bool(0.5);
            let older_ledger =
                if is_gap && self.next - 3 > FIRST { self.next - 3 } else { self.older };
            self.older += u32::from(older_ledger == self.older);
            self.store(older_ledger, &older);
            if self.rng.random_bool(0.5) {
                self.world.feed();
            }
        }
        self.world.feed();
        for known in &self.known {
            let made = self.world.deliveries("ana", known.id);
            assert!(made.iter().all(|(_, it)| it.state == State::Pending));
            let events: BTreeSet<u64> =
                made.iter().map(|(number, _)| number.event().unwrap().0).collect();
            assert_eq!(events.len(), made.len());
            assert_eq!(events, known.expected, "{:?} {:?}", known.filter, known.cell);
            self.deliveries += made.len();
        }
    }
}

/// Returns what the model expects of a ledger that was stored after the subscription was made.
fn is_wanted(known: &Known, event: &Event, ledger: u32) -> bool {
    (known.include_backfill || ledger > known.after_ledger) && matches(&known.filter, event)
}

#[test]
fn every_combination_of_filter_and_event_matches_as_constructed() {
    let mut cells = Cell::all();
    // 16 subsets that match and 15 that differ; 8 combinations of contract and address; 4 of older
    // ledgers.
    assert_eq!(cells.len(), 31 * 8 * 4);
    let rounds = size::choose(1, 101);
    let (mut met, mut differed) = (BTreeMap::<Cell, usize>::new(), BTreeSet::new());
    let (mut events, mut subscriptions, mut deliveries) = (0, 0, 0);
    for seed in 0..rounds {
        let directory = scratch();
        let settings = settings::Webhooks {
            owner_subscriptions: u32::try_from(cells.len()).unwrap().try_into().unwrap(),
            ..Default::default()
        };
        let world = World::open_with(directory.path(), settings);
        let mut history = History::new(world, seed, 4 * cells.len() as u32);
        history.run(&mut cells);
        for (cell, count) in history.met {
            *met.entry(cell).or_default() += count;
        }
        differed.extend(history.differed);
        events += history.events;
        subscriptions += history.known.len();
        deliveries += history.deliveries;
    }
    for cell in &cells {
        assert_eq!(met.get(cell).copied(), Some(rounds as usize), "{cell:?}");
    }
    for given in 1..PATTERNS {
        let cell = Cell { given, address: Part::NotGiven, ..cells[0] };
        for manner in cell.manners() {
            assert!(differed.contains(&(given, manner)), "{given:04b} {manner:?}");
        }
    }
    println!(
        "{} combinations, {events} events, {subscriptions} subscriptions, {deliveries} deliveries",
        cells.len()
    );
}
