//! Tests ledgers that a program cannot process, because retention removed them first or they were
//! stored for other contracts: all of them, and no others, must be reported as missing.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::asking::Answers;
use super::*;
use crate::backfill::State;
use crate::registry::TakeOver;
use orrery_store::Retention;
use orrery_testkit::histories;

/// Ledgers of one history.
const LEDGERS: std::ops::RangeInclusive<u32> = FIRST..=31;
const STEPS: usize = 30;

/// Returns a scene whose upstream server supplies all state, so that no run waits for ledgers.
fn scene() -> Scene {
    Scene::asking(Answers(|_: &[stellar_xdr::LedgerKey]| Ok(())))
}

fn listed(contracts: &[ContractId]) -> Option<BTreeSet<ContractId>> {
    Some(contracts.iter().copied().collect())
}

fn set(ledgers: impl IntoIterator<Item = u32>) -> LedgerSet {
    ledgers.into_iter().map(|ledger| LedgerRange::new(ledger, ledger)).collect()
}

fn keep(transactions: u32, wait_for_consumers: u32) -> Retention {
    Retention { transactions: Some(transactions), wait_for_consumers, ..Retention::default() }
}

impl Parts {
    fn prune(&self, retention: &Retention) {
        while !self.store.prune(retention).unwrap().is_nothing() {}
    }

    fn set_running(&self, id: ProgramId, running: bool) {
        self.registry.set_running(&Owner("ana".to_owned()), id, running).unwrap();
    }
}

#[test]
fn ledgers_pruned_before_a_paused_program_ran_are_reported() {
    let mut scene = scene();
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(FIRST..=20);
    scene.run_until_idle();
    scene.set_running(id, false);
    scene.add_all(21..=60);
    // Retention does not wait for a paused program.
    scene.prune(&keep(10, 1000));
    let lost = LedgerSet::from(LedgerRange::new(21, 50));
    assert_eq!(scene.status(id).missing, lost);
    scene.restart();
    assert_eq!(scene.status(id).missing, lost);
    scene.set_running(id, true);
    scene.run_until_idle();
    let rows = scene.rows(id);
    assert!(rows.keys().all(|it| it.ledger.0 <= 20 || it.ledger.0 > 50));
    assert!(rows.keys().any(|it| it.ledger.0 > 50));
    assert_eq!((scene.status(id).missing, scene.status(id).lag), (lost.clone(), 0));
    // A backfill over them reports the same ledgers as missing.
    scene.begin(id, 15, 55).unwrap();
    scene.run_until_idle();
    let backfill = scene.backfill(id);
    assert_eq!(backfill.state, State::Incomplete);
    let has_transactions = |ledger: &u32| {
        let row = scene.store.ledger(LedgerSeq(*ledger)).unwrap().unwrap();
        row.counts.stored_transactions > 0
    };
    let gone = set((15..=50).filter(has_transactions));
    assert_eq!((&backfill.missing_ledgers, backfill.missing()), (&gone, gone.ledgers()));
    assert_eq!(backfill.done(), 41 - gone.ledgers());
    // The backfill covered the ledgers without transactions, so they are no longer missing.
    assert_eq!(scene.status(id).missing, gone.within(LedgerRange::new(21, 50)));
}

#[test]
fn what_a_backfill_could_not_read_stays_missing_until_it_is_read() {
    let mut scene = scene();
    scene.add_all(FIRST..=40);
    scene.prune(&keep(20, 0));
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.begin(id, FIRST, 45).unwrap();
    scene.run_until_idle();
    let backfill = scene.backfill(id);
    assert_eq!(backfill.state, State::Incomplete);
    let removed = backfill.partial_ledgers.clone();
    assert!(removed.ledgers() > 5 && removed.ranges().last().unwrap().last.0 <= 20, "{removed:?}");
    let message = backfill.message.unwrap();
    // Ledgers that are not stored can be fetched, those that were removed cannot.
    assert!(
        message.contains("5 of the ledgers that were asked for are not stored: fetch"),
        "{message}"
    );
    let partly = format!("{} of the ledgers that were asked for are stored in", removed.ledgers());
    assert!(message.contains(&partly), "{message}");
    assert_eq!(scene.status(id).missing, removed, "not those that may still come");
    scene.begin(id, 30, 35).unwrap();
    scene.run_until_idle();
    assert_eq!(scene.backfill(id).state, State::Done);
    scene.restart();
    assert_eq!(scene.status(id).missing, removed, "another backfill does not hide them");
}

/// Rows that lack behind many that do not.
#[test]
fn every_row_is_compared_before_a_program_is_replaced() {
    let scene = scene();
    let old = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(FIRST..=LAST);
    scene.run_until_idle();
    let deploy = Deploy {
        code: module_emitting("(call $get_ledger_version)"),
        project_name: "seen".to_owned(),
        contracts: Vec::new(),
        public: None,
        replace: Replace::WithoutLoss,
        allow_unfit: false,
    };
    let id = scene.registry.deploy(&Owner("ana".to_owned()), deploy, 2, |_, _| Ok(())).unwrap().id;
    let entry = scene.registry.get(id).unwrap();
    scene.replacements.step(&entry).unwrap();
    scene.run_until_idle();
    let rows = scene.rows(id);
    assert!(rows.len() > 64 && rows.len() == scene.rows(old).len(), "{}", rows.len());
    // All ledgers count as read in part, and the last row is not there.
    let last = *rows.keys().last().unwrap();
    let change = |changes: &mut orrery_store::KindChanges<'_>| {
        changes.put_seen(id, &LedgerRange::new(FIRST, LAST).into(), false);
        changes.delete(&storage::rows_of_run(id, last))
    };
    storage::change(&scene.store, change).unwrap();
    let take_over = |is_copied| {
        let tries =
            (0..rows.len()).map(|_| scene.registry.take_over(&entry, |_| is_copied).unwrap());
        tries.filter(|taken| *taken != TakeOver::NotYet).collect::<Vec<_>>()
    };
    // It is not forgotten.
    let lost = take_over(true);
    assert!(lost.len() > 2 && lost.iter().all(|it| *it == TakeOver::Loses(set([last.ledger.0]))));
    let put = |changes: &mut orrery_store::KindChanges<'_>| {
        changes.put(&storage::rows_of_run(id, last), &rows[&last])
    };
    storage::change(&scene.store, put).unwrap();
    assert_eq!(take_over(false), []);
    // A row that the other one gets later, of a ledger that was compared.
    let late = TransactionPosition { application_order: last.application_order + 1, ..last };
    let change = |changes: &mut orrery_store::KindChanges<'_>| {
        let mut progress = scene.registry.get(old).unwrap().lock().progress;
        progress.log += 1;
        storage::put_rows(changes, old, late, progress.log, &rows[&last])?;
        storage::put_json(changes, &storage::progress(old), &progress)
    };
    storage::change(&scene.store, change).unwrap();
    scene.registry.get(old).unwrap().lock().in_doubt = true;
    assert_eq!(scene.registry.take_over(&entry, |_| true).unwrap(), lost[0]);
    let put = |changes: &mut orrery_store::KindChanges<'_>| {
        changes.put(&storage::rows_of_run(id, late), &rows[&last])
    };
    storage::change(&scene.store, put).unwrap();
    assert_eq!(scene.registry.take_over(&entry, |_| true).unwrap(), TakeOver::Done(old));
}

#[test]
fn a_program_whose_rows_would_be_lost_is_replaced_only_if_that_is_allowed() {
    let mut scene = scene();
    let old = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(FIRST..=40);
    scene.run_until_idle();
    let rows = scene.rows(old);
    scene.prune(&keep(20, 0));
    let deploy = |scene: &Scene, replace| {
        let deploy = Deploy {
            code: module_emitting("(call $get_ledger_version)"),
            project_name: "seen".to_owned(),
            contracts: Vec::new(),
            public: None,
            replace,
            allow_unfit: false,
        };
        let id =
            scene.registry.deploy(&Owner("ana".to_owned()), deploy, 2, |_, _| Ok(())).unwrap().id;
        let entry = scene.registry.get(id).unwrap();
        scene.replacements.step(&entry).unwrap();
        scene.run_until_idle();
        (id, entry)
    };
    let lost = |rows: &BTreeMap<TransactionPosition, Vec<u8>>| {
        set(rows.keys().map(|at| at.ledger.0).filter(|ledger| *ledger <= 20))
    };
    let (id, entry) = deploy(&scene, Replace::WithoutLoss);
    let taken = scene.registry.take_over(&entry, |_| true).unwrap();
    assert_eq!(taken, TakeOver::Loses(lost(&rows)));
    scene.replacements.step(&entry).unwrap();
    assert!(scene.registry.get(id).is_none());
    for _ in 0..2 {
        assert_eq!(scene.rows(old), rows, "the old one is as before");
        let because = scene.status(old).replacement_failed.unwrap();
        assert!(because.contains("would be lost") && because.contains("--allow-loss"), "{because}");
        scene.restart();
    }
    let (id, entry) = deploy(&scene, Replace::AllowingLoss);
    assert_eq!(scene.registry.take_over(&entry, |_| true).unwrap(), TakeOver::Done(old));
    let missing = scene.status(id).missing;
    let all: LedgerSet = lost(&rows);
    let seen = all.ranges().iter().map(|range| missing.within(*range).ledgers()).sum::<u64>();
    assert_eq!(seen, all.ledgers(), "what is lost is said: {missing:?}");
    // What was lost to the one is lost to the next that replaces it, which loses no row.
    let rows = scene.rows(id);
    let (next, entry) = deploy(&scene, Replace::WithoutLoss);
    assert_eq!(scene.registry.take_over(&entry, |_| true).unwrap(), TakeOver::Done(id));
    assert_eq!(scene.status(next).missing, missing);
    assert_eq!(scene.rows(next).len(), rows.len());
}

#[test]
fn retention_waits_for_a_running_program_up_to_its_limit() {
    let scene = scene();
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(FIRST..=40);
    // The program has had no turn yet.
    scene.prune(&keep(10, 30));
    let all_are_there = |ledgers: std::ops::RangeInclusive<u32>| {
        ledgers.into_iter().all(|it| scene.store.has_all_transactions(LedgerSeq(it)).unwrap())
    };
    assert!(all_are_there(FIRST..=40));
    assert!(scene.status(id).missing.is_empty());
    scene.prune(&keep(10, 20));
    assert_eq!(scene.status(id).missing.ranges(), [LedgerRange::new(FIRST, 10)]);
    assert!(all_are_there(11..=40));
    scene.run_until_idle();
    scene.prune(&keep(10, 20));
    assert_eq!(scene.status(id).missing.ranges(), [LedgerRange::new(FIRST, 10)]);
    assert!(!all_are_there(11..=30));
    let seen: BTreeSet<u32> = scene.rows(id).keys().map(|it| it.ledger.0).collect();
    assert!(seen.iter().all(|it| *it > 10) && seen.iter().any(|it| *it < 15));
}

#[test]
fn ledgers_stored_for_other_contracts_are_reported_as_missing() {
    let mut scene = scene();
    scene.add_listed(FIRST, Durability::Synced, listed(&[NOBODYS]));
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    for (ledgers, contracts) in [
        (3..=5, None),
        (6..=9, listed(&[NOBODYS])),
        (10..=12, listed(&[NOBODYS, market()])),
        (13..=13, listed(&[NOBODYS])),
        (14..=15, None),
    ] {
        ledgers.for_each(|it| scene.add_listed(it, Durability::Synced, contracts.clone()));
    }
    scene.run_until_idle();
    let expected = set([6, 7, 8, 9, 13]);
    assert_eq!(scene.status(id).missing, expected);
    scene.restart();
    scene.begin(id, FIRST, 15).unwrap();
    scene.run_until_idle();
    assert_eq!(scene.backfill(id).missing_ledgers, set([2, 6, 7, 8, 9, 13]));
    assert_eq!(scene.backfill(id).state, State::Incomplete);
    let all = set([2, 6, 7, 8, 9, 13]);
    assert_eq!(scene.status(id).missing, all, "also what the backfill could not read");
    // A program cannot be deployed for a contract that the list of indexed contracts excludes.
    let mut scene = Scene::closed(settings::Programs::default(), None);
    scene.index.contracts = vec![NOBODYS];
    scene.restart();
    let refused = scene.deploy("ana", "seen", &module(""), market()).unwrap_err();
    assert!(matches!(refused, ProgramError::NotIndexed(id) if id == market()), "{refused}");
    let id = scene.deploy("ana", "seen", &module(""), NOBODYS).unwrap().id;
    let owner = Owner("ana".to_owned());
    let refused = scene.registry.append(&owner, id, vec![market()]).unwrap_err();
    assert!(matches!(refused, ProgramError::NotIndexed(id) if id == market()), "{refused}");
    assert_eq!(scene.manifest(id).contracts, [NOBODYS]);
}

/// What must be reported for the program and for its last backfill.
#[derive(Debug, Default)]
struct Model {
    /// Stored ledgers in the order of ingestion, with whether the market was left out.
    stored: Vec<(u32, bool)>,
    /// Ledgers whose transactions retention has removed.
    removed: BTreeSet<u32>,
    /// Ledgers whose runs were waiting for other ledgers during a prune.
    waited: BTreeSet<u32>,
    /// Number of stored ledgers, in the order of ingestion, that the program has passed.
    passed: usize,
    running: bool,
    missing: LedgerSet,
}

struct History {
    scene: Scene,
    rng: ChaCha8Rng,
    id: ProgramId,
    model: Model,
    /// Events so far, printed when the test fails.
    log: Vec<String>,
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log.join("\n"));
            eprintln!("{:?}", self.model);
            let cell = self.scene.registry.get(self.id).unwrap();
            let cell = cell.lock();
            eprintln!("{:?} waiting {:?}", cell.progress, cell.waiting.positions());
            for (ledger, _) in &self.model.stored {
                let ledger = LedgerSeq(*ledger);
                eprintln!(
                    "{ledger}: out {:?} whole {:?} stored {:?}",
                    self.scene.store.leaves_out(ledger, &[market()]),
                    self.scene.store.has_all_transactions(ledger),
                    self.scene.store.ledger(ledger).unwrap().unwrap().counts.stored_transactions
                );
            }
        }
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let scene = scene();
        let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
        let model = Model { running: true, ..Model::default() };
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { scene, rng, id, model, log: Vec::new() }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..10) {
            0..4 => self.ledgers(),
            4..6 => self.run_until_idle(),
            6 => {
                self.model.running = self.rng.random_bool(0.5);
                self.scene.set_running(self.id, self.model.running);
            }
            7 => self.prune(),
            8 => self.backfill(),
            _ => {
                // Without written cursors the program would resume after the last ledger with runs,
                // and retention might remove ledgers that it had already passed.
                self.scene.store.write_cursors().unwrap();
                self.scene.restart();
                self.log.push("restart".to_owned());
            }
        }
        self.check();
    }

    /// Checks that the reported ledgers are those of the model. Also allowed are ledgers whose runs
    /// were waiting when retention removed their transactions: they are reported once the runs are
    /// retried.
    fn check(&mut self) {
        let reported = self.scene.status(self.id).missing;
        let model = &mut self.model;
        let (mut unreported, mut more) = (model.missing.clone(), reported.clone());
        unreported.remove_all(&reported);
        more.remove_all(&model.missing);
        assert!(unreported.is_empty(), "not reported: {unreported:?}");
        let gone: LedgerSet = set(model.waited.intersection(&model.removed).copied());
        let mut invented = more;
        invented.remove_all(&gone);
        assert!(invented.is_empty(), "reported but not missing: {invented:?}");
        model.missing = reported;
    }

    fn ledgers(&mut self) {
        let stored: BTreeSet<u32> = self.model.stored.iter().map(|(ledger, _)| *ledger).collect();
        let missing: Vec<u32> = LEDGERS.filter(|it| !stored.contains(it)).collect();
        let Some(first) = missing.choose(&mut self.rng).copied() else { return };
        let first = if self.rng.random_bool(0.5) { missing[0] } else { first };
        let most = self.rng.random_range(1..6);
        let left_out = self.rng.random_bool(0.3);
        let contracts = match (left_out, self.rng.random_bool(0.5)) {
            (true, _) => listed(&[NOBODYS]),
            (false, true) => None,
            (false, false) => listed(&[market()]),
        };
        let deferred = self.rng.random_bool(0.5);
        let durability = if deferred { Durability::Deferred } else { Durability::Synced };
        for ledger in (first..).take(most).filter(|it| missing.contains(it)) {
            self.scene.add_listed(ledger, durability, contracts.clone());
            self.model.stored.push((ledger, left_out));
            self.log.push(format!("ledger {ledger}, left out {left_out}, {contracts:?}"));
        }
        self.scene.store.flush().unwrap();
    }

    /// Gives the program turns until it is idle.
    fn run_until_idle(&mut self) {
        self.scene.run_until_idle();
        self.log.push(format!("turns, running {}", self.model.running));
        if self.model.running {
            let unseen = &self.model.stored[self.model.passed..];
            let left_out = unseen.iter().filter(|(_, left_out)| *left_out);
            self.model.missing.insert_all(&set(left_out.map(|(ledger, _)| *ledger)));
            self.model.passed = self.model.stored.len();
        }
    }

    fn prune(&mut self) {
        let kept = self.rng.random_range(1..20);
        let wait = if self.rng.random_bool(0.5) { self.rng.random_range(0..20) } else { 0 };
        let entry = self.scene.registry.get(self.id).unwrap();
        let waiting = entry.lock().waiting.positions();
        self.scene.prune(&keep(kept, wait));
        let Model { stored, removed, waited, passed, running, missing } = &mut self.model;
        waited.extend(waiting.iter().map(|position| position.ledger.0));
        let Some(latest) = stored.iter().map(|(ledger, _)| *ledger).max() else { return };
        let wanted = (latest + 1).saturating_sub(kept);
        let unseen: Vec<u32> = stored[*passed..].iter().map(|(ledger, _)| *ledger).collect();
        let awaited = unseen.iter().filter(|it| **it + wait >= wanted && **it < wanted);
        let awaited = awaited.filter(|it| *running && !missing.contains(LedgerSeq(**it))).min();
        let floor = awaited.copied().unwrap_or(wanted);
        self.log.push(format!("pruned below {floor}, wanted {wanted}, waited {wait}"));
        missing.insert_all(&set(unseen.into_iter().filter(|it| *it < floor)));
        let rows = stored.iter().filter(|(ledger, _)| *ledger < floor);
        removed.extend(rows.map(|(ledger, _)| *ledger));
    }

    fn backfill(&mut self) {
        let first = self.rng.random_range(LEDGERS);
        let last = self.rng.random_range(first..=*LEDGERS.end());
        self.scene.begin(self.id, first, last).unwrap();
        self.log.push(format!("backfill {first} to {last}"));
        self.run_until_idle();
        let backfill = self.scene.backfill(self.id);
        let expected = set((first..=last).filter(|it| self.is_missing(*it)));
        assert_eq!(backfill.missing_ledgers, expected, "{first} to {last}: {backfill:?}");
        let state = if expected.is_empty() { State::Done } else { State::Incomplete };
        assert_eq!((backfill.state, backfill.missing()), (state, expected.ledgers()));
        self.model.missing.remove_all(&backfill.processed_ledgers());
    }

    /// Returns whether a program cannot be run on everything that the ledger held.
    fn is_missing(&self, ledger: u32) -> bool {
        let Some((_, left_out)) = self.model.stored.iter().find(|(it, _)| *it == ledger) else {
            return true;
        };
        let row = self.scene.store.ledger(LedgerSeq(ledger)).unwrap().unwrap();
        let had_some = row.counts.stored_transactions > 0;
        *left_out || (had_some && self.model.removed.contains(&ledger))
    }

    /// Checks that in the end the program has passed every stored ledger.
    fn end(&mut self) {
        self.model.running = true;
        self.scene.set_running(self.id, true);
        self.run_until_idle();
        self.check();
        let place = self.scene.store.cursor(&storage::consumer(self.id)).unwrap();
        let seen = self.scene.registry.get(self.id).unwrap().lock().progress.place;
        assert_eq!(seen, self.model.stored.len() as u64);
        assert_eq!(place, Some(seen));
    }
}

/// The small test size runs 40 histories, the full one 10,000.
#[test]
fn random_histories_report_exactly_the_missing_ledgers() {
    histories::run(40, 10_000, |seed| {
        let mut history = History::new(seed);
        (0..STEPS).for_each(|_| history.step());
        history.end();
    });
}
