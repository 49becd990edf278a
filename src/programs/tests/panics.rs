//! Panics in the threads of the programs: health shows each, and in the end every ledger has been
//! processed once.

use orrery_testkit::wait::wait_until;

use super::*;
use crate::backfill::State;
use crate::lanes::Lanes;
use crate::threads::Threads;

/// Makes one of these threads panic while `wake` gives them work, and waits until the component has
/// been down for it.
fn disturb(health: &Health, names: &[&str], component: &str, wake: impl Fn()) {
    names.iter().for_each(|name| health.injected().plan(name));
    wait_until(&format!("one of {names:?} panics"), || {
        wake();
        let state = health.components().remove(component);
        matches!(state, Some(Component::Down { reason }) if reason.starts_with("it has panicked"))
    });
    wait_until(&format!("{names:?} run again"), || {
        let state = health.components().remove(component);
        !matches!(state, Some(Component::Down { .. }))
    });
}

#[test]
fn threads_that_panic_go_on_where_they_were() {
    const MIDDLE: u32 = FIRST + (LAST - FIRST) / 2;
    let (scene, code) = (Scene::new(), module(""));
    scene.add_all(FIRST..=MIDDLE);
    let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
    let Parts { store, registry, runner, trouble, health, .. } = &*scene;
    let tables = Tables::open(TablesSettings {
        directory: scene.directory.path().join("tables of the threads"),
        worker: scene.directory.path().join("none"),
        queries: Queries::default(),
        chain: None,
        tunables: Tunables::default(),
    });
    let feeder = Arc::new(Feeder::new(runner, Arc::clone(registry), tables.unwrap()));
    let lanes = Arc::new(Lanes::default());
    let live = Arc::new(Live::new(runner, registry, &feeder, trouble));
    let backfills = Arc::new(Backfills::open(runner, registry, &feeder, trouble).unwrap());
    let replacements = Replacements::new(store, registry, &lanes, &backfills, &feeder, trouble);
    let replacements = Arc::new(replacements);
    let mut threads = Threads::start(&lanes, &live, &backfills, &feeder, &replacements, health);
    lanes.add(id);

    disturb(health, &["programs-new"], "programs", || lanes.wake(None));
    scene.add_all(MIDDLE + 1..=LAST);
    wait_until("the program goes on", || {
        lanes.wake(None);
        scene.status(id).lag == 0
    });
    // On a busy machine, its turns may count as long.
    let known = ["programs-1", "programs-2", "programs-slow"];
    disturb(health, &known, "programs", || lanes.wake(None));
    let first_half = FIRST + (MIDDLE - FIRST) / 2;
    let backfill = |ledgers: LedgerRange| {
        backfills.begin(&registry.get(id).unwrap(), ledgers).unwrap();
    };
    let is_done = || backfills.backfill(id).unwrap().unwrap().state == State::Done;
    health.injected().plan("programs-backfill-new");
    backfill(LedgerRange::new(FIRST, first_half));
    disturb(health, &[], "program backfill", || {});
    wait_until("the backfill goes on", is_done);
    health.injected().plan("programs-backfill");
    health.injected().plan("programs-backfill-slow");
    backfill(LedgerRange::new(first_half + 1, MIDDLE));
    disturb(health, &[], "program backfill", || {});
    wait_until("the second backfill goes on", is_done);
    disturb(health, &["programs-replacing"], "programs", || replacements.wake());
    // The owner's tables get another turn after each of the panics.
    for name in ["tables-1", "tables-2", "tables-3", "tables-4"] {
        disturb(health, &[name], "tables", || feeder.wake());
    }
    let expected = rows_of(&code);
    assert!(expected.len() > 50);
    wait_until("all ledgers are processed", || {
        lanes.wake(None);
        scene.rows(id).len() >= expected.len()
    });
    threads.begin_stop();
    lanes.stop();
    backfills.stop();
    replacements.stop();
    feeder.stop();
    threads.join();
    assert_eq!(scene.rows(id), expected);
}
