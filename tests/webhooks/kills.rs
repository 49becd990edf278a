//! Receivers that fail and a service that is killed without warning, again and again: every match arrives, at
//! least once, under one id, for the first time in the order of the chain; and nothing is sent for a
//! subscription once its deletion was answered.
//!
//! Small: 5 kills; full: 200.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::receiver::{Received, Receiver, answer};
use super::service::{CHAIN, Owner, SETTINGS, busiest, directory, events_of, store, wait};
use crate::common::binary::Service;
use crate::common::size;

/// One history ends with the chain.
const LEDGERS_BEFORE: usize = 10;

/// A receiver that is out of order from time to time.
fn failing(is_out: &Arc<AtomicBool>, rng: ChaCha8Rng) -> Receiver {
    let (is_out, rng) = (Arc::clone(is_out), Mutex::new(rng));
    Receiver::start(move |_| {
        if !is_out.load(Ordering::SeqCst) {
            return answer(204);
        }
        let statuses = [500, 503, 429, 302, 404];
        match rng.lock().random_range(0..8) {
            number @ 0..5 => answer(statuses[number]),
            _ => None,
        }
    })
}

/// Event ids by delivery id, and the order of first attempts.
fn by_id(received: &[Received]) -> (BTreeMap<String, u64>, Vec<u64>) {
    let (mut ids, mut order) = (BTreeMap::new(), Vec::new());
    for one in received {
        let event = one.json()["event"]["id"].as_u64().unwrap();
        match ids.insert(one.id(), event) {
            None => order.push(event),
            Some(before) => assert_eq!(before, event, "an id means one event"),
        }
    }
    (ids, order)
}

#[test]
fn every_match_arrives_through_kills_and_outages() {
    let kills = size::choose(5, 200);
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let killed = AtomicU64::new(0);
    let mut outages = 0;
    while killed.load(Ordering::SeqCst) < kills {
        let directory = directory();
        let is_out = Arc::new(AtomicBool::new(false));
        let receiver = failing(&is_out, ChaCha8Rng::seed_from_u64(rng.random()));
        let forgotten = Receiver::start(|_| answer(204));
        let mut service = Service::start_with(directory.path(), &SETTINGS);
        let mut ana = Owner::new(directory.path(), &service, "ana");
        store(directory.path(), 0..LEDGERS_BEFORE);
        let contract = busiest(&ana);
        let before = events_of(&ana, &contract).len();
        let subscribe = |ana: &Owner, url: String| -> Value {
            let new = json!({ "webhook_endpoint": url, "contract_ids": [contract] });
            ana.post("webhooks/new", &new)["ids"][0].clone()
        };
        subscribe(&ana, receiver.url("/kept"));
        let deleted = subscribe(&ana, forgotten.url("/deleted"));
        let mut next = LEDGERS_BEFORE;
        let mut is_deleted = false;
        while next < CHAIN.len() {
            is_out.store(rng.random_bool(0.4), Ordering::SeqCst);
            outages += u32::from(is_out.load(Ordering::SeqCst));
            let end = CHAIN.len().min(next + rng.random_range(1..6));
            store(directory.path(), next..end);
            next = end;
            if !is_deleted && next > 30 {
                assert_eq!(ana.ask("DELETE", &format!("webhooks/{deleted}"), None).0, 200);
                is_deleted = true;
                // What was on its way has been read by now, or never will be.
                wait("nothing is on its way", || !receives(&forgotten));
            }
            let after_deletion = is_deleted.then(|| forgotten.count());
            if rng.random_bool(0.5) && killed.load(Ordering::SeqCst) < kills {
                // Dropping it kills it.
                std::thread::sleep(Duration::from_micros(rng.random_range(0..30_000)));
                drop(service);
                killed.fetch_add(1, Ordering::SeqCst);
                service = Service::start_with(directory.path(), &SETTINGS);
                ana = Owner::new(directory.path(), &service, "ana");
            }
            if let Some(count) = after_deletion {
                assert_eq!(forgotten.count(), count, "nothing after the deletion was answered");
            }
        }
        is_out.store(false, Ordering::SeqCst);
        let expected: Vec<u64> = events_of(&ana, &contract)[before..].to_vec();
        // The first two waits are short: nothing fails more than a few times.
        wait("every match arrives", || {
            let listed = ana.get("webhooks/list");
            let retrying = listed[0]["deliveries_waiting"].as_u64().unwrap();
            if retrying > 0 {
                hurry(&ana, &listed[0]["id"]);
            }
            retrying == 0
        });
        let (ids, order) = by_id(&receiver.received());
        assert_eq!(order, expected, "first attempts are in the order of the chain");
        assert_eq!(ids.len(), expected.len(), "one id for each match");
        let delivered: BTreeSet<u64> = ids.into_values().collect();
        assert_eq!(delivered, expected.into_iter().collect());
        let gone = ana.get("webhooks/list");
        assert_eq!(gone.as_array().unwrap().len(), 1);
    }
    println!("{} kills, {outages} outages", killed.load(Ordering::SeqCst));
}

/// Whether something comes within a moment.
fn receives(receiver: &Receiver) -> bool {
    let (count, begun) = (receiver.count(), Instant::now());
    while begun.elapsed() < Duration::from_millis(50) {
        if receiver.count() != count {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Asks for what waits for its next attempt, so that the test need not wait as long.
fn hurry(ana: &Owner, id: &Value) {
    let waiting = ana.get(&format!("webhooks/{id}/deliveries?status=retrying&limit=1000"));
    for delivery in waiting.as_array().unwrap() {
        let body = json!({ "delivery_id": delivery["delivery_id"] });
        ana.post(&format!("webhooks/{id}/replay"), &body);
    }
}
