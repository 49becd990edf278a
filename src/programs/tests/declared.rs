//! Tables of declared events, which follow from what is known of the code of contracts, when something
//! fails meanwhile.

use super::events_world::WORLDS;
use super::*;
use crate::events::Looks;
use crate::lanes::SHORT_TURN;

#[test]
fn declared_events_get_their_tables_after_a_write_that_fails() {
    let world = &WORLDS[0];
    for fault in [Fault::NotWritten, Fault::Written] {
        let scene = Scene::indexing(world);
        let id = scene.watch("early", world.contracts.clone(), false);
        let entry = scene.registry.get(id).unwrap();
        let mut looks = Looks::default();
        let mut declare =
            || scene.runner.declare_tables(&entry, &scene.registry, &mut looks, SHORT_TURN);
        scene.store.faults().plan(move |_| Some(fault));
        assert!(declare().is_err());
        scene.store.faults().clear();
        declare().unwrap();
        assert!(scene.manifest(id).schema.tables().len() > 2, "{:?}", scene.manifest(id).schema);
        assert!(!declare().unwrap().changed);
    }
}
