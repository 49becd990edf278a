//! New deliveries wait for the index of names, and hold up nobody meanwhile.

use orrery::executables::ExecutableIndex;
use orrery_testkit::scratch::scratch;

use super::world::{Chain, World, symbol};

#[test]
fn deliveries_wait_for_names_and_other_changes_do_not_wait_for_them() {
    let directory = scratch();
    let world = World::open_with_names(directory.path());
    let mut chain = Chain::new(4, vec![symbol("transfer")]);
    let contract = chain.universe.contracts[0];
    let id = world.subscribe("ana", "https://example.com/", contract);
    let made = || world.deliveries("ana", id).len();
    let mut add_and_feed = || {
        let (before, mut next) = (made(), world.store.status().latest().map_or(0, |it| it.0));
        while made() == before {
            next += 1;
            chain.commit(&world.store, next);
            world.feed();
        }
    };
    // An index that does not advance is not waited for for ever.
    add_and_feed();
    while world.store.step(&ExecutableIndex).unwrap() {}
    add_and_feed();
    while world.store.step(&ExecutableIndex).unwrap() {}
    // It has caught up, so it is waited for again: not in one step, in which nothing else could change.
    let before = made();
    let last = world.store.status().latest().unwrap().0 + 20;
    chain.grow(last);
    for next in last - 19..=last {
        chain.commit(&world.store, next);
    }
    assert!(world.step().unwrap(), "there is more to do");
    assert_eq!(made(), before);
    world.subscribe("ana", "https://example.com/other", contract);
    while world.store.step(&ExecutableIndex).unwrap() {}
    world.feed();
    assert!(made() > before);
}
