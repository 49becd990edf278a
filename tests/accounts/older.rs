//! Lookups while older ledgers are indexed: they answer, and say that they are not complete.

use orrery::accounts::AccountConsumer;
use orrery::accounts::smart::SmartAccounts;
use orrery::settings::{Millis, nonzero};
use orrery::store::LedgerConsumer;
use orrery_testkit::account_events::smart::{delegated, external, passkey, rule_inline};
use orrery_testkit::account_events::{account, contract, contract_id};
use serde_json::Value;

use crate::world::{PASSKEY, SMART, Transaction, World, consumers, growing};

/// First ledger of the account with a long log, and the number of its ledgers.
const FIRST: u32 = 10;
const LEDGERS: u32 = 300;
/// Events of an account that has nothing else.
fn other() -> Transaction {
    let signer = external(&contract(2), &passkey(b"another"));
    vec![(contract_id(7), rule_inline(0, &[signer], &[]))]
}

/// A store with both accounts, all indexed.
fn indexed() -> World {
    // A request that waits for ledgers would fail.
    let world = World::with(|settings| settings.limits.scan_ms = Millis::new(nonzero!(500)));
    world.store(FIRST, &[growing(FIRST), other()]);
    for sequence in FIRST + 1..FIRST + LEDGERS {
        world.store(sequence, &[growing(sequence)]);
    }
    world.feed();
    world
}

fn lookup(credential: &[u8]) -> String {
    format!("{SMART}/api/lookup/{}", hex::encode(credential))
}

fn answer(world: &World, target: &str) -> Value {
    let answer = world.ask(target);
    assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

/// The answers about the account with one rule.
fn about_other(world: &World) -> [Value; 3] {
    let [found, detail] = [lookup(b"another"), format!("{SMART}/api/contract/{}", contract_id(7))]
        .map(|target| answer(world, &target));
    assert_eq!(found["count"], 1);
    assert_eq!(detail["summary"]["context_rule_count"], 1);
    [found, detail, answer(world, &format!("{SMART}/api/stats"))]
}

fn lag(world: &World, name: &str) -> u64 {
    world.temp.store.consumer(name).unwrap().lag
}

/// An older ledger with an event of the account with the long log, whose state is computed again: in
/// pieces, of which one is done.
#[test]
fn lookups_answer_while_the_state_of_another_account_is_computed_again() {
    let world = indexed();
    let complete = |answers: [Value; 3]| answers.map(|it| it["complete"].as_bool().unwrap());
    assert_eq!(complete(about_other(&world)), [true; 3]);
    world.store(
        FIRST - 1,
        &[vec![(contract_id(1), rule_inline(0, &[delegated(&account(1))], &[]))]],
    );
    let index = AccountConsumer(SmartAccounts);
    let name = index.spec().name;
    assert!(world.temp.store.step(&index).unwrap());
    assert_eq!(lag(&world, name), 1, "there is more to do");
    for consumer in consumers().iter().filter(|it| it.spec().name != name) {
        while world.temp.store.step(&**consumer).unwrap() {}
    }
    let mut steps = 0;
    while lag(&world, name) > 0 {
        let answers = about_other(&world);
        assert!(answers.iter().all(|it| it["as_of_ledger"] == FIRST + LEDGERS - 1));
        assert_eq!(complete(answers), [false; 3]);
        assert!(world.temp.store.step(&index).unwrap());
        steps += 1;
        // A newer ledger is indexed as well while there is more to do.
        if steps == 1 {
            world.store(FIRST + LEDGERS, &[other()]);
            for consumer in consumers() {
                world.temp.store.step(&*consumer).unwrap();
            }
            assert!(lag(&world, name) > 0);
            assert_eq!(about_other(&world)[0]["as_of_ledger"], FIRST + LEDGERS);
            break;
        }
    }
    assert_eq!(steps, 1, "the account's state takes several steps");
    world.feed();
    assert_eq!(complete(about_other(&world)), [true; 3]);
}

/// Older ledgers that no index has processed yet.
#[test]
fn lookups_answer_while_older_ledgers_wait() {
    let world = indexed();
    let lookups = [lookup(b"another"), format!("{PASSKEY}/api/lookup/00ff")];
    let complete = |target: &String| answer(&world, target)["complete"].clone();
    assert!(lookups.iter().all(|it| complete(it) == true));
    world.store(FIRST - 1, &[]);
    world.store(FIRST - 2, &[other()]);
    assert!(lookups.iter().all(|it| complete(it) == false));
    // The newest ledger is never missing.
    world.store(FIRST + LEDGERS, &[]);
    for target in &lookups {
        world.ask(target).error(503, "not_ready");
    }
    world.feed();
    assert!(lookups.iter().all(|it| complete(it) == true), "and no answer from before is kept");
}
