//! How many members there may be.

use super::*;

#[test]
fn a_service_and_an_owner_have_no_more_members_than_they_may() {
    let (world, ledgers) = &FACTORIES[0];
    let scene = scene(world);
    for raw in ledgers.values() {
        scene.commit(raw, true);
    }
    scene.index(usize::MAX);
    scene.learn(usize::MAX);
    let wasm = vec![Hash32(world.codes[0])];
    let selectors = Selectors { wasm, ..Selectors::default() };
    let watch = |name: &str, owner: &str, contracts: Vec<ContractId>, selectors: &Selectors| {
        let watch = Watch {
            project_name: name.to_owned(),
            contracts,
            selectors: selectors.clone(),
            supplied: None,
            from: None,
            storage: None,
            public: None,
            replace: Replace::No,
        };
        scene.registry.watch(&Owner(owner.to_owned()), watch, 1)
    };
    let id = watch("first", "ana", Vec::new(), &selectors).unwrap().id;
    scene.begin_reading(id);
    scene.run_until_settled();
    let count = scene.runner.events.members().count(id);
    assert!(count > 3, "{count}");
    let refused = |name, owner| match watch(name, owner, Vec::new(), &selectors) {
        Err(ProgramError::TooManyMembers { most, of_owner }) => Some((most, of_owner)),
        Err(error) => panic!("{error}"),
        Ok(_) => None,
    };
    // An owner may hold a quarter, and nothing is cut.
    scene.registry.members.set_most(100_000, 4 * count);
    assert_eq!(refused("second", "ana"), Some((count, true)));
    assert_eq!(refused("second", "bea"), None);
    scene.registry.members.set_most(100_000, count);
    assert_eq!(refused("third", "cem"), Some((count, false)));
    assert_eq!(scene.runner.events.members().count(id), count);
    // Projects that name their contracts are made as before.
    let named = vec![world.factories[0]];
    assert!(watch("fourth", "ana", named, &Selectors::default()).is_ok());
    // What is deleted makes room.
    scene.delete("ana", id).unwrap();
    assert_eq!(refused("fifth", "ana"), None);
}
