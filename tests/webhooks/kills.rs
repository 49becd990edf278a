//! Receivers with outages, and a service that is killed with SIGKILL: every match arrives at least
//! once, under one id, and first attempts arrive in the order of the chain. Nothing is sent for a
//! subscription after its deletion was answered.
//!
//! Small: 5 kills and a dozen outages; full: 200 kills, 500 outages and 100,000 events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orrery::control::{Client, Ledgers, STORE};
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::receiver::{Received, Receiver, answer};
use super::service::{Owner, SETTINGS, all_events, chain, directory};
use orrery_testkit::binary::Service;
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

/// Number of ledgers stored before the first subscription.
const LEDGERS_BEFORE: usize = 10;
/// Maximum number of waiting deliveries while more ledgers are stored, so that kills are spread
/// over the whole run.
const MAX_WAITING: u64 = 2000;

/// Random outages of a receiver, of a few requests each.
struct Outages {
    rng: ChaCha8Rng,
    /// Average number of requests between two outages.
    every: u32,
    /// Number of requests until the next outage begins; `left` counts those until the present one
    /// ends.
    until: u32,
    left: u32,
    begun: u32,
    /// Consecutive requests without a response. After five, the sender would pause for long.
    unanswered: u32,
}

impl Outages {
    fn new(seed: u64, every: u32) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            every,
            until: every,
            left: 0,
            begun: 0,
            unanswered: 0,
        }
    }

    /// Returns the response to the next request; `None` closes the connection.
    fn answer(&mut self) -> Option<String> {
        if self.left == 0 {
            if self.until > 0 {
                self.until -= 1;
                return answer(204);
            }
            self.begun += 1;
            self.left = self.rng.random_range(1..=8);
            self.until = self.rng.random_range(1..2 * self.every);
        }
        self.left -= 1;
        match self.rng.random_range(0..8) {
            0 | 1 if self.unanswered < 3 => {
                self.unanswered += 1;
                None
            }
            number => {
                self.unanswered = 0;
                answer([500, 503, 429, 302, 404, 301, 500, 503][number])
            }
        }
    }
}

/// Starts a receiver that has outages until `is_well` is set.
fn failing(outages: &Arc<Mutex<Outages>>, is_well: &Arc<AtomicBool>) -> Receiver {
    let (outages, is_well) = (Arc::clone(outages), Arc::clone(is_well));
    Receiver::start(move |_| match is_well.load(Ordering::SeqCst) {
        true => answer(204),
        false => outages.lock().answer(),
    })
}

/// What one subscription received: the event of each delivery id, and the events in the order of
/// their first attempts.
#[derive(Default)]
struct Arrived {
    ids: BTreeMap<String, u64>,
    order: Vec<u64>,
}

/// Groups requests by contract. Each contract has one subscription.
fn by_contract(received: &[Received]) -> BTreeMap<String, Arrived> {
    let mut arrived = BTreeMap::<String, Arrived>::new();
    for one in received {
        let body = one.json();
        let event = body["event"]["id"].as_u64().unwrap();
        let contract = body["event"]["contract_id"].as_str().unwrap();
        let of = arrived.entry(contract.to_owned()).or_default();
        match of.ids.insert(one.id(), event) {
            None => of.order.push(event),
            Some(before) => assert_eq!(before, event, "an id means one event"),
        }
    }
    arrived
}

/// A service that is killed and started again.
struct Scene {
    directory: tempfile::TempDir,
    service: Option<Service>,
    ana: Owner,
}

impl Scene {
    fn start() -> Self {
        let directory = directory();
        let service = Service::start_with(directory.path(), &SETTINGS);
        let ana = Owner::new(directory.path(), &service, "ana");
        Self { directory, service: Some(service), ana }
    }

    /// Stores ledgers. Returns whether all were stored before the service ended.
    fn try_store(&self, ledgers: &[Vec<u8>]) -> bool {
        let client = Client::connect(self.directory.path()).ok().flatten();
        let mut stored = client.map(|mut it| it.ask(STORE, &Ledgers(ledgers.to_vec())));
        matches!(stored.take(), Some(Ok(Ok(_))))
    }

    /// Kills the service with SIGKILL and starts it again.
    fn kill(&mut self) {
        drop(self.service.take());
        self.restart();
    }

    fn restart(&mut self) {
        let service = Service::start_with(self.directory.path(), &SETTINGS);
        self.ana.base.clone_from(&service.base);
        self.service = Some(service);
    }

    /// Kills the service a moment (`after`) into storing ledgers, restarts it, and stores all of
    /// them.
    fn store_and_kill(&mut self, ledgers: &[Vec<u8>], after: Duration) {
        let service = self.service.take();
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| self.try_store(ledgers));
            std::thread::sleep(after);
            drop(service);
            // The result does not matter, because the ledgers are stored again.
            storing.join().unwrap();
        });
        self.restart();
        assert!(self.try_store(ledgers), "storing ledgers again is not an error");
    }

    fn subscribe(&self, endpoint: &str, contracts: &[String]) -> Vec<Value> {
        let new = json!({ "webhook_endpoint": endpoint, "contract_ids": contracts });
        self.ana.post("webhooks/new", &new)["ids"].as_array().unwrap().clone()
    }

    fn waiting(&self) -> u64 {
        let listed = self.ana.get("webhooks/list");
        let of = |it: &Value| it["deliveries_waiting"].as_u64().unwrap();
        listed.as_array().unwrap().iter().map(of).sum()
    }

    /// Replays the deliveries that wait for a retry, so that the test need not wait as long.
    fn hurry(&self) {
        for subscription in self.ana.get("webhooks/list").as_array().unwrap() {
            let id = &subscription["id"];
            let path = format!("webhooks/{id}/deliveries?status=retrying&limit=1000");
            let mut page = self.ana.ask("GET", &path, None);
            // Among many delivered ones, a request reads only a part: continues from its cursor.
            while page.0 == 422 {
                let cursor = page.1["cursor"].as_str().unwrap();
                page = self.ana.ask("GET", &format!("{path}&cursor={cursor}"), None);
            }
            assert_eq!(page.0, 200, "{path}: {}", page.1);
            for delivery in page.1.as_array().unwrap() {
                let body = json!({ "delivery_id": delivery["delivery_id"] });
                self.ana.post(&format!("webhooks/{id}/replay"), &body);
            }
        }
    }
}

/// A subscription that is soon deleted, and the number of requests received by then.
enum Doomed {
    /// Exists, and is deleted after this many steps.
    Alive(Value, u32),
    /// Was deleted when this many requests had been received.
    Gone(usize),
}

#[test]
fn every_match_arrives_through_kills_and_outages() {
    let kills = size::choose(5, 200);
    let (outages, every) = (size::choose(8, 500) as u32, size::choose(6, 110) as u32);
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let chain = chain(size::choose(60, 2100) as u32, size::choose(4, 45) as usize);
    let kept_outages = Arc::new(Mutex::new(Outages::new(rng.random(), every)));
    let is_well = Arc::<AtomicBool>::default();
    let kept = failing(&kept_outages, &is_well);
    let forgotten = Receiver::start(|_| answer(204));
    let mut scene = Scene::start();
    assert!(scene.try_store(&chain[..LEDGERS_BEFORE]));
    let before = all_events(&scene.ana);
    let mut contracts: Vec<String> = before.keys().filter(|it| !it.is_empty()).cloned().collect();
    contracts.shuffle(&mut rng);
    scene.subscribe(&kept.url("/kept"), &contracts);

    // The service is killed in half of the steps.
    let steps = 2 * kills as usize;
    let rest = &chain[LEDGERS_BEFORE..];
    let (mut killed, mut deleted) = (0, 0);
    let mut doomed = Doomed::Gone(0);
    for step in 0..steps {
        let ledgers = &rest[step * rest.len() / steps..(step + 1) * rest.len() / steps];
        let moment = Duration::from_micros(rng.random_range(0..50_000));
        match step % 4 {
            1 => scene.store_and_kill(ledgers, moment),
            3 => {
                assert!(scene.try_store(ledgers));
                // The kill comes at a random moment.
                std::thread::sleep(moment);
                scene.kill();
            }
            _ => assert!(scene.try_store(ledgers)),
        }
        killed += u64::from(step % 2 == 1);
        doomed = match doomed {
            Doomed::Alive(id, 0) => {
                assert_eq!(scene.ana.ask("DELETE", &format!("webhooks/{id}"), None).0, 200);
                deleted += 1;
                // Requests that were sent before the deletion are counted.
                Doomed::Gone(forgotten.count_when_silent())
            }
            Doomed::Alive(id, steps) => Doomed::Alive(id, steps - 1),
            Doomed::Gone(count) => {
                let now = forgotten.count_when_silent();
                assert_eq!(now, count, "nothing after the deletion was answered");
                match rng.random_bool(0.5) {
                    true => {
                        let of = contracts[..1].to_vec();
                        let id = scene.subscribe(&forgotten.url("/forgotten"), &of).remove(0);
                        Doomed::Alive(id, rng.random_range(0..3))
                    }
                    false => Doomed::Gone(count),
                }
            }
        };
        wait_until("deliveries go on", || scene.waiting() < MAX_WAITING);
    }
    if let Doomed::Alive(id, _) = &doomed {
        assert_eq!(scene.ana.ask("DELETE", &format!("webhooks/{id}"), None).0, 200);
        doomed = Doomed::Gone(forgotten.count_when_silent());
    }
    is_well.store(true, Ordering::SeqCst);
    wait_until("every match arrives", || {
        scene.hurry();
        scene.waiting() == 0
    });
    let Doomed::Gone(count) = doomed else { unreachable!("it was deleted") };
    assert_eq!(forgotten.count_when_silent(), count, "nothing after the deletion was answered");

    let all = all_events(&scene.ana);
    let received = kept.received();
    let arrived = by_contract(&received);
    let mut matches = 0;
    for contract in &contracts {
        let expected = &all[contract][before[contract].len()..];
        let Arrived { ids, order } = &arrived[contract];
        assert_eq!(order, expected, "first attempts are in the order of the chain: {contract}");
        assert_eq!(ids.len(), expected.len(), "one id for each match");
        matches += expected.len();
    }
    assert_eq!(arrived.len(), contracts.len());
    assert_eq!(scene.ana.get("webhooks/list").as_array().unwrap().len(), contracts.len());
    let had = kept_outages.lock().begun;
    println!(
        "{matches} matches came in {} requests through {killed} kills and {had} outages; {deleted} deletions",
        received.len()
    );
    assert!(killed == kills && had >= outages && deleted > 0, "{killed} {had} {deleted}");
    assert!(matches as u64 >= size::choose(200, 100_000), "{matches} matches");
}
