//! Tests failures: which program or backfill they stop, and which work is repeated later.

use orrery_testkit::wait::wait_until;
use sha2::{Digest, Sha256};
use stellar_xdr::{LedgerCloseMeta, LedgerKey, Limits, ReadXdr, ScVal, WriteXdr};

use super::asking::Answers;
use super::*;
use crate::backfill::State;
use crate::effects::{Effects, PART_BYTES};
use crate::incomplete_results::IncompleteResults;
use crate::records::RunSource;
use crate::rows::RunRows;
use crate::state::applied_protocol;
use crate::writing::{MAX_ERRORS_IN_A_ROW, WriteOutcome};
use orrery_settings::Kib;
use orrery_store::Retention;

/// Returns the code of a program that fails in ledgers for which `condition` holds.
fn failing(condition: &str) -> Vec<u8> {
    module(&format!("(if {condition} (then unreachable))"))
}

fn before(ledger: u32) -> String {
    format!("(i32.lt_u (local.get $now) (i32.const {ledger}))")
}

fn from(ledger: u32) -> String {
    format!("(i32.ge_u (local.get $now) (i32.const {ledger}))")
}

#[test]
fn a_backfill_repeats_ledgers_whose_write_failed() {
    let code = module("");
    let expected = rows_of(&code);
    for fault in [Fault::NotWritten, Fault::Written] {
        let scene = Scene::new();
        scene.add_all(FIRST..=LAST);
        let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
        scene.begin(id, FIRST, LAST).unwrap();
        scene.fail(move |write| (write < 120 && write % 3 < 2).then_some(fault));
        scene.run_until_idle();
        let backfill = scene.backfill(id);
        assert_eq!(backfill.state, State::Done, "{fault:?}");
        assert_eq!(scene.rows(id), expected, "{fault:?}");
        let count = expected.len() as u64;
        assert_eq!(
            (backfill.executions, backfill.rows, backfill.errors),
            (count, count, 0),
            "{fault:?}"
        );
        assert_eq!(scene.executions(id), count, "each run is recorded once");
        assert_eq!(backfill.done(), u64::from(LAST - FIRST + 1));
        assert!(!scene.is_down());
    }
}

#[test]
fn store_failures_are_reported_and_reported_progress_is_durable() {
    let code = module("");
    let expected = rows_of(&code);
    let mut scene = Scene::new();
    scene.add_all(FIRST..=50);
    let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
    scene.begin(id, FIRST, 50).unwrap();
    scene.fail(|_| Some(Fault::NotWritten));
    let mut turns = 0;
    while !matches!(scene.backfills.turn(id), Turn::Failed(_)) {
        turns += 1;
        assert!(turns < MANY_TURNS);
    }
    let reason = match scene.health("program backfill") {
        Some(Component::Down { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason.contains("the store fails for 1 of 1 programs"), "{reason}");
    assert!(!reason.contains("No space"), "{reason}");
    assert_eq!(scene.backfill(id).state, State::Running);
    assert!(scene.rows(id).is_empty());
    assert!(scene.registry.set_running(&Owner("ana".to_owned()), id, false).is_err());
    assert!(scene.manifest(id).running, "the failed change had no effect");
    scene.store.faults().clear();
    scene.run_until_idle();
    assert!(!scene.is_down());
    scene.restart();
    assert_eq!(scene.backfill(id).state, State::Done);
    let rows = expected.into_iter().filter(|(position, _)| position.ledger.0 <= 50);
    assert_eq!(scene.rows(id), rows.collect());
}

#[test]
fn a_failed_deploy_leaves_nothing_behind() {
    let scene = Scene::new();
    scene.fail(|_| Some(Fault::NotWritten));
    assert!(scene.deploy("ana", "seen", &module(""), market()).is_err());
    scene.store.faults().clear();
    scene.add_all(FIRST..=20);
    assert_eq!(scene.store.consumers(), []);
    // A deploy that failed after it was written exists, and its name is taken.
    scene.fail(|_| Some(Fault::Written));
    assert!(scene.deploy("ana", "seen", &module(""), market()).is_err());
    scene.store.faults().clear();
    let again = scene.deploy("ana", "seen", &module(""), market());
    assert!(matches!(again, Err(ProgramError::OwnProject(_))));
    let id = scene.registry.all()[0].id;
    scene.add_all(21..=30);
    scene.run_until_idle();
    assert!(!scene.rows(id).is_empty());
    // A delete that failed after it was written is in effect, too.
    scene.fail(|_| Some(Fault::Written));
    assert!(scene.delete("ana", id).is_err());
    scene.store.faults().clear();
    scene.run_until_idle();
    assert!(matches!(scene.delete("ana", id), Err(ProgramError::Unknown(_))));
    assert!(scene.registry.all().is_empty());
}

#[test]
fn repeated_failures_in_a_backfill_stop_only_the_backfill() {
    let code = failing(&before(80));
    let all = rows_of(&module("")).into_iter();
    let expected: BTreeMap<_, _> = all.filter(|(position, _)| position.ledger.0 >= 80).collect();
    let scene = Scene::new();
    scene.add_all(FIRST..=79);
    let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
    scene.begin(id, FIRST, 79).unwrap();
    scene.run_until_idle();
    let backfill = scene.backfill(id);
    assert_eq!(backfill.state, State::Stopped);
    let message = backfill.message.as_deref().unwrap();
    assert!(message.starts_with("stopped after 100 failures in a row, the last one"), "{message}");
    assert!(
        backfill.errors >= u64::from(MAX_ERRORS_IN_A_ROW) && backfill.next.0 < 79,
        "{backfill:?}"
    );
    assert!(scene.manifest(id).running);
    assert_eq!(scene.health("programs"), Some(Component::Up { detail: None }));
    scene.add_all(80..=LAST);
    scene.run_until_idle();
    assert_eq!(scene.rows(id), expected);
}

#[test]
fn failures_on_older_ledgers_do_not_stop_a_program() {
    let code = failing(&before(80));
    let all = rows_of(&module("")).into_iter();
    let expected: BTreeMap<_, _> = all.filter(|(position, _)| position.ledger.0 >= 80).collect();
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
    scene.add(80, Durability::Synced);
    scene.run_until_idle();
    scene.add_all(FIRST..=79);
    scene.run_until_idle();
    assert!(scene.status(id).errors >= u64::from(MAX_ERRORS_IN_A_ROW));
    assert!(scene.manifest(id).running);
    scene.add_all(81..=LAST);
    scene.run_until_idle();
    assert_eq!(scene.rows(id), expected);
}

#[test]
fn successful_backfills_do_not_reset_the_failure_count_of_a_program() {
    let code = failing(&from(50));
    let scene = Scene::new();
    scene.add_all(FIRST..=49);
    let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
    let bobs = scene.deploy("bob", "beside", &module(""), market()).unwrap().id;
    for ledger in 50..=LAST {
        scene.add(ledger, Durability::Synced);
        scene.begin(id, 20, 49).unwrap();
        scene.run_until_idle();
        assert_eq!(scene.backfill(id).state, State::Done);
    }
    let manifest = scene.manifest(id);
    assert!(!manifest.running);
    assert!(manifest.stopped_because.unwrap().starts_with("stopped after 100 failures"));
    assert!(scene.status(id).last_error_message.unwrap().starts_with("stopped after 100"));
    assert!(scene.manifest(bobs).running);
    match scene.health("programs") {
        Some(Component::Up { detail: Some(detail) }) => {
            assert_eq!(detail, "1 of 2 programs are stopped: see the status of each");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn waiting_runs_are_made_once_the_earlier_ledgers_are_stored() {
    let code = module("");
    let expected = rows_of(&code);
    let mut scene = Scene::new();
    let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
    scene.add_all(60..=80);
    scene.run_until_idle();
    assert!(scene.rows(id).is_empty());
    let waiting = scene.status(id).runs_waiting;
    let of = |first, last| {
        let inside = |position: &&TransactionPosition| (first..=last).contains(&position.ledger.0);
        expected.keys().filter(inside).count() as u64
    };
    assert!(waiting > 10 && waiting == of(60, 80), "{waiting}");
    match scene.health("programs") {
        Some(Component::Up { detail: Some(detail) }) => {
            assert!(detail.contains(&format!("{waiting} runs wait for ledgers")), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    // A gap remains, a write fails, and the process restarts.
    scene.add_all(20..=58);
    scene.run_until_idle();
    scene.restart();
    assert_eq!(scene.status(id).runs_waiting, of(20, 58) + waiting);
    scene.add(59, Durability::Synced);
    scene.add_all(81..=LAST);
    scene.fail(|write| (write < 10).then_some(Fault::NotWritten));
    scene.run_until_idle();
    assert_eq!(scene.status(id).runs_waiting, of(20, LAST));
    scene.restart();
    // Newest first: unusual for an import, but allowed.
    for ledger in (FIRST..=19).rev() {
        scene.add(ledger, Durability::Synced);
        scene.live.turn(id, Lane::Fast);
    }
    scene.run_until_idle();
    assert_eq!(scene.rows(id), expected);
    assert_eq!(scene.status(id).runs_waiting, 0);
    assert_eq!(scene.health("programs"), Some(Component::Up { detail: None }));
    assert_eq!(storage::waiting_runs(&scene.store, id).unwrap(), []);
}

#[test]
fn waiting_runs_are_deleted_with_their_program() {
    let scene = Scene::new();
    let [id, other] = ["seen", "other"]
        .map(|project| scene.deploy("ana", project, &module(""), market()).unwrap().id);
    scene.add_all(60..=70);
    scene.run_until_idle();
    let waiting = storage::waiting_runs(&scene.store, id).unwrap();
    assert!(!waiting.is_empty());
    scene.delete("ana", id).unwrap();
    assert_eq!(storage::waiting_runs(&scene.store, id).unwrap(), []);
    assert_eq!(storage::waiting_runs(&scene.store, other).unwrap(), waiting);
    assert!(scene.store.shared_row(&storage::progress(other)).unwrap().is_some());
    // A backfill also makes waiting runs once the missing state is available.
    scene.add_all(FIRST..=59);
    scene.begin(other, 60, 70).unwrap();
    while scene.backfill(other).state == State::Running {
        scene.backfills.turn(other);
    }
    assert_eq!(storage::waiting_runs(&scene.store, other).unwrap(), []);
}

#[test]
fn registering_contracts_during_a_turn_keeps_the_cursor() {
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", &module(""), NOBODYS).unwrap().id;
    let entry = scene.registry.get(id).unwrap();
    let before = scene.manifest(id);
    let position = entry.lock().progress.place;
    // Contracts are registered and a ledger is stored after the contracts were read and before the
    // write.
    scene.registry.append(&Owner("ana".to_owned()), id, vec![market()]).unwrap();
    scene.add_all(FIRST..=30);
    let fed = scene.store.fed_after(0, 100);
    let last = fed.last().unwrap().place;
    let processed = scene.live.mark_processed(
        &entry,
        (&before, entry.members.versions()),
        last,
        fed.len(),
        &LedgerSet::default(),
    );
    assert!(!processed.unwrap());
    let mut effects = Effects::none(&before, LedgerSeq(30), RunSource::Live);
    effects.place = last;
    let wrote = scene.runner.write(&entry, &[effects], |progress, _, _, _| {
        progress.place = last;
        None
    });
    assert_eq!(wrote.unwrap(), WriteOutcome::Nothing);
    assert_eq!(entry.lock().progress.place, position);
    scene.run_until_idle();
    let expected = rows_of(&module(""));
    let expected = expected.into_iter().filter(|(position, _)| position.ledger.0 <= 30);
    assert_eq!(scene.rows(id), expected.collect());
}

#[test]
fn a_new_backfill_of_the_same_ledgers_starts_from_the_first() {
    let code = module("");
    let scene = Scene::new();
    scene.add_all(FIRST..=LAST);
    let id = scene.deploy("ana", "seen", &code, NOBODYS).unwrap().id;
    scene.begin(id, FIRST, LAST).unwrap();
    // The backfill is cancelled, contracts are registered, and the backfill is started again.
    let (entry, owner) = (scene.registry.get(id).unwrap(), Owner("ana".to_owned()));
    scene.backfills.cancel(&entry).unwrap();
    scene.registry.append(&owner, id, vec![market()]).unwrap();
    scene.begin(id, FIRST, LAST).unwrap();
    scene.run_until_idle();
    assert_eq!(scene.backfill(id).state, State::Done);
    assert_eq!(scene.rows(id), rows_of(&code));
}

#[test]
fn a_deploy_beside_ingestion_gets_its_place_in_the_feed() {
    let scene = Scene::new();
    let first = scene.deploy("ana", "seen", &module(""), NOBODYS).unwrap().id;
    std::thread::scope(|scope| {
        let deploys = scope.spawn(|| {
            let deploy = |number| scene.deploy("bob", &format!("b{number}"), &module(""), market());
            (0..20).map(|number| deploy(number).unwrap().id).collect::<Vec<_>>()
        });
        for ledger in FIRST..=LAST {
            scene.add(ledger, Durability::Synced);
            scene.live.turn(first, Lane::Fast);
        }
        // Every ledger stored after a program's place in the feed must still follow that place.
        for id in deploys.join().unwrap() {
            let place = scene.registry.get(id).unwrap().lock().progress.place;
            let left = scene.store.fed_after(place, 1000);
            let left: Vec<u32> = left.iter().map(|it| it.ledger.0).collect();
            let next = left.first().copied().unwrap_or(LAST + 1);
            assert_eq!(left, (next..=LAST).collect::<Vec<_>>());
        }
    });
}

/// Ledgers are stored, and may be pruned, between the write that creates a program and the moment
/// at which the program is added to the registry.
#[test]
fn ledgers_stored_during_a_deploy_are_fed_to_the_program() {
    let code = module("");
    let expected: BTreeSet<_> = rows_of(&code).into_keys().collect();
    for removed in [None, Some(25)] {
        let scene = Scene::asking(Answers(|_: &[LedgerKey]| Ok(())));
        scene.add_all(FIRST..=9);
        let id = ProgramId(1);
        std::thread::scope(|scope| {
            let held = scene.registry.block_changes();
            let deploy = scope.spawn(|| scene.deploy("ana", "seen", &code, market()));
            wait_until("the program is written", || {
                assert!(!deploy.is_finished());
                scene.store.shared_row(&storage::manifest(id)).unwrap()
            });
            scene.add_all(10..=30);
            if let Some(last) = removed {
                let transactions = Some(30 - last);
                let retention = Retention { transactions, ..Retention::default() };
                while !scene.store.prune(&retention).unwrap().is_nothing() {}
            }
            drop(held);
            assert_eq!(deploy.join().unwrap().unwrap().id, id);
        });
        scene.run_until_idle();
        let first = removed.map_or(10, |last| last + 1);
        let wanted = expected.iter().filter(|it| (first..=30).contains(&it.ledger.0));
        assert!(scene.rows(id).keys().eq(wanted), "from ledger {first} on");
        let missing = removed.map(|last| LedgerRange::new(10, last));
        assert_eq!(scene.status(id).missing, missing.into_iter().collect());
    }
}

#[test]
fn the_rows_of_a_large_ledger_are_written_in_parts() {
    let settings =
        settings::Programs { emitted_kib: Kib::new(nonzero!(2 << 10)), ..Default::default() };
    let code = large(1_900_000);
    let mut scene = Scene::with(settings, None);
    scene.add_all(FIRST..=20);
    let id = scene.deploy("ana", "large", &code, market()).unwrap().id;
    scene.add_all(21..=40);
    scene.begin(id, FIRST, 20).unwrap();
    let mut parts = 0;
    for _ in 0..MANY_TURNS {
        let turns = [scene.live.turn(id, Lane::Fast), scene.backfills.turn(id)];
        let part = scene.registry.get(id).unwrap().lock().progress.part;
        if part.is_some() || scene.backfill(id).part.is_some() {
            parts += 1;
            scene.restart();
        }
        if turns == [Turn::Idle, Turn::Idle] {
            break;
        }
    }
    assert!(parts > 0, "no ledger has enough calls");
    let expected = rows_of(&module(""));
    let expected: Vec<_> = expected.keys().filter(|position| position.ledger.0 <= 40).collect();
    let rows = scene.rows(id);
    assert_eq!(rows.keys().collect::<Vec<_>>(), expected);
    assert!(rows.values().all(|row| row.len() > 1_900_000));
    assert_eq!(scene.executions(id), expected.len() as u64, "no part is run twice");
    assert_eq!(scene.backfill(id).state, State::Done);
}

#[test]
fn incomplete_results_are_capped_across_programs() {
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    let manifest = scene.manifest(id);
    let effects = |bytes| {
        let mut effects = Effects::none(&manifest, LedgerSeq(9), RunSource::Live);
        effects.bytes = bytes;
        effects
    };
    let incomplete = IncompleteResults::default();
    let kept =
        (1..100).filter(|id| incomplete.keep(ProgramId(*id), effects(PART_BYTES - 1)).is_none());
    assert_eq!(kept.count(), 4);
    assert!(incomplete.keep(ProgramId(200), effects(3)).is_none());
    assert!(incomplete.keep(ProgramId(201), effects(PART_BYTES)).is_some());
    incomplete.forget(ProgramId(1));
    assert!(incomplete.keep(ProgramId(201), effects(PART_BYTES)).is_some(), "it is a part");
    assert!(incomplete.take(ProgramId(2), |_| false).is_none());
    assert!(
        incomplete.take(ProgramId(2), |_| true).is_none(),
        "results that do not fit are discarded"
    );
}

/// Returns the code of a program whose calls emit this number of bytes each.
fn large(bytes: u32) -> Vec<u8> {
    let len = (u64::from(bytes) << 32) | 4;
    module_emitting(&format!(
        "(call $bytes_new_from_linear_memory (i64.const 4) (i64.const {}))",
        len.cast_signed()
    ))
}

/// Returns the ledgers of the chain up to `last`, modified as if the network was upgraded to the
/// next protocol in `ledger`.
fn upgraded_in(ledger: u32, last: u32) -> impl Iterator<Item = Vec<u8>> {
    let mut previous = None;
    CHAIN[..=(last - FIRST) as usize].iter().zip(FIRST..).map(move |(xdr, sequence)| {
        if sequence < ledger {
            return xdr.clone();
        }
        let mut meta = LedgerCloseMeta::from_xdr(xdr, Limits::none()).unwrap();
        let entry = match &mut meta {
            LedgerCloseMeta::V0(meta) => &mut meta.ledger_header,
            LedgerCloseMeta::V1(meta) => &mut meta.ledger_header,
            LedgerCloseMeta::V2(meta) => &mut meta.ledger_header,
        };
        let header = &mut entry.header;
        header.ledger_version += 1;
        if let Some(hash) = previous.take() {
            header.previous_ledger_hash = hash;
        }
        entry.hash.0 = Sha256::digest(header.to_xdr(Limits::none()).unwrap()).into();
        previous = Some(entry.hash.clone());
        meta.to_xdr(Limits::none()).unwrap()
    })
}

#[test]
fn the_upgrade_ledger_is_applied_under_the_old_protocol() {
    let scene = Scene::new();
    for xdr in upgraded_in(FIRST + 1, FIRST + 1) {
        scene.add_xdr(&xdr, Durability::Synced, &IndexOptions::default());
    }
    let stored = |ledger| scene.store.ledger(LedgerSeq(ledger)).unwrap().unwrap().protocol;
    let old = stored(FIRST);
    assert_eq!(stored(FIRST + 1), old + 1);
    let protocol = |ledger| applied_protocol(&scene.store, LedgerSeq(ledger)).unwrap();
    assert_eq!((protocol(FIRST), protocol(FIRST + 1)), (Some(old), Some(old)));
    assert_eq!((protocol(FIRST + 2), protocol(FIRST + 9)), (Some(old + 1), None));
}

#[test]
fn programs_see_the_protocol_that_applied_the_transaction() {
    let code = module_emitting("(call $get_ledger_version)");
    let called: BTreeSet<u32> = rows_of(&code).keys().map(|it| it.ledger.0).collect();
    // The upgrade is in a ledger in which the market is called, as it is before and after.
    let upgrade = *called.iter().find(|ledger| **ledger > 20).unwrap();
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", &code, market()).unwrap().id;
    for xdr in upgraded_in(upgrade, LAST) {
        scene.add_xdr(&xdr, Durability::Synced, &IndexOptions::default());
    }
    scene.run_until_idle();
    let stored = |ledger| scene.store.ledger(LedgerSeq(ledger)).unwrap().unwrap().protocol;
    let old = stored(upgrade - 1);
    assert_eq!(stored(upgrade), old + 1);
    let mut versions = BTreeMap::new();
    for (position, row) in scene.rows(id) {
        let rows = RunRows::decode(&row).unwrap();
        let fields = &rows.emits[0].fields;
        assert_eq!((rows.emits.len(), fields.len()), (1, 1));
        versions.insert(position.ledger.0, fields[0].val.clone());
    }
    let by = |ledger| ScVal::U32(if ledger <= upgrade { old } else { old + 1 });
    let expected = called.iter().map(|ledger| (*ledger, by(*ledger)));
    assert_eq!(versions, expected.collect(), "the upgrade is in ledger {upgrade}");
    assert!(called.range(..upgrade).count() > 0 && called.range(upgrade + 1..).count() > 0);
}
