//! Places at a server that two owners send to, with the built binary: a receiver that answers in
//! rounds, each time all places are taken, and counts whose deliveries hold them.

use std::path::Path;
use std::sync::Arc;

use orrery_testkit::binary::Service;
use orrery_testkit::wait::wait_until;
use parking_lot::{Condvar, Mutex};
use serde_json::json;

use super::receiver::{Receiver, answer};
use super::service::{Owner, SETTINGS, busiest, directory, store};

/// Number of concurrent attempts to a server, the default of `webhooks.attempts_per_server`.
const PLACES: usize = 8;
/// Number of rounds.
const ROUNDS: usize = 8;
/// Number of tokens of the owner with many, and of its subscriptions.
const TOKENS: usize = 8;
const SUBSCRIPTIONS: usize = 96;

/// Deliveries that wait for their answers.
#[derive(Default)]
struct Rounds {
    state: Mutex<State>,
    begun: Condvar,
}

#[derive(Default)]
struct State {
    /// Paths of the deliveries in this round.
    waiting: Vec<String>,
    number: usize,
    has_ended: bool,
}

impl Rounds {
    /// Waits for the end of the round that a delivery belongs to.
    fn wait(&self, path: &str) {
        let mut state = self.state.lock();
        state.waiting.push(path.to_owned());
        let number = state.number;
        self.begun.wait_while(&mut state, |it| it.number == number && !it.has_ended);
    }

    /// Ends a round once all places are taken, and returns how many deliveries were to a path that
    /// begins like this.
    fn end_one(&self, path: &str) -> usize {
        wait_until("all places are taken", || match self.state.lock().waiting.len() {
            PLACES => Ok(()),
            count => Err(count),
        });
        let mut state = self.state.lock();
        state.number += 1;
        self.begun.notify_all();
        std::mem::take(&mut state.waiting).iter().filter(|it| it.starts_with(path)).count()
    }

    /// Answers everything at once from here on.
    fn end_all(&self) {
        self.state.lock().has_ended = true;
        self.begun.notify_all();
    }
}

/// Subscribes to a contract's events, at as many paths, with tokens in turn.
fn subscribe(owners: &[Owner], receiver: &Receiver, name: &str, contract: &str, count: usize) {
    for (number, owner) in owners.iter().cycle().take(count).enumerate() {
        let endpoint = receiver.url(&format!("/{name}/{number}"));
        let new = json!({ "webhook_endpoint": endpoint, "contract_ids": [contract] });
        owner.post("webhooks/new", &new);
    }
}

/// Returns how many deliveries of ana's were answered in the rounds, beside an owner with as many
/// tokens, or alone with none.
fn served_to_ana(directory: &Path, tokens: usize) -> usize {
    let service = Service::start_with(directory, &SETTINGS);
    let owner = |name| Owner::new(directory, &service, name);
    store(directory, 0..20);
    let ana = [owner("ana")];
    let contract = busiest(&ana[0]);
    let rounds = Arc::new(Rounds::default());
    let receiver = Receiver::start({
        let rounds = Arc::clone(&rounds);
        move |received| {
            rounds.wait(&received.path);
            answer(200)
        }
    });
    if tokens > 0 {
        let mallory: Vec<_> = (0..tokens).map(|_| owner("mallory")).collect();
        subscribe(&mallory, &receiver, "mallory", &contract, SUBSCRIPTIONS);
    }
    subscribe(&ana, &receiver, "ana", &contract, PLACES);
    store(directory, 20..60);
    let served = (0..ROUNDS).map(|_| rounds.end_one("/ana/")).sum();
    rounds.end_all();
    served
}

#[test]
fn an_owner_beside_one_with_eight_tokens_has_half_of_the_places_at_a_server() {
    let [alone, one, eight] =
        [0, 1, TOKENS].map(|tokens| served_to_ana(directory().path(), tokens));
    println!("{alone} deliveries alone, {one} beside one token, {eight} beside {TOKENS}");
    assert_eq!(alone, ROUNDS * PLACES);
    assert!(20 * one >= 9 * alone, "{one} of {alone} beside one token");
    assert!(20 * eight >= 9 * alone, "{eight} of {alone} beside {TOKENS} tokens");
}
