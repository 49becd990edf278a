//! Tests programs that need entries from an upstream server, and servers that do not answer.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use orrery_testkit::wait::wait_until;
use parking_lot::{Condvar, Mutex};
use stellar_xdr::{
    ContractDataEntry, ExtensionPoint, LedgerEntry, LedgerEntryData, LedgerEntryExt, LedgerKey,
    LedgerKeyContractData, ScVal,
};

use super::*;
use crate::engine::UpstreamError;
use crate::records;
use crate::state::LookupLimits;
use orrery_ledger::domain::{LiveEntries, LiveEntry};
use orrery_settings::Millis;

/// An upstream server that fails when the closure does, and otherwise returns an old entry for
/// every key of contract data.
pub(super) struct Answers<F>(pub F);

impl<F: Fn(&[LedgerKey]) -> Result<(), UpstreamError>> Upstream for Answers<F> {
    fn look_up(&self, keys: &[LedgerKey], _: Duration) -> Result<LiveEntries, UpstreamError> {
        self.0(keys)?;
        Ok(LiveEntries { as_of: LedgerSeq(1000), entries: keys.iter().map(old).collect() })
    }
}

fn old(key: &LedgerKey) -> Option<LiveEntry> {
    let LedgerKey::ContractData(data) = key else { return None };
    let LedgerKeyContractData { contract, key, durability } = data.clone();
    let entry = LedgerEntry {
        last_modified_ledger_seq: 1,
        data: LedgerEntryData::ContractData(ContractDataEntry {
            ext: ExtensionPoint::V0,
            contract,
            key,
            durability,
            val: ScVal::Void,
        }),
        ext: LedgerEntryExt::V0,
    };
    Some(LiveEntry { entry, live_until: Some(5000) })
}

#[test]
fn a_refused_key_fails_the_run_without_affecting_health() {
    let is_ghost = |key: &LedgerKey| format!("{key:?}").contains("ghost");
    let scene = Scene::asking(Answers(move |keys: &[LedgerKey]| {
        if keys.iter().any(is_ghost) {
            Err(UpstreamError::Refused("http://10.1.2.3/secret says no".to_owned()))
        } else {
            Ok(())
        }
    }));
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(60..=65);
    scene.run_until_idle();
    let runs = records::executions(&scene.store, id, None, 500).unwrap();
    assert!(!runs.is_empty());
    for run in runs {
        assert!(run.state_unavailable, "{run:?}");
        assert!(!run.error.unwrap().contains("10.1.2.3"));
    }
    assert!(!scene.is_down());
}

#[test]
fn a_new_program_makes_upstream_lookups_in_the_upstream_lane() {
    let asked = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&asked);
    let scene = Scene::asking(Answers(move |_: &[LedgerKey]| {
        asks.store(true, Ordering::Relaxed);
        Ok(())
    }));
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(60..=65);
    let mut turns = 0;
    while scene.live.turn(id, Lane::New) != Turn::NeedsUpstream {
        turns += 1;
        assert!(turns < MANY_TURNS);
    }
    assert!(!asked.load(Ordering::Relaxed));
    assert_eq!(scene.live.turn(id, Lane::New), Turn::NeedsUpstream, "as often as it is tried");
    assert!(!scene.is_down());
    assert!(matches!(scene.live.turn(id, Lane::Upstream), Turn::Worked { .. }));
    assert!(asked.load(Ordering::Relaxed));
}

#[test]
fn an_unreachable_server_is_reported_without_its_address() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let scene = Scene::asking(Answers(move |_: &[LedgerKey]| {
        if up.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(UpstreamError::Unreachable("http://10.1.2.3/secret: refused".to_owned()))
        }
    }));
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(60..=65);
    let mut turns = 0;
    while !matches!(scene.live.turn(id, Lane::Fast), Turn::Failed(_)) {
        turns += 1;
        assert!(turns < MANY_TURNS);
    }
    let (component, reason) = scene.health.first_down().unwrap();
    let own = scene.status(id).last_error_message.unwrap();
    assert_eq!(component, "programs");
    for reason in [reason, own] {
        assert!(reason.contains("out of reach") && !reason.contains("10.1.2.3"), "{reason}");
    }
    is_up.store(true, Ordering::Relaxed);
    scene.run_until_idle();
    assert!(!scene.is_down() && scene.status(id).last_error_message.is_none());
    assert!(!scene.rows(id).is_empty());
}

#[test]
fn a_server_that_lags_delays_only_programs_that_query_it() {
    let scene = Scene::asking(Answers(|_: &[LedgerKey]| {
        Err(UpstreamError::Behind(LedgerSeq(3), LedgerSeq(60)))
    }));
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.deploy("bob", "beside", &module(""), NOBODYS).unwrap();
    scene.add_all(60..=65);
    let mut turns = 0;
    while !matches!(scene.live.turn(id, Lane::Fast), Turn::Failed(_)) {
        turns += 1;
        assert!(turns < MANY_TURNS);
    }
    match scene.health("programs") {
        Some(Component::Up { detail: Some(detail) }) => {
            assert_eq!(detail, "1 of 2 programs wait: see the status of each");
        }
        other => panic!("{other:?}"),
    }
    let message = scene.status(id).last_error_message.unwrap();
    assert!(message.starts_with("it waits, and is tried again: the server"), "{message}");
    scene.delete("ana", id).unwrap();
    assert_eq!(scene.health("programs"), Some(Component::Up { detail: None }));
}

/// Returns the code of a program that looks up a thousand entries that are not stored. The keys are
/// numbers and differ between ledgers.
fn asks_for_many() -> Vec<u8> {
    module(
        "(local.set $i (i64.const 0))
         (loop $next
           (drop (call $has_contract_data
             (i64.or (i64.const 4) (i64.or
               (i64.shl (local.get $i) (i64.const 32))
               (i64.shl (i64.extend_i32_u (local.get $now)) (i64.const 48))))
             (i64.const 1)))
           (local.set $i (i64.add (local.get $i) (i64.const 1)))
           (br_if $next (i64.lt_u (local.get $i) (i64.const 1000))))",
    )
}

#[test]
fn a_run_that_asks_for_too_many_entries_fails() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let scene = Scene::asking(Answers(move |keys: &[LedgerKey]| {
        count.fetch_add(keys.len() as u64, Ordering::Relaxed);
        Ok(())
    }));
    let id = scene.deploy("ana", "many", &asks_for_many(), market()).unwrap().id;
    scene.add_all(60..=62);
    scene.run_until_idle();
    let runs = records::executions(&scene.store, id, None, 500).unwrap();
    assert!(!runs.is_empty());
    for run in &runs {
        let error = run.error.as_deref();
        let fault = "the program asked for more than 64 entries that are not stored";
        assert_eq!((error, run.state_unavailable), (Some(fault), false));
    }
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked <= runs.len() as u64 * (64 + 200), "{asked} for {} runs", runs.len());
    assert!(!scene.is_down());
}

/// An upstream server that delays each answer and records the time limit of each request.
struct Slow(Arc<Mutex<Vec<Duration>>>);

impl Slow {
    const TAKES: Duration = Duration::from_millis(20);
}

impl Upstream for Slow {
    fn look_up(&self, keys: &[LedgerKey], within: Duration) -> Result<LiveEntries, UpstreamError> {
        self.0.lock().push(within);
        std::thread::sleep(Self::TAKES);
        Ok(LiveEntries { as_of: LedgerSeq(1000), entries: keys.iter().map(old).collect() })
    }
}

#[test]
fn upstream_lookups_of_a_run_share_one_time_limit() {
    let usual = LookupLimits { entries: 64, time: Duration::from_secs(5) };
    assert_eq!(LookupLimits::from(&settings::Programs::default()), usual);
    // In a ledger with a single call, all requests belong to one run.
    let calls = |ledger| {
        let scene = Scene::asking(Answers(|_: &[LedgerKey]| Ok(())));
        let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
        scene.add(ledger, Durability::Synced);
        scene.run_until_idle();
        scene.rows(id).len()
    };
    let ledger = (60..=LAST).find(|ledger| calls(*ledger) == 1).unwrap();
    let time = 5 * Slow::TAKES;
    let had = Arc::new(Mutex::new(Vec::new()));
    let settings = settings::Programs { lookup_ms: Millis::exactly(time), ..Default::default() };
    let scene = Scene::with(settings, Some(Arc::new(Slow(Arc::clone(&had)))));
    let id = scene.deploy("ana", "many", &asks_for_many(), market()).unwrap().id;
    scene.add(ledger, Durability::Synced);
    scene.run_until_idle();
    let runs = records::executions(&scene.store, id, None, 500).unwrap();
    let errors: Vec<_> = runs.iter().map(|run| run.error.as_deref()).collect();
    let fault = "looking up entries that are not stored took more than 0.1 s";
    let had = std::mem::take(&mut *had.lock());
    assert_eq!(errors, [Some(fault)], "questions had {had:?}");
    assert!(!runs[0].state_unavailable && Duration::from_micros(runs[0].micros) >= time);
    assert!(had[0] <= time && had.len() <= 5, "{had:?}");
    assert!(had.windows(2).all(|pair| pair[1] + Slow::TAKES <= pair[0]), "{had:?}");
}

/// Holds back all requests until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock();
        self.opened.wait_while(&mut is_open, |is_open| !*is_open);
    }
}

/// Opens the gate on drop, so that a failing test does not hang.
struct Opens<'g>(&'g Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        *self.0.is_open.lock() = true;
        self.0.opened.notify_all();
    }
}

#[test]
fn upstream_lookups_count_against_the_owner_of_the_program() {
    let gate = Arc::new(Gate::default());
    let before_answers = Arc::clone(&gate);
    let scene = Scene::asking(Answers(move |_: &[LedgerKey]| {
        before_answers.pass();
        Ok(())
    }));
    let deploy = |owner, project| scene.deploy(owner, project, &module(""), market()).unwrap().id;
    let anas = ["one", "two", "three"].map(|project| deploy("ana", project));
    let bobs = deploy("bob", "four");
    scene.add_all(60..=65);
    let upstream = scene.runner.upstream.as_ref().unwrap();
    let wait_for = |asked, waiting| {
        wait_until("the requests are sent, or wait", || {
            let usage = upstream.usage();
            if (usage.taken, usage.waiting) == (asked, waiting) { Ok(()) } else { Err(usage) }
        });
    };
    std::thread::scope(|scope| {
        let _opens = Opens(&gate);
        let scene = &scene;
        for id in anas {
            scope.spawn(move || scene.live.turn(id, Lane::Fast));
        }
        // An owner has at most two requests in flight, however many programs; other owners do not
        // wait for them.
        wait_for(2, 1);
        scope.spawn(|| scene.live.turn(bobs, Lane::Fast));
        wait_for(3, 1);
    });
    scene.run_until_idle();
    for id in anas.into_iter().chain([bobs]) {
        assert!(!scene.rows(id).is_empty());
    }
}
