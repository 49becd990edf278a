//! Projects that read the ledgers in the order of the chain.

use super::super::events::Content;
use super::*;
use crate::events::{LoggedEvents, LoggedMember};
use orrery_tables::event_tables::MemberChangeKind;

/// What a project with the same selectors has that read all ledgers in the order of the chain.
pub(super) fn read_in_order(
    world: &Factories,
    stored: &[&Vec<u8>],
    manifest: &Manifest,
    most: usize,
) -> Content {
    let scene = scene(world);
    scene.registry.members.set_most(most, 1_000_000);
    for raw in stored {
        scene.commit(raw, true);
    }
    scene.index(usize::MAX);
    scene.learn(usize::MAX);
    scene.record(usize::MAX);
    let project = manifest.events.as_ref().unwrap();
    let watch = (manifest.contracts.clone(), project.selectors.clone());
    let from = Some(LedgerSeq(project.from)).filter(|from| from.0 > 0);
    scene.select("fresh", watch, (Some(project.has_storage), from), Replace::No);
    scene.run_until_settled();
    let id = scene.registry.all()[0].id;
    scene.content(id).0
}

/// The times in which contracts run a code begin and end one by one while a project looks: its rows are those of a
/// project that looks once at all of it.
#[test]
fn changes_of_members_in_the_order_of_the_chain_are_those_of_a_rebuild() {
    let mut left = 0;
    for (world, ledgers) in FACTORIES.iter() {
        let scene = scene(world);
        let codes = world.codes.iter().map(|code| Hash32(*code)).take(2).collect();
        let selectors = Selectors { wasm: codes, ..Selectors::default() };
        let mut begun = None;
        for (number, raw) in ledgers {
            scene.commit(raw, number % 2 == 0);
            scene.index(usize::MAX);
            scene.learn(usize::MAX);
            if begun.is_none() {
                scene.select("stays", (Vec::new(), selectors.clone()), (None, None), Replace::No);
                begun = Some(scene.registry.all()[0].id);
            }
            scene.run_until_settled();
        }
        let id = begun.unwrap();
        let (found, _) = scene.content(id);
        let stored: Vec<&Vec<u8>> = ledgers.values().collect();
        let fresh = read_in_order(world, &stored, &scene.manifest(id), 100_000);
        assert_eq!(found.0, fresh.0, "the tables are the same");
        assert_eq!(found.1, fresh.1, "the rows are the same");
        let is_end = |change: &LoggedMember| change.change.kind == MemberChangeKind::Left;
        for run in scene.runs(id) {
            let members = LoggedEvents::read(&run.stored).unwrap().members;
            left += members.iter().filter(|it| is_end(it.as_ref().unwrap())).count();
        }
    }
    assert!(left > 0);
}
