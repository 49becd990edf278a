//! Which contracts a project says to have no interface: not those whose events all are declared by the
//! interface that was supplied.

use orrery_testkit::specs::{SingleValue, Type, event};
use orrery_testkit::upgraded::{Upgraded, version, with_interface};

use super::events::owner;
use super::events_world::WORLDS;
use super::*;
use crate::registry::Watch;

/// An interface that declares events of one topic and of two, of which the first is `topic`.
fn supplied(topic: &str) -> Vec<u8> {
    let value = [("value", Type::Val)];
    let spec = [
        event("said", &[topic], &[], SingleValue, &value),
        event("told", &[topic], &[("to", Type::Val)], SingleValue, &value),
    ];
    with_interface(version(4), &spec)
}

#[test]
fn a_contract_whose_events_are_all_declared_by_a_supplied_interface_lacks_none() {
    let world = &WORLDS[0];
    let scene = Scene::storing(world);
    // The index has processed no ledger: what the contracts ran is not known.
    let lacking = |name: &str, supplied: Option<Vec<u8>>| {
        let watch = Watch {
            project_name: name.to_owned(),
            contracts: world.contracts.clone(),
            selectors: Default::default(),
            supplied,
            from: None,
            storage: None,
            public: None,
            replace: Replace::No,
        };
        let id = scene.registry.watch(&owner(), watch, 1).unwrap().id;
        scene.begin_reading(id);
        scene.run_until_settled();
        let lacking = scene.runner.events.lacking(&scene.manifest(id)).unwrap();
        lacking.into_iter().map(|it| it.contract).collect::<BTreeSet<_>>()
    };
    let upgraded = BTreeSet::from(Upgraded::made().contracts);
    let without = lacking("without", None);
    let declared: BTreeSet<_> = without.intersection(&upgraded).copied().collect();
    assert!(!declared.is_empty());
    assert_eq!(lacking("theirs", Some(supplied("said"))), &without - &declared);
    assert_eq!(lacking("others", Some(supplied("other"))), without);
}
