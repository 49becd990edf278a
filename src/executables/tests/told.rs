//! What events say, beside a brute-force reading of all events: in stores whose transactions were removed, all or
//! some, before the index had read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_testkit::factories::Factories;
use orrery_testkit::histories;
use orrery_testkit::scratch::scratch;
use orrery_testkit::upgraded::Upgraded;
use rand_chacha::ChaCha8Rng;
use stellar_xdr::ScVal;

use super::*;
use crate::{CodeEvents, Stay, Stays};
use orrery_ledger::decode::EventType;
use orrery_store::Retention;

/// What the events of a contract say.
#[derive(Default)]
struct Events {
    /// The first transaction with one.
    first: Option<TransactionPosition>,
    /// What it had before the first change of a transaction, and has after the last.
    updates: BTreeMap<TransactionPosition, (Ran, Ran)>,
}

/// A network with its ledgers, what transactions say, and what events say.
struct Told {
    network: Network,
    ledgers: Vec<Vec<u8>>,
    model: Model,
    events: BTreeMap<ContractId, Events>,
}

static NETWORKS: std::sync::LazyLock<Vec<Told>> = std::sync::LazyLock::new(|| {
    let factories = Factories::made(11);
    let upgraded = Upgraded::made().ledgers;
    let networks = [
        (factories.network.clone(), factories.ledgers),
        (orrery_testkit::sandbox::local(), upgraded),
    ];
    networks.into_iter().map(|(network, ledgers)| Told::new(network, ledgers)).collect()
});

/// Returns what a topic says; a reference is followed nowhere.
fn executable_of(topic: &[u8]) -> Ran {
    match ScVal::from_xdr(topic, Limits::none()).unwrap() {
        ScVal::Vec(Some(parts)) => match parts.as_slice() {
            [ScVal::Symbol(_), ScVal::Bytes(hash)] => {
                Ran::Code(Hash32(hash.as_slice().try_into().unwrap()))
            }
            _ => Ran::Unknown(Vec::new()),
        },
        other => panic!("{other:?}"),
    }
}

impl Told {
    fn new(network: Network, ledgers: Vec<Vec<u8>>) -> Self {
        let mut events: BTreeMap<ContractId, Events> = BTreeMap::new();
        for raw in &ledgers {
            let view = decode(raw, network.id()).unwrap();
            for event in &view.events {
                let Some(contract) = event.contract else { continue };
                let at = TransactionPosition {
                    ledger: view.header.sequence,
                    application_order: view.transactions[event.transaction].application_order,
                };
                let of = events.entry(ContractId(*contract)).or_default();
                of.first = Some(of.first.map_or(at, |first| first.min(at)));
                if event.event_type == EventType::System {
                    let topics = view.topics(event);
                    let (before, after) = (executable_of(topics[1]), executable_of(topics[2]));
                    let update = of.updates.entry(at).or_insert((before, Ran::Nothing));
                    update.1 = after;
                }
            }
        }
        let model = Model::of(&network, &ledgers);
        Self { network, ledgers, model, events }
    }

    /// Returns what events alone say; `None` where they do not.
    fn said(&self, contract: &ContractId, at: TransactionPosition, side: Side) -> Option<Ran> {
        let of = self.events.get(contract)?;
        let was_there =
            of.first.is_some_and(|first| first < at || (first == at && side == Side::After));
        let found = match (of.updates.get(&at), side) {
            (Some((_, after)), Side::After) => after,
            (Some((before, _)), Side::Before) if was_there => before,
            (Some(_), Side::Before) => return None,
            (None, _) => match of.updates.range(..at).next_back() {
                Some((_, (_, after))) => after,
                None => {
                    let (_, (before, _)) = of.updates.range(at..).next()?;
                    if was_there { before } else { return None }
                }
            },
        };
        (!matches!(found, Ran::Unknown(_))).then(|| found.clone())
    }
}

struct Scene {
    store: Arc<Store>,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn new(network: &Network) -> Self {
        let directory = scratch();
        let consumers: [Arc<dyn LedgerConsumer>; 2] =
            [Arc::new(ExecutableIndex), Arc::new(CodeEvents::default())];
        let extensions = Extensions::for_consumers(&consumers);
        let store = Store::open_with(directory.path(), Some(network), extensions).unwrap();
        Self { store: Arc::new(store), _directory: directory }
    }

    fn commit(&self, told: &Told, raw: &[u8]) {
        let view = decode(raw, told.network.id()).unwrap();
        // What was gathered is gone with the raw form, as after a restart.
        let options = IndexOptions::default();
        let prepared = self.store.prepare(&view, None, &options).unwrap();
        self.store.commit(prepared, Durability::Synced).unwrap();
    }

    fn step(&self, consumer: &dyn LedgerConsumer) {
        while self.store.step(consumer).unwrap() {}
    }

    /// Removes the transactions of all but the newest ledgers.
    fn prune(&self, transactions: u32) {
        let retention = Retention { transactions: Some(transactions), ..Retention::default() };
        while !self.store.prune(&retention).unwrap().is_nothing() {}
    }

    /// Returns how many answers are known.
    fn known(&self, told: &Told) -> usize {
        let lookup = Lookup::new(&self.store, RowBounds::none()).unwrap();
        let all = told.model.positions.iter().flat_map(|at| {
            let contracts = told.model.contracts.iter();
            contracts.map(|contract| lookup.ran(contract, *at, Side::After).unwrap())
        });
        all.filter(|ran| !matches!(ran, Ran::Unknown(_))).count()
    }

    /// Compares all answers with the models. Returns how many are known, and how many of these events alone say.
    fn compare(&self, told: &Told) -> (usize, usize) {
        let lookup = Lookup::new(&self.store, RowBounds::none()).unwrap();
        let (mut known, mut by_events) = (0, 0);
        for at in &told.model.positions {
            for contract in &told.model.contracts {
                for side in [Side::Before, Side::After] {
                    let found = lookup.ran(contract, *at, side).unwrap();
                    let of = || format!("{contract} {at:?} {side:?}");
                    let is_known = !matches!(found, Ran::Unknown(_));
                    if is_known {
                        let truth = told.model.ran(*contract, *at, side);
                        assert_eq!(Some(&found), truth.as_ref(), "{}", of());
                    }
                    if let Some(said) = told.said(contract, *at, side) {
                        assert_eq!(found, said, "{}", of());
                        by_events += 1;
                    }
                    known += usize::from(is_known);
                }
            }
        }
        (known, by_events)
    }
}

#[test]
fn what_events_say_is_known_without_any_transaction() {
    for told in &*NETWORKS {
        let scene = Scene::new(&told.network);
        for raw in told.ledgers.iter().rev() {
            scene.commit(told, raw);
        }
        scene.prune(0);
        scene.step(&ExecutableIndex);
        assert_eq!(scene.known(told), 0, "nothing was read");
        scene.step(&CodeEvents::default());
        let (known, by_events) = scene.compare(told);
        assert!(by_events > 100, "{by_events}");
        assert_eq!(known, by_events, "events say nothing else");
    }
}

/// Ledgers in any order, of which the index has read some when the transactions are removed.
#[test]
fn what_events_say_fills_in_for_transactions_that_were_removed() {
    std::sync::LazyLock::force(&NETWORKS);
    histories::run(30, 5_000, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let told = &NETWORKS[random.random_range(0..NETWORKS.len())];
        let scene = Scene::new(&told.network);
        let mut order: Vec<&Vec<u8>> = told.ledgers.iter().collect();
        match random.random_range(0..3) {
            0 => order.reverse(),
            1 => order.shuffle(&mut random),
            _ => {}
        }
        for raw in order {
            scene.commit(told, raw);
            match random.random_range(0..6) {
                0 | 1 => drop(scene.store.step(&ExecutableIndex).unwrap()),
                2 => drop(scene.store.step(&CodeEvents::default()).unwrap()),
                3 => scene.prune(random.random_range(0..20)),
                _ => {}
            }
        }
        scene.step(&ExecutableIndex);
        scene.step(&CodeEvents::default());
        let (known, by_events) = scene.compare(told);
        assert!(known >= by_events);
    });
}

/// The times in which a contract ran a code are those that transactions say, but for a begin that no event says.
#[test]
fn stays_are_the_same_without_transactions() {
    let mut compared = 0;
    for told in &*NETWORKS {
        let (whole, bare) = (Scene::new(&told.network), Scene::new(&told.network));
        for raw in &told.ledgers {
            whole.commit(told, raw);
            bare.commit(told, raw);
        }
        bare.prune(0);
        for scene in [&whole, &bare] {
            scene.step(&ExecutableIndex);
            scene.step(&CodeEvents::default());
        }
        let latest = whole.store.ends().latest.unwrap();
        let last = TransactionPosition { ledger: latest, application_order: u32::MAX };
        for (contract, of) in &told.events {
            let codes: BTreeSet<Hash32> = of.updates.values().flat_map(codes).collect();
            let codes: Vec<Hash32> = codes.into_iter().collect();
            let stays = |scene: &Scene| {
                let lookup = Lookup::new(&scene.store, RowBounds::none()).unwrap();
                lookup.stays(contract, &codes, last, 10_000).unwrap()
            };
            let (whole, bare) = (stays(&whole), stays(&bare));
            assert!(!whole.are_cut && !bare.are_cut);
            // Changes of what a contract refers to have no event.
            if of
                .updates
                .values()
                .any(|(before, after)| is_reference(before) || is_reference(after))
            {
                continue;
            }
            let is_told = |stay: &&Stay| {
                stay.until.is_some_and(|at| at > of.first.unwrap()) || stay.until.is_none()
            };
            let mut expected: Vec<Stay> = whole.stays.iter().filter(is_told).copied().collect();
            let first_update = of.updates.keys().next().copied();
            for stay in &mut expected {
                // It began before the first change.
                if stay.since < first_update {
                    stay.since = None;
                    stay.known_at = first_update.unwrap_or(stay.known_at);
                }
            }
            assert_eq!(bare.stays, expected, "{contract}");
            compared += expected.len();
        }
    }
    assert!(compared > 20, "{compared}");
}

fn codes((before, after): &(Ran, Ran)) -> Vec<Hash32> {
    let code = |ran: &Ran| match ran {
        Ran::Code(hash) => Some(*hash),
        _ => None,
    };
    [before, after].into_iter().filter_map(code).collect()
}

fn is_reference(ran: &Ran) -> bool {
    matches!(ran, Ran::Unknown(_))
}

/// Of a contract with more changes than are looked at, the first times stay what they are, whatever comes later; the
/// last one has no end that moves with each ledger.
#[test]
fn stays_behind_too_many_changes_are_cut_and_do_not_move() {
    let mut are_cut = 0;
    for told in &*NETWORKS {
        let scene = Scene::new(&told.network);
        let mut before: BTreeMap<(ContractId, usize), Stays> = BTreeMap::new();
        for raw in &told.ledgers {
            scene.commit(told, raw);
            scene.step(&ExecutableIndex);
            scene.step(&CodeEvents::default());
            let latest = scene.store.ends().latest.unwrap();
            let last = TransactionPosition { ledger: latest, application_order: u32::MAX };
            let lookup = Lookup::new(&scene.store, RowBounds::none()).unwrap();
            for (contract, of) in &told.events {
                let codes: Vec<Hash32> = of.updates.values().flat_map(codes).collect();
                for most in 1..4 {
                    let now = lookup.stays(contract, &codes, last, most).unwrap();
                    let whole = lookup.stays(contract, &codes, last, usize::MAX).unwrap();
                    assert!(!whole.are_cut);
                    match now.are_cut {
                        false => assert_eq!(now, whole),
                        true => {
                            let closed = now.stays.iter().filter(|stay| stay.until.is_some());
                            assert!(closed.zip(&whole.stays).all(|(one, other)| one == other));
                            let ends = |stays: &[Stay]| {
                                stays.iter().map(|it| it.since).collect::<Vec<_>>()
                            };
                            assert!(ends(&whole.stays).starts_with(&ends(&now.stays)));
                            are_cut += 1;
                        }
                    }
                    if let Some(then) = before.insert((*contract, most), now.clone())
                        && then.are_cut
                    {
                        assert_eq!(now, then, "{contract} {most}");
                    }
                }
            }
        }
    }
    assert!(are_cut > 20, "{are_cut}");
}
