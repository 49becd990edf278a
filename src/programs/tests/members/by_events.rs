//! Projects of what contracts run where transactions are gone: all of them before anybody has read them, or any at any
//! moment. Their rows are those that a brute-force reading of the events says, and no others; in the end a project has
//! what one has that begins then.

use orrery_executables::lookup::{Lookup, Ran, Side};
use orrery_ledger::decode::EventType;
use orrery_store::{Retention, RowBounds};
use rand::seq::SliceRandom;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::super::events::Content;
use super::*;
use crate::events::{LoggedEvents, LoggedMember};

/// The codes that a contract had before and has after each of its changes, by transaction and in their order; `None`
/// for what is no code.
type Updates = BTreeMap<(u32, u32), Vec<(Option<[u8; 32]>, Option<[u8; 32]>)>>;

/// What events say.
#[derive(Default)]
struct Events {
    /// Ledger, application order and contract of each.
    all: Vec<(u32, u32, ContractId)>,
    updates: BTreeMap<ContractId, Updates>,
    /// Hashes of transactions.
    hashes: BTreeMap<(u32, u32), Hash32>,
}

fn code_in(topic: &[u8]) -> Option<[u8; 32]> {
    let ScVal::Vec(Some(parts)) = ScVal::from_xdr(topic, Limits::none()).unwrap() else { panic!() };
    match parts.as_slice() {
        [_, ScVal::Bytes(hash)] => Some(hash.as_slice().try_into().unwrap()),
        _ => None,
    }
}

impl Events {
    fn of(world: &Factories) -> Self {
        let mut found = Self::default();
        for raw in &world.ledgers {
            let view = decode(raw, world.network.id()).unwrap();
            for event in &view.events {
                let Some(contract) = event.contract.map(|contract| ContractId(*contract)) else {
                    continue;
                };
                let transaction = &view.transactions[event.transaction];
                let at = (view.header.sequence.0, transaction.application_order);
                found.all.push((at.0, at.1, contract));
                found.hashes.insert(at, transaction.hash);
                if event.event_type == EventType::System {
                    let topics = view.topics(event);
                    let step = (code_in(topics[1]), code_in(topics[2]));
                    let updates = found.updates.entry(contract).or_default();
                    updates.entry(at).or_default().push(step);
                }
            }
        }
        found
    }

    /// Returns the codes that a contract certainly ran before, in or after a transaction with an event of it.
    fn ran(&self, contract: &ContractId, at: (u32, u32)) -> BTreeSet<[u8; 32]> {
        let Some(updates) = self.updates.get(contract) else { return BTreeSet::new() };
        if let Some(steps) = updates.get(&at) {
            return steps.iter().flat_map(|(before, after)| [*before, *after]).flatten().collect();
        }
        let last = updates.range(..at).next_back().and_then(|(_, steps)| steps.last()?.1);
        let next = || updates.range(at..).next().and_then(|(_, steps)| steps.first()?.0);
        let has_changed = updates.range(..at).next().is_some();
        let code = if has_changed { last } else { next() };
        code.into_iter().collect()
    }

    /// Returns the number of contracts of which events do not say what they ran, although it is known there.
    fn silent(&self, whole: &Scene) -> u64 {
        let lookup = Lookup::new(&whole.store, RowBounds::none()).unwrap();
        let ledger = whole.store.ends().latest.unwrap();
        let last = TransactionPosition { ledger, application_order: u32::MAX };
        let emitters: BTreeSet<ContractId> = self.all.iter().map(|(_, _, it)| *it).collect();
        let has_code =
            |it: &&ContractId| matches!(lookup.ran(it, last, Side::After).unwrap(), Ran::Code(_));
        let silent = emitters.iter().filter(|it| !self.updates.contains_key(it)).filter(has_code);
        silent.count() as u64
    }

    /// Returns the number of events of each contract in each ledger that certainly belong to a project.
    fn selected(&self, codes: &[Hash32]) -> BTreeMap<(u32, ContractId), usize> {
        let mut selected = BTreeMap::new();
        for (ledger, order, contract) in &self.all {
            let ran = self.ran(contract, (*ledger, *order));
            if codes.iter().any(|code| ran.contains(&code.0)) {
                *selected.entry((*ledger, *contract)).or_default() += 1;
            }
        }
        selected
    }
}

fn prune(scene: &Scene, transactions: u32) {
    scene.store.flush().unwrap();
    let retention = Retention { transactions: Some(transactions), ..Retention::default() };
    while !scene.store.prune(&retention).unwrap().is_nothing() {}
}

pub(super) fn rows_of(scene: &Scene, id: ProgramId) -> BTreeMap<(u32, ContractId), usize> {
    let mut found: BTreeMap<(u32, ContractId), usize> = BTreeMap::new();
    for (ledger, contract) in scene.events(id) {
        *found.entry((ledger.0, contract)).or_default() += 1;
    }
    found
}

pub(super) fn changes_of(scene: &Scene, id: ProgramId) -> Vec<LoggedMember> {
    let mut found = Vec::new();
    for run in scene.runs(id) {
        let members = LoggedEvents::read(&run.stored).unwrap().members;
        found.extend(members.iter().map(Result::unwrap));
    }
    found
}

/// Stores all ledgers of a network; the transactions are removed before the indexes read them, if they are not kept.
fn stored(world: &Factories, keeps_transactions: bool) -> Scene {
    let scene = scene(world);
    for raw in &world.ledgers {
        scene.commit(raw, false);
    }
    if !keeps_transactions {
        prune(&scene, 0);
    }
    scene.index(usize::MAX);
    scene.learn(usize::MAX);
    scene
}

pub(super) fn project(scene: &Scene, name: &str, selectors: &Selectors) -> ProgramId {
    let watch = (Vec::new(), selectors.clone());
    assert!(scene.select(name, watch, (None, None), Replace::No));
    scene.run_until_settled();
    let all = scene.registry.all();
    let named = |id: &ProgramId| scene.manifest(*id).project_name == name;
    all.iter().map(|entry| entry.id).find(named).unwrap()
}

/// Where no transaction was ever there to read, a project has what events alone say: the same rows and members as where
/// all were, as far as these follow from events.
#[test]
fn without_transactions_events_say_who_ran_what() {
    let (mut rows, mut stays) = (0, 0);
    for (world, _) in FACTORIES.iter() {
        let events = Events::of(world);
        let (whole, bare) = (stored(world, true), stored(world, false));
        let unread = |scene: &Scene| Facts::new(&scene.store).unwrap().unread().unwrap().code;
        let silent = events.silent(&whole);
        assert!(silent > 0, "some contracts never change their code");
        assert_eq!((unread(&whole), unread(&bare)), (0, silent));
        for (number, code) in (0..).zip(&world.codes) {
            let selectors = Selectors { wasm: vec![Hash32(*code)], ..Selectors::default() };
            let name = format!("p{number}");
            let (of_whole, of_bare) =
                (project(&whole, &name, &selectors), project(&bare, &name, &selectors));
            let found = rows_of(&bare, of_bare);
            assert_eq!(found, events.selected(&selectors.wasm), "{name}");
            let all = rows_of(&whole, of_whole);
            assert!(found.iter().all(|(of, count)| all.get(of) == Some(count)), "{name}");
            rows += found.len();
            stays += same_stays(&events, changes_of(&whole, of_whole), changes_of(&bare, of_bare));
        }
    }
    assert!(rows > 20 && stays > 5, "{rows} {stays}");
}

/// Compares the changes of members where transactions are known with those where they are not. Returns how many are in
/// both.
fn same_stays(events: &Events, whole: Vec<LoggedMember>, bare: Vec<LoggedMember>) -> usize {
    let whole: BTreeMap<_, _> =
        whole.iter().map(|change| (key(change), change.closed_at)).collect();
    let none = Hash32::default();
    let (begun_before, told): (Vec<_>, Vec<_>) =
        bare.iter().partition(|change| change.transaction == none);
    for change in &told {
        assert_eq!(whole.get(&key(change)), Some(&change.closed_at), "{change:?}");
    }
    // A time of which events do not say the beginning ends, or goes on.
    let first = events.hashes.keys().next().unwrap().0;
    assert!(begun_before.iter().all(|change| change.ledger.0 <= first));
    let told: BTreeSet<_> = told.iter().map(|change| key(change)).collect();
    // All that happened by the contract's own changes is told, but for the end of what it ran before its first event.
    for (contract, updates) in &events.updates {
        for (at, steps) in updates {
            let (Some((Some(before), _)), Some((_, Some(after)))) = (steps.first(), steps.last())
            else {
                continue;
            };
            let is_of = |(it, _, _, hash): &&Key| it == contract && *hash == events.hashes[at];
            let expected: BTreeSet<&Key> = whole.keys().filter(is_of).collect();
            let is_first = events.all.iter().find(|(_, _, it)| it == contract).unwrap();
            let is_silent_before = (is_first.0, is_first.1) == *at;
            if !is_silent_before && before != after {
                assert!(expected.iter().all(|key| told.contains(*key)), "{contract} {at:?}");
            }
        }
    }
    told.len()
}

/// Contract, kind, ledger and transaction of a change.
type Key = (ContractId, u8, u32, Hash32);

fn key(change: &LoggedMember) -> Key {
    let kind = change.change.kind as u8;
    (change.change.contract, kind, change.ledger.0, change.transaction)
}

/// A history in which transactions are removed at any moment.
struct Pruned {
    world: &'static Factories,
    scene: Scene,
    rng: ChaCha8Rng,
    missing: Vec<&'static Vec<u8>>,
    kept: u32,
}

impl Pruned {
    fn new(seed: u64) -> Self {
        let (world, _) = &FACTORIES[(seed % WORLDS) as usize];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut missing: Vec<_> = world.ledgers.iter().rev().collect();
        match rng.random_range(0..3) {
            0 => missing.reverse(),
            1 => missing.shuffle(&mut rng),
            _ => {}
        }
        let kept = rng.random_range(0..12);
        Self { world, scene: scene(world), rng, missing, kept }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..12) {
            0..4 => {
                for _ in 0..self.rng.random_range(1..6) {
                    let Some(raw) = self.missing.pop() else { return };
                    self.scene.commit(raw, self.rng.random());
                }
            }
            4 | 5 => self.scene.index(self.rng.random_range(1..3)),
            6 | 7 => self.scene.learn(self.rng.random_range(1..3)),
            8 => prune(&self.scene, self.kept),
            9 => {
                self.scene.restart();
                self.scene.begin_reading_all();
            }
            _ => {
                self.scene.turn_all();
            }
        }
    }

    fn selectors(&mut self) -> Selectors {
        let mut codes: Vec<_> = self.world.codes.iter().map(|code| Hash32(*code)).collect();
        codes.shuffle(&mut self.rng);
        codes.truncate(self.rng.random_range(1..3));
        Selectors { wasm: codes, ..Selectors::default() }
    }

    /// Lets the project have all that becomes known.
    fn settle(&self) {
        self.scene.index(usize::MAX);
        self.scene.learn(usize::MAX);
        self.scene.run_until_settled();
    }

    fn content(&self, id: ProgramId) -> Content {
        self.scene.content(id).0
    }

    fn end(mut self, selectors: &Selectors, id: ProgramId) {
        while let Some(raw) = self.missing.pop() {
            self.scene.commit(raw, false);
        }
        self.scene.begin_reading(id);
        self.settle();
        prune(&self.scene, self.kept);
        self.settle();
        let found = rows_of(&self.scene, id);
        let model = Model::of(&self.world.ledgers.iter().collect::<Vec<_>>());
        let most = model.selected(&[], selectors);
        for (of, count) in &found {
            assert!(*count <= most.get(of).copied().unwrap_or(0), "nothing is guessed: {of:?}");
        }
        for (of, count) in Events::of(self.world).selected(&selectors.wasm) {
            assert_eq!(found.get(&of), Some(&count), "events say it: {of:?}");
        }
        let fresh = project(&self.scene, "fresh", selectors);
        let (content, fresh) = (self.content(id), self.content(fresh));
        assert_eq!(content.0, fresh.0, "the tables are the same");
        assert_eq!(content.1, fresh.1, "the rows are the same");
    }
}

#[test]
fn transactions_that_are_removed_at_any_moment_leave_what_events_say() {
    histories::run(12, 10_000, |seed| {
        let mut history = Pruned::new(seed);
        let selectors = history.selectors();
        let begins = history.rng.random_range(0..20);
        (0..begins).for_each(|_| history.step());
        let watch = (Vec::new(), selectors.clone());
        assert!(history.scene.select("p", watch, (None, None), Replace::No));
        let id = history.scene.registry.all()[0].id;
        (begins..40).for_each(|_| history.step());
        history.end(&selectors, id);
    });
}
