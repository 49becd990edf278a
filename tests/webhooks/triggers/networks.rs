//! Networks whose contracts are really executed: upgrades by their own events, also several in a transaction,
//! and by an entry to which contracts refer.

use std::collections::BTreeMap;

use orrery::decode::{EventType, decode};
use orrery::domain::{ContractId, LedgerRange, Network};
use orrery::webhooks::trigger::Trigger;
use orrery_testkit::newest::Newest;
use orrery_testkit::scratch::scratch;
use serde_json::Value as Json;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::scene::Scene;

/// Returns the topics of the events of changes, by contract, in the order of the chain.
fn updates(network: &Network, ledgers: &[Vec<u8>]) -> BTreeMap<ContractId, Vec<[ScVal; 2]>> {
    let mut found: BTreeMap<ContractId, Vec<[ScVal; 2]>> = BTreeMap::new();
    for raw in ledgers {
        let view = decode(raw, network.id()).unwrap();
        for event in view.events.iter().filter(|it| it.event_type == EventType::System) {
            let topics: Vec<ScVal> = view
                .topics(event)
                .iter()
                .map(|topic| ScVal::from_xdr(topic, Limits::none()).unwrap())
                .collect();
            let [_, old, new] = &topics[..] else { panic!("an event with two executables") };
            let contract = ContractId(*event.contract.unwrap());
            found.entry(contract).or_default().push([old.clone(), new.clone()]);
        }
    }
    found
}

fn numbers(deliveries: &[(String, Json)], letter: char) -> usize {
    let is = |id: &str| id.rsplit('-').next().unwrap().starts_with(letter);
    deliveries.iter().filter(|(id, _)| is(id)).count()
}

#[test]
fn upgrades_follow_events_and_what_contracts_refer_to() {
    let newest = Newest::made(Network::from_passphrase("triggers"), 6);
    let directory = scratch();
    let scene = Scene::open(directory.path(), &newest.network);
    let own = scene.subscribe(newest.adopter, Trigger::Upgrade, false);
    let fleet = newest.fleet.map(|contract| scene.subscribe(contract, Trigger::Upgrade, false));
    for raw in &newest.ledgers {
        scene.commit(raw);
        scene.feed();
    }
    let updates = updates(&newest.network, &newest.ledgers);
    let told = scene.deliveries(own);
    assert_eq!(told.len(), updates[&newest.adopter].len());
    assert_eq!(numbers(&told, 'u'), told.len());
    let [adopted, left] = [&told[0].1["trigger"], &told[1].1["trigger"]];
    assert_eq!(adopted["ledger"], newest.adopted[0].0);
    assert_eq!(left["ledger"], newest.adopted[1].0);
    assert_eq!(adopted["old"], left["new"], "it goes back to its own code");
    assert_eq!(adopted["new"], left["old"], "the reference is followed");
    assert_ne!(adopted["old"], adopted["new"]);
    assert!(adopted["old"]["wasm"].is_string() && adopted["interface"]["changed"].is_boolean());
    for (id, contract) in fleet.into_iter().zip(newest.fleet) {
        let told = scene.deliveries(id);
        assert_eq!((told.len(), numbers(&told, 'r')), (1, 1), "{told:?}");
        let trigger = &told[0].1["trigger"];
        assert_eq!(trigger["ledger"], newest.repointed.0);
        assert_eq!(trigger["contract_id"], contract.to_string());
        assert_ne!(trigger["old"], trigger["new"]);
        assert_eq!(trigger["new"], adopted["new"]);
        let before = scene.deliveries(id);
        scene.replay(id, LedgerRange::new(0, u32::MAX));
        assert_eq!(scene.deliveries(id), before, "a replay makes the same");
    }
}
