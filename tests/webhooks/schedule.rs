//! When deliveries are sent. The test decides the outcome of attempts and moves the clock.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orrery::domain::ContractId;
use orrery::settings::{Webhooks, nonzero};
use orrery::store::{Fault, RowBounds, WriteKind};
use orrery::webhooks::WebhookError;
use orrery::webhooks::rows::State;
use orrery::webhooks::target::{AttemptResult, Sender};
use tempfile::TempDir;

use super::world::{Answers, BEGINNING, Chain, Sent, World, owner, status, symbol, unreachable};
use orrery_testkit::scratch::scratch;
use orrery_testkit::wait::wait_until;

/// Seconds between attempts.
pub const RETRY_DELAYS: [u64; 10] = [5, 30, 120, 600, 3600, 10_800, 21_600, 43_200, 86_400, 86_400];
pub const HOUR: u64 = 3_600_000;

/// A world, a chain that fills its store, and one contract of that chain.
pub struct Scene {
    directory: TempDir,
    pub world: World,
    chain: Chain,
    contract: ContractId,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(Webhooks::default())
    }

    pub fn with(settings: Webhooks) -> Self {
        Self::over(|directory| World::open_with(directory, settings))
    }

    /// As [`Self::new`], with the sender of attempts over sockets.
    pub fn sending(sender: Sender) -> Self {
        Self::over(|directory| World::open_sending(directory, Webhooks::default(), sender))
    }

    fn over(open: impl FnOnce(&Path) -> World) -> Self {
        let directory = scratch();
        let world = open(directory.path());
        let chain = Chain::new(4, vec![symbol("transfer"), symbol("mint")]);
        let contract = chain.universe.contracts[0];
        Self { directory, world, chain, contract }
    }

    pub fn contract(&self) -> ContractId {
        self.contract
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn subscribe(&self, endpoint: &str) -> u32 {
        self.world.subscribe("ana", endpoint, self.contract)
    }

    /// Ends the process, and continues in another one at this time, whose machine's clock is wrong by
    /// so many milliseconds.
    pub fn restarted(self, now: u64, wrong_by: i64) -> Self {
        let Self { directory, world, chain, contract } = self;
        drop(world);
        let world = World::open_with_clock(directory.path(), now, wrong_by);
        Self { directory, world, chain, contract }
    }

    /// Stores a ledger.
    pub fn commit(&mut self, ledger: u32) {
        self.chain.commit(&self.world.store, ledger);
    }

    /// Stores ledgers until the subscription has more deliveries. Returns how many more.
    pub fn ledgers_with_events(&mut self, id: u32) -> usize {
        let before = self.world.deliveries("ana", id).len();
        loop {
            let next = self.world.store.status().latest().map_or(1, |latest| latest.0 + 1);
            self.chain.commit(&self.world.store, next);
            self.world.feed();
            let now = self.world.deliveries("ana", id).len();
            if now > before {
                return now - before;
            }
        }
    }

    /// Stores ledgers until the subscription has exactly one more delivery.
    pub fn ledger_with_one_event(&mut self, id: u32) {
        self.ledger_with_one_event_of(id, &symbol("data"));
    }

    /// As [`Self::ledger_with_one_event`], with this data in the event.
    pub fn ledger_with_one_event_of(&mut self, id: u32, data: &[u8]) {
        let before = self.world.deliveries("ana", id).len();
        while self.world.deliveries("ana", id).len() == before {
            let next = self.world.store.status().latest().map_or(1, |latest| latest.0 + 1);
            self.chain.grow(next);
            let ledger = &mut self.chain.ledgers[next as usize - 1];
            let mut is_first = true;
            ledger.events.retain(|event| {
                event.contract != Some(self.contract.0) || std::mem::take(&mut is_first)
            });
            ledger.events.iter_mut().for_each(|event| event.data = data.to_vec());
            self.chain.commit(&self.world.store, next);
            self.world.feed();
        }
        assert_eq!(self.world.deliveries("ana", id).len(), before + 1);
    }

    pub fn attempts(&self, id: &str) -> Vec<u64> {
        let sent = self.world.sent.lock();
        sent.iter().filter(|it| it.id == id).map(|it| it.at).collect()
    }

    /// Returns delivery ids in the order of their first attempts.
    fn first_attempts(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for sent in self.world.sent.lock().iter() {
            if !ids.contains(&sent.id) {
                ids.push(sent.id.clone());
            }
        }
        ids
    }

    /// Returns the id of a subscription's delivery; the oldest is at 0.
    pub fn id(&self, subscription: u32, at: usize) -> String {
        let tag = self.world.registry.get(subscription).unwrap().definition.tag.clone();
        self.world.deliveries("ana", subscription)[at].0.id(&tag)
    }
}

pub fn always(answer: AttemptResult) -> Answers {
    Arc::new(move |_| answer.clone())
}

fn expected(part: f64) -> Vec<u64> {
    let mut at = BEGINNING;
    let waits = RETRY_DELAYS.iter().map(|wait| {
        at += (*wait as f64 * 1000.0 * part) as u64;
        at
    });
    [BEGINNING].into_iter().chain(waits).collect()
}

/// Every status that is no success, and no response at all, for 100 hours: attempts are made
/// exactly at the promised times.
#[test]
fn failures_are_retried_at_the_documented_times_and_then_given_up() {
    let mut answers = vec![unreachable(), unreachable()];
    let statuses = [100, 199, 300, 301, 302, 307, 308, 400, 401, 403, 404, 409, 418, 422, 429, 451];
    answers.extend(statuses.into_iter().chain([499, 500, 501, 502, 503, 504, 599]).map(status));
    for (number, answer) in answers.into_iter().enumerate() {
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        // A single delivery, or many at once. Times of many are exact only when the server answers.
        let is_alone = answer.status.is_none() || number % 2 == 0;
        match is_alone {
            true => scene.ledger_with_one_event(id),
            false => drop(scene.ledgers_with_events(id)),
        }
        let count = scene.world.deliveries("ana", id).len();
        // Half of the cases draw the maximum jitter.
        let (chance, part) = if number % 4 >= 2 { (u64::MAX, 1.2) } else { (0, 1.0) };
        scene.world.deliver(chance, always(answer.clone()));
        scene.world.run_until(BEGINNING + 100 * HOUR);
        for at in 0..count {
            let attempts = scene.attempts(&scene.id(id, at));
            assert_eq!(attempts, expected(part), "{answer:?}, {at} of {count}");
        }
        let (_, delivery) = &scene.world.deliveries("ana", id)[0];
        assert_eq!((delivery.state, delivery.attempts.len()), (State::Dead, 11));
        assert_eq!(delivery.attempts[0].status, answer.status);
        let subscription = scene.world.registry.get(id).unwrap();
        assert!(subscription.is_enabled() && subscription.state().failing_since.is_some());
        assert_eq!(subscription.waiting(), 0);
    }
}

/// A server that does not answer is paused for up to a minute, so many of its deliveries are late.
/// None is early, the first two retries are exact, and nothing but the server delays them: while a
/// delivery is due, the server is tried at least once a minute.
#[test]
fn retries_to_an_unresponsive_server_wait_only_for_the_server() {
    const MINUTE: u64 = 60_000;
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    while scene.world.deliveries("ana", id).len() < 40 {
        scene.ledgers_with_events(id);
    }
    scene.world.deliver(0, always(unreachable()));
    scene.world.run_until(BEGINNING + 110 * HOUR);
    let mut all: Vec<u64> = scene.world.sent.lock().iter().map(|it| it.at).collect();
    all.sort_unstable();
    let mut late = 0;
    for at in 0..scene.world.deliveries("ana", id).len() {
        let attempts = scene.attempts(&scene.id(id, at));
        assert_eq!(attempts.len(), RETRY_DELAYS.len() + 1);
        let due = attempts.iter().zip(RETRY_DELAYS).map(|(before, wait)| before + 1000 * wait);
        let due: Vec<u64> = [BEGINNING].into_iter().chain(due).collect();
        assert_eq!(attempts[1..3], due[1..3], "{at}");
        for (due, made) in due.into_iter().zip(attempts) {
            assert!(made >= due, "{at} is early");
            late += u32::from(made > due);
            let between = all.iter().copied().filter(|it| (due..=made).contains(it));
            let times: Vec<u64> = [due].into_iter().chain(between).collect();
            let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(
                longest <= MINUTE,
                "{at}: due at {due}, made at {made}, {longest} without a try"
            );
        }
    }
    assert!(late > 100, "{late}");
}

/// Whoever tests an endpoint that fails waits for the answer: neither what waits for the endpoint nor
/// the pause of its server delays a test.
#[test]
fn a_test_of_a_failing_endpoint_is_sent_at_once() {
    const MINUTE: u64 = 60_000;
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    while scene.world.deliveries("ana", id).len() < 40 {
        scene.ledgers_with_events(id);
    }
    scene.world.deliver(0, always(unreachable()));
    for minute in [3, 10, 200] {
        scene.world.run_until(BEGINNING + minute * MINUTE);
        let now = scene.world.now();
        let test = scene.world.webhooks.test(&owner("ana"), id).unwrap();
        scene.world.settle();
        assert_eq!(scene.attempts(&test), [now], "{minute}");
        let delivery = |who| scene.world.webhooks.delivery(&owner(who), id, &test);
        let (_, listed) = delivery("ana").unwrap().unwrap();
        assert_eq!((listed.state, listed.attempts.len()), (State::Dead, 1));
        assert!(delivery("bob").is_err());
    }
}

/// Each write is synced to the disk, and holds up those of new ledgers. So outcomes are gathered for
/// 5 ms before each write, however fast the attempts are.
#[test]
fn outcomes_of_many_attempts_are_written_in_few_batches() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let mut count = 0;
    while count < 300 {
        count += scene.ledgers_with_events(id);
    }
    let writes = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&writes);
    scene.world.store.faults().plan(move |kind| {
        counted.fetch_add(usize::from(kind == WriteKind::Synced), Ordering::SeqCst);
        None
    });
    let begun = Instant::now();
    scene.world.deliver(0, always(status(200)));
    scene.world.settle();
    let most = begun.elapsed().as_millis() / 5;
    let deliveries = scene.world.deliveries("ana", id);
    assert_eq!(deliveries.len(), count);
    assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered));
    let writes = writes.load(Ordering::SeqCst) as u128;
    assert!((1..=most).contains(&writes), "{writes} writes for {count} deliveries, {most} allowed");
}

/// Deliveries become due while the dispatcher chooses what to send next: they are sent shortly
/// after.
#[test]
fn time_passing_during_dispatch_delays_no_delivery() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    while scene.world.deliveries("ana", id).len() < 40 {
        scene.ledgers_with_events(id);
    }
    scene.world.let_time_pass();
    scene.world.deliver(0, always(status(500)));
    scene.world.run_until(BEGINNING + 100 * HOUR);
    for at in 0..scene.world.deliveries("ana", id).len() {
        let attempts = scene.attempts(&scene.id(id, at));
        assert_eq!(attempts.len(), RETRY_DELAYS.len() + 1);
        for (pair, wait) in attempts.windows(2).zip(RETRY_DELAYS) {
            let waited = pair[1] - pair[0];
            assert!((1000 * wait..1000 * wait + 10_000).contains(&waited), "{waited} for {wait} s");
        }
    }
}

#[test]
fn a_success_ends_a_delivery_and_a_failure_blocks_no_other() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let mut count = scene.ledgers_with_events(id);
    while count < 8 {
        count += scene.ledgers_with_events(id);
    }
    let failing = scene.id(id, 2);
    let (own, sent) = (failing.clone(), Arc::clone(&scene.world.sent));
    scene.world.deliver(
        0,
        Arc::new(move |attempt: &Sent| {
            let times = sent.lock().iter().filter(|it| it.id == attempt.id).count();
            status(if attempt.id == own && times < 4 { 500 } else { 204 })
        }),
    );
    scene.world.run_until(BEGINNING);
    let ids: Vec<String> = (0..count).map(|at| scene.id(id, at)).collect();
    assert_eq!(scene.first_attempts(), ids, "in the order of the chain");
    assert_eq!(scene.world.sent.lock().len(), count);
    scene.world.run_until(BEGINNING + 100 * HOUR);
    let at = |seconds: u64| BEGINNING + 1000 * seconds;
    assert_eq!(scene.attempts(&failing), [at(0), at(5), at(35), at(155)]);
    let deliveries = scene.world.deliveries("ana", id);
    assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered));
    assert_eq!(scene.world.registry.get(id).unwrap().state().failing_since, None);
    // Bodies contain the events.
    let body: serde_json::Value = serde_json::from_slice(&scene.world.sent.lock()[0].body).unwrap();
    assert_eq!(body["event"]["id"], deliveries[0].0.event().unwrap().0);
    assert_eq!(body["event"]["contract_id"], scene.contract.to_string());
}

#[test]
fn retry_after_is_honoured_up_to_a_day() {
    for (asked, waited) in [(1, 5), (7, 7), (3600, 3600), (86_400, 86_400), (1 << 40, 86_400)] {
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        scene.ledgers_with_events(id);
        let answer = AttemptResult { retry_after: Some(Duration::from_secs(asked)), ..status(429) };
        scene.world.deliver(0, always(answer));
        scene.world.run_until(BEGINNING + waited * 1000);
        let attempts = scene.attempts(&scene.id(id, 0));
        assert_eq!(attempts[..2], [BEGINNING, BEGINNING + waited * 1000], "{asked}");
    }
}

#[test]
fn a_410_disables_the_subscription_until_its_owner_enables_it() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let before = scene.ledgers_with_events(id) + scene.ledgers_with_events(id);
    let gone = Arc::new(parking_lot::Mutex::new(true));
    let now_gone = Arc::clone(&gone);
    scene.world.deliver(0, Arc::new(move |_| status(if *now_gone.lock() { 410 } else { 200 })));
    scene.world.run_until(BEGINNING + 100 * HOUR);
    assert_eq!(scene.world.sent.lock().len(), 1, "nothing is sent after the first 410");
    let state = scene.world.registry.get(id).unwrap().state();
    assert!(!state.enabled && state.disabled_reason.unwrap().contains("410"));
    let deliveries = scene.world.deliveries("ana", id);
    assert!(deliveries.iter().all(|(_, it)| it.state == State::Dead), "{deliveries:?}");
    // Events of ledgers stored while a subscription is disabled get no deliveries.
    let next = scene.world.store.status().latest().unwrap().0 + 1;
    (next..next + 5).for_each(|ledger| scene.chain.commit(&scene.world.store, ledger));
    scene.world.feed();
    let first = scene.id(id, 0);
    let refused = scene.world.webhooks.replay_one(&owner("ana"), id, &first).unwrap_err();
    assert!(matches!(refused, WebhookError::Disabled(_)), "{refused}");
    *gone.lock() = false;
    scene.world.webhooks.enable(&owner("ana"), id).unwrap();
    scene.world.run_until(BEGINNING + 101 * HOUR);
    assert_eq!(scene.world.sent.lock().len(), 1);
    assert_eq!(scene.world.deliveries("ana", id).len(), before);
    // A replay sends the dead deliveries, under their ids, and the missed events, in the order of
    // the chain.
    let all = orrery::domain::LedgerRange::new(1, next + 4);
    let done = scene.world.webhooks.replay_ledgers(&owner("ana"), id, all, &|| false).unwrap();
    assert_eq!((done.next, done.missing.is_empty()), (None, true));
    assert!(done.deliveries > before as u64);
    scene.world.run_until(BEGINNING + 102 * HOUR);
    let sent: Vec<String> = scene.world.sent.lock()[1..].iter().map(|it| it.id.clone()).collect();
    let deliveries = scene.world.deliveries("ana", id);
    let ids: Vec<String> = (0..deliveries.len()).map(|at| scene.id(id, at)).collect();
    assert_eq!((sent, deliveries.len() as u64), (ids, done.deliveries));
    assert_eq!(scene.attempts(&first).len(), 2);
    assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered));
}

#[test]
fn an_unwritten_outcome_does_not_disable_the_subscription() {
    loop {
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        scene.ledger_with_one_event(id);
        let (fails, failed) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (now_fails, counter) = (Arc::clone(&fails), Arc::clone(&failed));
        scene.world.store.faults().plan(move |_| {
            now_fails.load(Ordering::SeqCst).then(|| {
                counter.fetch_add(1, Ordering::SeqCst);
                Fault::NotWritten
            })
        });
        scene.world.deliver(0, always(status(410)));
        wait_until("a write fails", || failed.load(Ordering::SeqCst) > 0);
        // The outcome is written a second later. After a crash until then, the subscription would
        // be enabled: events must have deliveries.
        fails.store(false, Ordering::SeqCst);
        let next = scene.world.store.status().latest().unwrap().0 + 1;
        (next..next + 10).for_each(|ledger| scene.chain.commit(&scene.world.store, ledger));
        scene.world.feed();
        let deliveries = scene.world.deliveries("ana", id);
        let was_written_before = deliveries[0].1.state == State::Dead;
        scene.world.settle();
        assert!(!scene.world.registry.get(id).unwrap().state().enabled);
        assert_eq!(scene.world.sent.lock().len(), 1);
        if was_written_before {
            continue;
        }
        let deliveries = scene.world.deliveries("ana", id).into_iter();
        let mut reasons = deliveries.map(|(_, it)| it.reason.unwrap());
        assert!(reasons.next().unwrap().contains("410"));
        assert!(reasons.len() > 0 && reasons.all(|it| it.contains("disabled")));
        return;
    }
}

#[test]
fn deliveries_are_sent_only_after_their_step_is_written() {
    for fault in [Fault::NotWritten, Fault::Written] {
        let mut scene = Scene::new();
        let id = scene.subscribe("https://example.com/");
        scene.world.deliver(0, always(status(200)));
        scene.ledger_with_one_event(id);
        scene.world.settle();
        let next = scene.world.store.status().latest().unwrap().0 + 1;
        (next..next + 20).for_each(|ledger| scene.chain.commit(&scene.world.store, ledger));
        scene.world.store.faults().plan(move |_| Some(fault));
        assert!(scene.world.step().is_err());
        scene.world.store.faults().plan(|_| None);
        let expected = |scene: &Scene| {
            let deliveries = scene.world.deliveries("ana", id);
            assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered), "{fault:?}");
            assert_eq!(scene.world.sent.lock().len(), deliveries.len(), "{fault:?}");
            assert_eq!(scene.world.registry.get(id).unwrap().waiting(), 0, "{fault:?}");
            deliveries.len()
        };
        // The next step writes fewer ledgers than the one that failed.
        while scene.world.step_of_one_ledger() {
            scene.world.settle();
            expected(&scene);
        }
        scene.ledgers_with_events(id);
        scene.world.settle();
        assert!(expected(&scene) > 2);
    }
}

#[test]
fn five_days_without_a_success_disable_a_subscription() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    scene.world.deliver(0, always(status(500)));
    for day in 0..6 {
        assert!(scene.world.registry.get(id).unwrap().is_enabled(), "{day}");
        scene.ledgers_with_events(id);
        scene.world.run_until(BEGINNING + (day + 1) * 24 * HOUR);
    }
    let state = scene.world.registry.get(id).unwrap().state();
    assert!(!state.enabled && state.disabled_reason.unwrap().contains("five days"));
    let sent = scene.world.sent.lock();
    assert!(sent.iter().all(|it| it.at <= BEGINNING + 5 * 24 * HOUR + HOUR));
    assert_eq!(scene.world.registry.get(id).unwrap().waiting(), 0);
}

#[test]
fn an_unresponsive_server_does_not_delay_other_servers() {
    let mut scene = Scene::new();
    let dead = scene.subscribe("https://dead.example/");
    let alive = scene.subscribe("https://alive.example/");
    let mut count = scene.ledgers_with_events(dead);
    while count < 30 {
        count += scene.ledgers_with_events(dead);
    }
    scene.world.deliver(
        0,
        Arc::new(
            |attempt: &Sent| {
                if attempt.endpoint.contains("dead") { unreachable() } else { status(200) }
            },
        ),
    );
    scene.world.run_until(BEGINNING);
    let to =
        |name: &str| scene.world.sent.lock().iter().filter(|it| it.endpoint.contains(name)).count();
    assert_eq!(to("alive"), count);
    assert!(to("dead") < 10, "it is left alone after a few failures");
    scene.world.run_until(BEGINNING + 4 * HOUR);
    // The first two retries are never delayed.
    for at in 0..count {
        let attempts = scene.attempts(&scene.id(dead, at));
        let Some(first) = attempts.first() else { continue };
        assert_eq!(attempts[1..3], [first + 5000, first + 35_000], "{at}");
    }
    assert!(
        scene.world.deliveries("ana", alive).iter().all(|(_, it)| it.state == State::Delivered)
    );
}

#[test]
fn retry_times_survive_a_restart_and_unrecorded_outcomes_are_resent() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    scene.ledgers_with_events(id);
    scene.world.deliver(0, always(status(500)));
    scene.world.run_until(BEGINNING + HOUR);
    let first = scene.id(id, 0);
    let before = scene.attempts(&first);
    let Scene { directory, world, contract, chain } = scene;
    drop(world);
    let mut scene = Scene { world: World::open(directory.path()), directory, contract, chain };
    scene.world.set_time(BEGINNING + HOUR);
    scene.world.deliver(0, always(status(500)));
    scene.world.run_until(BEGINNING + 100 * HOUR);
    assert_eq!([before, scene.attempts(&first)].concat(), expected(1.0));
    assert_eq!(scene.id(id, 0), first);
}

#[test]
fn deliveries_outlive_pruned_events_and_old_ones_are_removed() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let count = scene.ledgers_with_events(id);
    let next = scene.world.store.status().latest().unwrap().0 + 1;
    scene.world.feed();
    let failing = scene.id(id, 0);
    let own = failing.clone();
    scene.world.deliver(
        0,
        Arc::new(move |attempt: &Sent| status(if attempt.id == own { 500 } else { 200 })),
    );
    scene.world.run_until(BEGINNING);
    (next..next + 5).for_each(|ledger| scene.chain.commit(&scene.world.store, ledger));
    scene.world.webhooks.delete(&owner("ana"), 99).unwrap_err();
    scene.world.feed();
    scene.world.keep_events(2);
    scene.world.run_until(BEGINNING + 80 * HOUR);
    assert_eq!(scene.attempts(&failing).len(), 11);
    let bodies: std::collections::BTreeSet<_> = scene
        .world
        .sent
        .lock()
        .iter()
        .filter(|it| it.id == failing)
        .map(|it| it.body.clone())
        .collect();
    assert_eq!(bodies.len(), 1, "the same bytes each time");
    let day = 24 * HOUR;
    let left = |scene: &Scene| scene.world.deliveries("ana", id).len();
    let all = left(&scene);
    assert!(all >= count);
    assert_eq!(scene.world.webhooks.sweep().unwrap(), 0);
    scene.world.set_time(BEGINNING + 9 * day);
    assert_eq!(scene.world.webhooks.sweep().unwrap(), all as u64 - 1);
    assert_eq!(scene.world.deliveries("ana", id)[0].1.state, State::Dead);
    scene.world.set_time(BEGINNING + 33 * day);
    assert_eq!((scene.world.webhooks.sweep().unwrap(), left(&scene)), (0, 1));
    scene.world.set_time(BEGINNING + 36 * day);
    assert_eq!((scene.world.webhooks.sweep().unwrap(), left(&scene)), (1, 0));
}

#[test]
fn payloads_of_waiting_deliveries_are_kept_however_late_it_is() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let count = scene.ledgers_with_events(id);
    // The service did not run for months, or its clock is far ahead for a moment.
    scene.world.set_time(BEGINNING + 200 * 24 * HOUR);
    assert_eq!(scene.world.webhooks.sweep().unwrap(), 0);
    scene.world.deliver(0, always(status(200)));
    scene.world.settle();
    let deliveries = scene.world.deliveries("ana", id);
    assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered), "{deliveries:?}");
    assert_eq!((deliveries.len(), scene.world.sent.lock().len()), (count, count));
    // Nothing needs the payloads now.
    scene.world.webhooks.sweep().unwrap();
    let view = scene.world.store.consumer_view("webhooks", RowBounds::none()).unwrap();
    let mut payloads = 0;
    view.scan("payloads", |_, _| payloads += 1).unwrap();
    assert_eq!(payloads, 0);
}

/// Old deliveries are removed a thousand at a time.
#[test]
fn thousands_of_old_deliveries_are_removed_in_one_sweep() {
    let mut scene = Scene::new();
    let id = scene.subscribe("https://example.com/");
    let (mut count, mut next) = (0, 1);
    while count <= 2000 {
        (next..next + 100).for_each(|ledger| scene.chain.commit(&scene.world.store, ledger));
        next += 100;
        scene.world.feed();
        count = scene.world.deliveries("ana", id).len();
    }
    scene.world.deliver(0, always(status(200)));
    scene.world.settle();
    scene.world.set_time(BEGINNING + 9 * 24 * HOUR);
    assert_eq!(scene.world.webhooks.sweep().unwrap(), count as u64);
    assert_eq!(scene.world.deliveries("ana", id).len(), 0);
    assert_eq!(scene.world.webhooks.sweep().unwrap(), 0);
}

#[test]
fn a_backlog_over_its_limit_disables_the_subscription_with_a_reason() {
    let mut scene = Scene::with(Webhooks { backlog: nonzero!(5), ..Default::default() });
    let id = scene.subscribe("https://example.com/");
    for _ in 0..8 {
        let next = scene.world.store.status().latest().map_or(1, |latest| latest.0 + 1);
        scene.chain.commit(&scene.world.store, next);
        scene.world.feed();
    }
    let subscription = scene.world.registry.get(id).unwrap();
    let state = subscription.state();
    assert!(!state.enabled && state.disabled_reason.unwrap().contains("more than 5"));
    assert_eq!(subscription.waiting(), 6);
    assert_eq!(scene.world.deliveries("ana", id).len(), 6);
    scene.world.deliver(0, always(status(200)));
    scene.world.run_until(BEGINNING);
    assert!(scene.world.sent.lock().is_empty());
    assert_eq!(scene.world.registry.get(id).unwrap().waiting(), 0);
}

#[test]
fn limits_of_an_owner_apply_to_all_its_subscriptions_together() {
    let reasons = |scene: &Scene, ids: &[u32]| -> Vec<String> {
        let state = |id: &u32| scene.world.registry.get(*id).unwrap().state();
        ids.iter().filter_map(|id| state(id).disabled_reason).collect()
    };
    let subscribe = |scene: &Scene, who: &str, count: u32| -> Vec<u32> {
        let endpoint = |number| format!("https://example.com/{number}");
        (0..count).map(|it| scene.world.subscribe(who, &endpoint(it), scene.contract)).collect()
    };
    let mut scene = Scene::with(Webhooks { owner_backlog: nonzero!(40), ..Default::default() });
    let (own, others) = (subscribe(&scene, "ana", 4), subscribe(&scene, "bob", 1));
    // Bob's only subscription gets a quarter of them.
    for ledger in 1.. {
        scene.commit(ledger);
        scene.world.feed();
        if reasons(&scene, &own).len() == own.len() {
            break;
        }
    }
    let waiting = |id: &u32| scene.world.registry.get(*id).unwrap().waiting();
    let all: u64 = own.iter().map(waiting).sum();
    assert!((41..=44).contains(&all), "each may exceed the limit by one: {all}");
    let disabled = reasons(&scene, &own);
    assert!(disabled.iter().all(|it| it.contains("more than 40 deliveries of your subscriptions")));
    assert!(reasons(&scene, &others).is_empty(), "another owner's are not affected");

    let mut scene =
        Scene::with(Webhooks { owner_ledger_deliveries: nonzero!(2), ..Default::default() });
    let own = subscribe(&scene, "ana", 5);
    scene.ledgers_with_events(own[0]);
    let disabled = reasons(&scene, &own);
    assert!((3..=5).contains(&disabled.len()), "{disabled:?}");
    assert!(disabled.iter().all(|it| it.contains("more than 2 deliveries")), "{disabled:?}");
}

#[test]
fn subscriptions_per_owner_are_limited_and_duplicates_refused() {
    let scene = Scene::with(Webhooks { owner_subscriptions: nonzero!(4), ..Default::default() });
    let contracts = scene.chain.universe.contracts.clone();
    let wanted = |from: usize, to: usize| orrery::webhooks::manage::NewSubscriptions {
        contracts: contracts[from..to].to_vec(),
        ..super::world::wanted("https://example.com/", contracts[0])
    };
    let create = |who: &str, from, to| scene.world.webhooks.create(&owner(who), wanted(from, to));
    assert_eq!(create("ana", 0, 2).unwrap().ids, [1, 2]);
    let twice = create("ana", 1, 3).err().unwrap();
    assert!(matches!(twice, WebhookError::Duplicate(2)), "{twice}");
    assert_eq!(scene.world.registry.list(&owner("ana")).len(), 2, "all or none");
    let many = create("ana", 2, 5).err().unwrap();
    assert!(matches!(many, WebhookError::TooMany { have: 2, most: 4 }), "{many}");
    // Other owners have limits of their own, and ids are not reused.
    assert_eq!(create("bob", 0, 3).unwrap().ids, [3, 4, 5]);
    scene.world.webhooks.delete(&owner("ana"), 1).unwrap();
    assert_eq!(create("ana", 0, 1).unwrap().ids, [6]);
    for id in [2, 6] {
        assert!(scene.world.webhooks.delete(&owner("bob"), id).is_err());
        assert!(scene.world.webhooks.enable(&owner("bob"), id).is_err());
        assert!(scene.world.webhooks.test(&owner("bob"), id).is_err());
        assert!(scene.world.webhooks.deliveries(&owner("bob"), id, None, None, 1).is_err());
    }
}
