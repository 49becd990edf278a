//! Programs that are to replace others: which ledgers they process, when they take the other one's
//! place, and that the write in which they do is made or not made.

use sha2::{Digest, Sha256};

use super::*;
use crate::backfill::State;
use crate::registry::TakeOver;
use orrery_settings::Mib;

/// Code whose rows differ from those of [`next_version`].
fn version() -> Vec<u8> {
    module("")
}

fn next_version() -> Vec<u8> {
    module_emitting("(call $get_ledger_version)")
}

fn ana() -> Owner {
    Owner("ana".to_owned())
}

impl Parts {
    fn replace(&self, code: &[u8]) -> Result<Manifest, ProgramError> {
        self.replace_as("ana", "seen", code, None)
    }

    fn replace_as(
        &self,
        owner: &str,
        project: &str,
        code: &[u8],
        public: Option<bool>,
    ) -> Result<Manifest, ProgramError> {
        let deploy = Deploy {
            code: code.to_vec(),
            project_name: project.to_owned(),
            contracts: Vec::new(),
            public,
            replace: Replace::WithoutLoss,
            allow_unfit: false,
        };
        let deployed = self.registry.deploy(&Owner(owner.to_owned()), deploy, 2, |_, _| Ok(()))?;
        self.step(deployed.id);
        Ok(deployed)
    }

    fn step(&self, id: ProgramId) {
        self.replacements.step(&self.registry.get(id).unwrap()).unwrap();
    }

    /// Lets a program take the other one's place as if its rows were in all tables.
    fn take_over(&self, id: ProgramId) -> Result<TakeOver, ProgramError> {
        self.registry.take_over(&self.registry.get(id).unwrap(), |_| true)
    }

    fn named(&self, name: &str) -> Vec<ProgramId> {
        let all = self.registry.all().into_iter();
        let named = all.filter(|it| it.snapshot().manifest.project_name == name);
        named.map(|it| it.id).collect()
    }
}

#[test]
fn a_program_takes_the_place_of_another_when_it_has_processed_the_same_ledgers() {
    let mut scene = Scene::new();
    let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
    scene.add_all(FIRST..=30);
    let new = scene.replace(&next_version()).unwrap();
    assert_eq!(new.contracts, [market()], "those of the other one");
    assert_eq!(new.project_name, "");
    let id = new.id;
    scene.add_all(31..=40);
    scene.run_until_idle();
    scene.step(id);
    assert_eq!(scene.named("seen"), [old], "its rows are in no tables");
    let not_copied = scene.registry.take_over(&scene.registry.get(id).unwrap(), |_| false);
    assert_eq!(not_copied.unwrap(), TakeOver::NotYet);
    assert_eq!(scene.status(id).replaces.as_deref(), Some("seen"));
    scene.add(41, Durability::Synced);
    scene.live.turn(old, Lane::Fast);
    assert_eq!(scene.take_over(id).unwrap(), TakeOver::NotYet, "the other one is ahead");
    scene.run_until_idle();
    let mut copied = None;
    let done = scene.registry.take_over(&scene.registry.get(id).unwrap(), |log| {
        copied = Some(log);
        true
    });
    assert_eq!(done.unwrap(), TakeOver::Done(old));
    let expected: BTreeMap<_, _> =
        rows_of(&next_version()).into_iter().filter(|(at, _)| at.ledger.0 <= 41).collect();
    for _ in 0..2 {
        assert_eq!(scene.rows(id), expected);
        assert_eq!(copied, Some(expected.len() as u64), "all rows are asked for");
        assert_eq!(scene.named("seen"), [id]);
        assert_eq!(scene.status(id).replaces, None);
        assert!(scene.registry.get(old).is_none() && scene.rows(old).is_empty());
        let old_module = Hash32(Sha256::digest(version()).into());
        assert_eq!(scene.store.shared_row(&storage::module(&old_module)).unwrap(), None);
        scene.restart();
    }
}

#[test]
fn the_stored_ledgers_that_the_other_one_has_processed_are_processed() {
    let mut scene = Scene::new();
    scene.add_all(FIRST..=20);
    let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
    scene.add_all(21..=30);
    for (first, last) in [(5, 10), (8, 13)] {
        scene.begin(old, first, last).unwrap();
        scene.run_until_idle();
    }
    scene.begin(old, 16, 17).unwrap();
    let ids: Vec<_> = [next_version(), version()]
        .iter()
        .map(|code| {
            let replaced = scene.named("seen")[0];
            let id = scene.replace(code).unwrap().id;
            scene.add(31 + id.0 - 2, Durability::Synced);
            scene.restart();
            scene.run_until_idle();
            assert_eq!(scene.backfill(id).state, State::Done);
            assert_eq!(scene.take_over(id).unwrap(), TakeOver::Done(replaced));
            id
        })
        .collect();
    let expected = [5..=13, 16..=17, 21..=32];
    let is_expected = |ledger: u32| expected.iter().any(|range| range.contains(&ledger));
    let rows: Vec<_> = scene.rows(ids[1]).into_keys().collect();
    let all = rows_of(&version()).into_keys();
    let all: Vec<_> = all.filter(|at| is_expected(at.ledger.0)).collect();
    assert_eq!(rows, all);
    assert_eq!(scene.executions(ids[1]), all.len() as u64, "each run is made once");
}

#[test]
fn a_failed_write_leaves_the_one_or_the_other_under_the_name() {
    for fault in [Fault::NotWritten, Fault::Written] {
        for restarts in [false, true] {
            let mut scene = Scene::new();
            let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
            scene.add_all(FIRST..=20);
            let id = scene.replace(&next_version()).unwrap().id;
            scene.run_until_idle();
            scene.fail(move |write| (write == 0).then_some(fault));
            assert!(scene.take_over(id).is_err());
            scene.store.faults().clear();
            if restarts {
                scene.restart();
                let expected = if fault == Fault::Written { id } else { old };
                assert_eq!(scene.named("seen"), [expected]);
            }
            // Whichever has the next turn.
            scene.live.turn(old, Lane::Fast);
            let named = scene.named("seen");
            assert_eq!(named.len(), 1, "{fault:?} {restarts}");
            if fault == Fault::Written {
                assert_eq!(named, [id]);
                assert!(scene.registry.get(old).is_none());
            } else {
                assert_eq!(scene.take_over(id).unwrap(), TakeOver::Done(old));
            }
            assert_eq!(scene.named("seen"), [id]);
            let rows = scene.rows(id);
            assert!(!rows.is_empty() && rows.keys().all(|at| at.ledger.0 <= 20));
        }
    }
}

#[test]
fn a_take_over_that_was_reported_as_failed_is_completed() {
    let scene = Scene::new();
    let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
    let id = scene.replace(&next_version()).unwrap().id;
    scene.run_until_idle();
    scene.fail(|write| (write == 0).then_some(Fault::Written));
    assert!(scene.take_over(id).is_err());
    assert_eq!(scene.take_over(id).unwrap(), TakeOver::Done(old));
    assert_eq!(scene.named("seen"), [id]);
    assert_eq!(scene.take_over(id).unwrap(), TakeOver::Nothing);
}

#[test]
fn only_one_replacement_of_an_own_project_is_possible() {
    let scene = Scene::new();
    let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
    assert!(
        matches!(scene.replace_as("ana", "sean", &version(), None), Err(ProgramError::UnknownProject(name)) if name == "sean")
    );
    // A private project of another owner looks like none; a public one is known to all.
    let by_bob = |project: &str| scene.replace_as("bob", project, &version(), None).unwrap_err();
    assert_eq!(by_bob("seen").to_string(), by_bob("sean").to_string().replace("sean", "seen"));
    assert!(matches!(by_bob("seen"), ProgramError::UnknownProject(_)));
    let public = Deploy {
        code: version(),
        project_name: "shown".to_owned(),
        contracts: vec![market()],
        public: Some(true),
        replace: Replace::No,
        allow_unfit: false,
    };
    let shown =
        scene.registry.deploy(&Owner("ana".to_owned()), public, 1, |_, _| Ok(())).unwrap().id;
    assert!(matches!(by_bob("shown"), ProgramError::OthersProject(_)));
    assert!(matches!(
        scene.replace_as("ana", "", &version(), None),
        Err(ProgramError::Value { .. })
    ));
    let id = scene.replace_as("ana", "SEEN", &next_version(), None).unwrap().id;
    let is_running = |error: ProgramError| matches!(error, ProgramError::ReplacementRunning { project, by } if project == "seen" && by == id);
    assert!(is_running(scene.replace(&version()).unwrap_err()));
    for program in [old, id] {
        assert!(is_running(scene.registry.append(&ana(), program, vec![NOBODYS]).unwrap_err()));
        let entry = scene.registry.get(program).unwrap();
        assert!(is_running(scene.registry.block_replacing(&entry).map(drop).unwrap_err()));
    }
    // Cancelled, the project is as before.
    scene.delete("ana", id).unwrap();
    assert_eq!(scene.named("seen"), [old]);
    scene.registry.append(&ana(), old, vec![NOBODYS]).unwrap();
    let id = scene.replace(&next_version()).unwrap().id;
    assert_eq!(
        scene.registry.delete(&ana(), old).unwrap(),
        [id, old],
        "nothing is left to replace"
    );
    assert_eq!(scene.named("shown"), [shown]);
    assert_eq!(scene.registry.all().len(), 1);
}

#[test]
fn a_program_and_its_replacement_count_once() {
    let rows: u64 = rows_of(&version()).values().map(|row| row.len() as u64).sum();
    let settings = settings::Programs {
        owner_programs: nonzero!(1),
        owner_mib: Mib::exactly(rows * 3 / 2),
        ..Default::default()
    };
    let scene = Scene::with(settings, None);
    let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
    scene.add_all(FIRST..=LAST);
    scene.run_until_idle();
    let id = scene.replace(&module("(nop)")).unwrap().id;
    let refused = scene.deploy("ana", "other", &version(), market());
    assert!(matches!(refused, Err(ProgramError::TooManyPrograms(1))));
    scene.run_until_idle();
    assert_eq!(scene.backfill(id).state, State::Done, "{:?}", scene.backfill(id));
    let entry = scene.registry.get(id).unwrap();
    assert_eq!(entry.owner_bytes(), rows);
    assert_eq!(scene.registry.get(old).unwrap().owner_bytes(), rows);
    assert_eq!(scene.take_over(id).unwrap(), TakeOver::Done(old));
    assert_eq!(entry.owner_bytes(), rows);
    let id = scene.replace(&version()).unwrap().id;
    scene.delete("ana", id).unwrap();
    assert_eq!(entry.owner_bytes(), rows);
}

#[test]
fn a_program_that_cannot_replace_another_goes_and_the_reason_stays() {
    let large = module_emitting(
        "(call $bytes_new_from_linear_memory (i64.const 4) (i64.const 17179869184004))",
    );
    for failed_writes in [0, 1] {
        let settings =
            settings::Programs { owner_mib: Mib::exactly(8 << 10), ..Default::default() };
        let mut scene = Scene::with(settings, None);
        let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
        scene.add_all(FIRST..=20);
        scene.run_until_idle();
        let rows = scene.rows(old);
        let id = scene.replace(&large).unwrap().id;
        scene.run_until_idle();
        let stopped = scene.manifest(id).stopped_because;
        assert!(stopped.is_some(), "the rows are too many: {:?}", scene.backfill(id));
        scene.fail(move |write| (write < failed_writes).then_some(Fault::NotWritten));
        let entry = scene.registry.get(id).unwrap();
        for attempt in 0..=failed_writes {
            assert_eq!(scene.replacements.step(&entry).is_ok(), attempt == failed_writes);
        }
        assert!(scene.registry.get(id).is_none() && scene.rows(id).is_empty());
        for _ in 0..2 {
            assert_eq!(scene.named("seen"), [old]);
            assert_eq!(scene.rows(old), rows);
            let status = scene.status(old);
            let because = status.replacement_failed.unwrap();
            assert!(
                because.starts_with(&format!("program {id} did not replace it: the rows of")),
                "{because}"
            );
            assert!(status.running);
            scene.restart();
        }
        scene.replace(&next_version()).unwrap();
        assert_eq!(scene.status(old).replacement_failed, None);
    }
}

#[test]
fn subscribers_go_over_to_the_new_program_unless_it_is_private() {
    for private in [false, true] {
        let mut scene = Scene::new();
        let bob = Owner("bob".to_owned());
        let deploy = Deploy {
            code: version(),
            project_name: "seen".to_owned(),
            contracts: vec![market()],
            public: Some(true),
            replace: Replace::No,
            allow_unfit: false,
        };
        let old = scene.registry.deploy(&ana(), deploy, 1, |_, _| Ok(())).unwrap().id;
        scene.registry.subscribe(&bob, "seen").unwrap();
        let id =
            scene.replace_as("ana", "seen", &next_version(), private.then_some(false)).unwrap().id;
        scene.run_until_idle();
        assert!(scene.registry.subscribe(&bob, "").is_err(), "it has no name");
        let read = |scene: &Scene| -> Vec<ProgramId> {
            scene.registry.readable_programs(&bob).into_iter().map(|it| it.id).collect()
        };
        let readers = |scene: &Scene| scene.registry.readers_of(&scene.registry.get(id).unwrap());
        if private {
            assert_eq!((read(&scene), readers(&scene)), (vec![old], vec![ana()]));
        } else {
            assert_eq!((read(&scene), readers(&scene)), (vec![old, id], vec![ana(), bob.clone()]));
        }
        assert_eq!(scene.take_over(id).unwrap(), TakeOver::Done(old));
        for _ in 0..2 {
            assert_eq!(read(&scene), if private { vec![] } else { vec![id] });
            scene.restart();
        }
        if !private {
            scene.registry.unsubscribe(&bob, "seen").unwrap();
            assert!(read(&scene).is_empty());
        }
    }
}

#[test]
fn a_paused_program_waits_and_replaces_a_paused_one() {
    let scene = Scene::new();
    let old = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
    scene.add_all(FIRST..=20);
    scene.registry.set_running(&ana(), old, false).unwrap();
    let id = scene.replace(&next_version()).unwrap().id;
    scene.registry.set_running(&ana(), id, false).unwrap();
    scene.run_until_idle();
    scene.step(id);
    assert_eq!(scene.take_over(id).unwrap(), TakeOver::NotYet);
    scene.registry.set_running(&ana(), id, true).unwrap();
    assert_eq!(scene.take_over(id).unwrap(), TakeOver::Done(old));
    assert!(scene.manifest(id).running);
}

#[test]
fn a_project_that_had_its_name_before_it_was_reserved_can_be_replaced() {
    let mut scene = Scene::new();
    assert!(scene.deploy("ana", "chain", &version(), market()).is_err());
    let id = scene.deploy("ana", "seen", &version(), market()).unwrap().id;
    let before = Manifest { project_name: "Chain".to_owned(), ..scene.manifest(id) };
    storage::change(&scene.store, |changes| {
        storage::put_json(changes, &storage::manifest(id), &before)
    })
    .unwrap();
    scene.restart();
    scene.add_all(FIRST..=20);
    scene.run_until_idle();
    // Nobody else gets it so.
    for owner in ["ben", "ana"] {
        assert!(scene.deploy(owner, "chain", &next_version(), market()).is_err(), "{owner}");
    }
    let refused = scene.replace_as("ben", "chain", &next_version(), None);
    assert!(matches!(refused, Err(ProgramError::Value { .. })), "{refused:?}");
    let new = scene.replace_as("ana", "chain", &next_version(), None).unwrap().id;
    scene.run_until_idle();
    assert_eq!(scene.take_over(new).unwrap(), TakeOver::Done(id));
    assert_eq!(scene.named("Chain"), [new]);
}
