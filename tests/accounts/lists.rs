//! Lists of accounts: their order, their pages, and what a summary lists of an account.

use orrery::settings::nonzero;
use serde_json::json;

use crate::answers::{by, get, id};
use crate::world::{PASSKEY, SMART, World};
use orrery_testkit::account_events::account;
use orrery_testkit::account_events::passkey::{
    added, ed25519, removed, secp256r1, storage, unlimited,
};
use orrery_testkit::account_events::smart::{delegated, empty, event, rule_inline};

/// Accounts and wallets are listed in the order of the events that added the signer, whatever their
/// contracts are called and whenever they emitted anything else: nobody gets in front of an account
/// after its signer is known. The cursor leads to all of them.
#[test]
fn accounts_are_listed_in_the_order_in_which_they_added_the_signer() {
    let world = World::with(|settings| settings.indexers.most_accounts = nonzero!(4));
    let (other, signer) = (ed25519(9), delegated(&account(1)));
    let key = secp256r1(&[0xee]);
    // Contracts that emit events of accounts and wallets before anybody has the signer.
    let early = [4, 6, 104, 106].map(|contract| {
        let add = added(&other, unlimited(&other), storage("Persistent"));
        by(contract, [rule_inline(9, &[], &[]), add]).concat()
    });
    world.add(9, &early);
    let contracts = [5, 3, 9, 1, 7, 2, 8, 4, 6];
    for (sequence, contract) in (10..).zip(contracts) {
        let add = added(&key, unlimited(&key), storage("Persistent"));
        // Two in each ledger.
        let rule = rule_inline(0, std::slice::from_ref(&signer), &[]);
        let mut events = by(contract, [rule.clone(), add.clone()]);
        events.extend(by(contract + 100, [rule, add]));
        world.add(sequence, &events);
    }
    // Removed and added again, it stays where it was.
    let again = [
        event("context_rule_removed", 0, empty()),
        rule_inline(1, std::slice::from_ref(&signer), &[]),
        removed(&key, storage("Persistent")),
        added(&key, unlimited(&key), storage("Persistent")),
    ];
    world.add(19, &by(5, again));
    let expected: Vec<String> =
        contracts.into_iter().flat_map(|contract| [id(contract), id(contract + 100)]).collect();
    for (target, list) in [
        (format!("{SMART}/api/lookup/address/{}", account(1)), "contracts"),
        (format!("{PASSKEY}/api/lookup/ee"), "wallets"),
    ] {
        let (mut listed, mut next) = (Vec::new(), target.clone());
        loop {
            let answer = world.ask(&next);
            let (is_truncated, answer) =
                (answer.header("x-result-truncated") == Some("true"), answer.json());
            let page = answer[list].as_array().unwrap().iter();
            listed.extend(page.map(|it| it["contract_id"].as_str().unwrap().to_owned()));
            assert_eq!(answer["complete"], !is_truncated);
            assert_eq!(answer["cursor"].is_string(), is_truncated);
            let Some(cursor) = answer["cursor"].as_str() else { break };
            assert_eq!(answer["count"], 4);
            next = format!("{target}?cursor={cursor}");
        }
        assert_eq!(listed, expected, "{target}");
        for wrong in ["x", "1-2", "-1-2-3", ""] {
            let answer = world.ask(&format!("{target}?cursor={wrong}"));
            assert!(answer.error(400, "bad_parameter").contains("cursor"), "{wrong}");
        }
        let browser = world.server.connect().request("GET", &target, &[]);
        let readable = browser.header("access-control-expose-headers").unwrap();
        assert!(readable.contains("X-Result-Truncated"));
    }
}

/// A summary lists the first hundred rules and counts all of them.
#[test]
fn summaries_list_at_most_a_hundred_rules() {
    let world = World::new();
    let signer = delegated(&account(1));
    let rules = (0..150).map(|rule| rule_inline(rule, std::slice::from_ref(&signer), &[]));
    world.add(10, &by(1, rules));
    let first: Vec<u32> = (0..100).collect();
    let found = get(&world, &format!("{SMART}/api/lookup/address/{}", account(1)));
    let detail = get(&world, &format!("{SMART}/api/contract/{}", id(1)));
    for summary in [&found["contracts"][0], &detail["summary"]] {
        assert_eq!(summary["context_rule_count"], 150);
        assert_eq!(summary["context_rule_ids"], json!(first));
    }
    assert_eq!(detail["contextRules"].as_array().unwrap().len(), 150);
    assert_eq!((&found["complete"], &detail["complete"]), (&json!(true), &json!(true)));
}
