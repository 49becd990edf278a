//! What a lookup costs among many accounts, beside a route that does nothing on the same server, and what one costs
//! that finds very many.
//!
//! Small: 20,000 accounts, 5,000 of them with one verifier; full: 1,000,000 and 100,000.

use std::time::{Duration, Instant};

use orrery::domain::ContractId;
use sha2::{Digest, Sha256};

use crate::common::http::Connection;
use crate::common::size;
use crate::made::contract;
use crate::made::passkey::{added, secp256r1, storage, unlimited};
use crate::made::smart::{external, passkey, rule_inline};
use crate::world::{PASSKEY, SMART, World};

/// Accounts that are made in one ledger.
const IN_A_LEDGER: u64 = 500;
/// Requests of one side, and how often either side has its turn.
const REQUESTS: usize = 200;
const TURNS: usize = 15;
const NO_OP: &str = "/rest/health/live";

fn digest(of: &str, number: u64) -> [u8; 32] {
    Sha256::digest(format!("{of} {number}")).into()
}

/// Half of them smart accounts, half of them wallets; each has a credential of its own.
fn made(accounts: u64, shared: u64) -> World {
    let world = World::new();
    for (sequence, first) in (1..).zip((0..accounts).step_by(IN_A_LEDGER as usize)) {
        let mut events = Vec::new();
        for number in first..accounts.min(first + IN_A_LEDGER) {
            let account = ContractId(digest("account", number));
            let credential = digest("credential", number);
            let made = if number.is_multiple_of(2) {
                // The first of them share a verifier; the others have one of many.
                let verifier =
                    contract(if number < 2 * shared { 1 } else { 2 + (number % 200) as u8 });
                rule_inline(0, &[external(&verifier, &passkey(&credential))], &[])
            } else {
                let key = secp256r1(&credential);
                added(&key, unlimited(&key), storage("Persistent"))
            };
            events.push((account, made));
        }
        world.store(sequence, &[events]);
    }
    world.temp.store.flush().unwrap();
    world.feed();
    world
}

/// The median time of one request to these targets, in turn.
fn median(connection: &mut Connection, targets: &[String]) -> Duration {
    let mut times: Vec<Duration> = targets
        .iter()
        .map(|target| {
            let begun = Instant::now();
            let answer = connection.request("GET", target, &[]);
            assert_eq!(answer.status, 200, "{target}");
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

#[test]
fn a_lookup_costs_little_more_than_nothing() {
    let (accounts, shared) = (size::choose(20_000, 1_000_000), size::choose(5_000, 100_000));
    let world = made(accounts, shared);
    let mut connection = world.server.connect();
    for (base, parity) in [(SMART, 0), (PASSKEY, 1)] {
        let (mut first, mut again, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 0..TURNS {
            let lookups: Vec<String> = (0..REQUESTS as u64)
                .map(|at| {
                    let number = (at * 7_919 + turn as u64 * 104_729) % (accounts / 2) * 2 + parity;
                    format!("{base}/api/lookup/{}", hex::encode(digest("credential", number)))
                })
                .collect();
            let found = connection.request("GET", &lookups[0], &[]).json();
            assert_eq!(found["count"], 1, "{found}");
            let no_op = vec![NO_OP.to_owned(); REQUESTS];
            let [asked, kept, nothing] =
                [&lookups, &lookups, &no_op].map(|targets| median(&mut connection, targets));
            first.push(asked.as_secs_f64() / nothing.as_secs_f64());
            again.push(kept.as_secs_f64() / nothing.as_secs_f64());
            times.push((asked, kept, nothing));
        }
        let [first, again] = [first, again].map(|mut ratios: Vec<f64>| {
            ratios.sort_by(f64::total_cmp);
            ratios[TURNS / 2]
        });
        println!(
            "{base}: {first:.2} times nothing, {again:.2} when asked again, among {accounts} accounts; {:?}",
            times[TURNS / 2]
        );
        // Figures of an unoptimised build on a machine that others use, too: this finds what grows with the number
        // of accounts, not a tenth more.
        assert!(first < 4.0 && again < 2.0, "{base}: {first}, {again}");
    }
    let target = format!("{SMART}/api/lookup/address/{}", contract(1));
    let begun = Instant::now();
    let answer = connection.request("GET", &target, &[]);
    let took = begun.elapsed();
    println!("{} bytes about {shared} accounts with one verifier in {took:?}", answer.body.len());
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-result-truncated"), (shared > 3000).then_some("true"));
    assert!(answer.body.len() <= 1 << 20 && took < Duration::from_secs(1));
    assert_eq!(answer.json()["count"], shared.min(3000));
}
