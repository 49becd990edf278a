//! The response to a lookup is bounded even for a verifier that very many accounts share.
//!
//! Small: 5,000 accounts; full: 100,000. How long lookups take is measured in `benches/`.

use orrery::domain::ContractId;
use sha2::{Digest, Sha256};

use crate::world::{SMART, World};
use orrery_testkit::account_events::contract;
use orrery_testkit::account_events::smart::{external, passkey, rule_inline};
use orrery_testkit::size;

/// Accounts created per ledger.
const IN_A_LEDGER: u64 = 500;
/// Maximum number of accounts in a response.
const LISTED: u64 = 3_000;

fn digest(of: &str, number: u64) -> [u8; 32] {
    Sha256::digest(format!("{of} {number}")).into()
}

#[test]
fn lookups_of_a_widely_shared_verifier_are_truncated_and_say_so() {
    let shared = size::choose(5_000, 100_000);
    let world = World::new();
    for (sequence, first) in (1..).zip((0..shared).step_by(IN_A_LEDGER as usize)) {
        let accounts = first..shared.min(first + IN_A_LEDGER);
        let events = accounts.map(|number| {
            let key = passkey(&digest("credential", number));
            let made = rule_inline(0, &[external(&contract(1), &key)], &[]);
            (ContractId(digest("account", number)), made)
        });
        world.store(sequence, &[events.collect()]);
    }
    world.temp.store.flush().unwrap();
    world.feed();
    let answer = world.ask(&format!("{SMART}/api/lookup/address/{}", contract(1)));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-result-truncated"), Some("true"));
    assert!(answer.body.len() <= 1 << 20, "{} bytes", answer.body.len());
    assert_eq!(answer.json()["count"], LISTED);
    let one = format!("{SMART}/api/lookup/{}", hex::encode(digest("credential", shared - 1)));
    let answer = world.ask(&one);
    assert_eq!((answer.status, answer.json()["count"].as_u64()), (200, Some(1)));
}
