//! Ledgers for tests of projects of events: contracts that declare events and are upgraded between
//! transactions of one ledger, references that are pointed elsewhere, and other networks; and stores of them.

use orrery_testkit::event_counts::by_contract;
use orrery_testkit::newest::Newest;
use orrery_testkit::pubnet;
use orrery_testkit::upgraded::Upgraded;

use super::*;
use orrery_executables::ExecutableIndex;

/// Number of contracts of a world that projects watch.
const WATCHED: usize = 4;

/// A network with its ledgers.
pub struct World {
    pub network: Network,
    /// Raw ledgers by sequence.
    pub ledgers: BTreeMap<u32, Vec<u8>>,
    /// The contracts that projects watch.
    pub contracts: Vec<ContractId>,
    /// Number of events of each contract in each ledger.
    pub events: BTreeMap<(u32, ContractId), usize>,
}

/// All worlds: first the one that declares the most.
pub static WORLDS: LazyLock<Vec<World>> = LazyLock::new(|| {
    let newest = Newest::made(local(), 3);
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    let own = (local(), Upgraded::made().ledgers);
    let worlds = [Some(own), Some((newest.network.clone(), newest.ledgers)), public];
    worlds.into_iter().flatten().map(|(network, ledgers)| World::new(network, ledgers)).collect()
});

impl World {
    fn new(network: Network, raw: Vec<Vec<u8>>) -> Self {
        let (mut ledgers, mut events) = (BTreeMap::new(), BTreeMap::new());
        let mut sums: BTreeMap<ContractId, usize> = BTreeMap::new();
        for raw in raw {
            let (ledger, counts) = by_contract(&raw, &network);
            for (contract, count) in counts {
                events.insert((ledger, contract), count);
                *sums.entry(contract).or_default() += count;
            }
            ledgers.insert(ledger, raw);
        }
        let mut contracts: Vec<_> = sums.into_iter().map(|(id, sum)| (sum, id)).collect();
        contracts.sort_by(|a, b| b.cmp(a));
        let contracts = contracts.into_iter().take(WATCHED).map(|(_, id)| id).collect();
        Self { network, ledgers, contracts, events }
    }
}

impl Scene {
    pub(super) fn of_network(network: Network) -> Self {
        let consumers: Vec<Arc<dyn LedgerConsumer>> = vec![Arc::new(ExecutableIndex)];
        let mut scene =
            Self { network, consumers, ..Self::closed(settings::Programs::default(), None) };
        scene.restart();
        scene
    }

    /// A scene that has stored all ledgers of a world. The index has processed none.
    pub(super) fn storing(world: &World) -> Self {
        let scene = Self::of_network(world.network.clone());
        for raw in world.ledgers.values() {
            scene.commit(raw, true);
        }
        scene
    }

    /// As [`Self::storing`], and the index has processed all.
    pub(super) fn indexing(world: &World) -> Self {
        let scene = Self::storing(world);
        scene.index(usize::MAX);
        scene
    }
}

impl Parts {
    pub(super) fn commit(&self, raw: &[u8], raw_ledgers: bool) {
        let view = decode(raw, self.store.network().id()).unwrap();
        let options = IndexOptions { raw_ledgers, ..IndexOptions::default() };
        let prepared = self.store.prepare(&view, None, &options).unwrap();
        self.store.commit(prepared, Durability::Deferred).unwrap();
    }

    /// Advances the index of code by so many steps at most.
    pub(super) fn index(&self, most: usize) {
        for _ in 0..most {
            if !self.store.step(&ExecutableIndex as &dyn LedgerConsumer).unwrap() {
                return;
            }
        }
    }
}
