//! Exact HTTP responses: routes, statuses, headers, order of results, and parsing of request
//! parameters.

use std::sync::Arc;
use std::time::Duration;

use orrery::accounts::AccountIndex;
use orrery::accounts::passkey::PasskeyWallets;
use orrery::accounts::smart::SmartAccounts;
use orrery::config::Config;
use orrery::control::RebuildRequest;
use orrery::service::Node;
use orrery::settings::{Millis, nonzero};
use orrery::store::{Durability, IndexOptions, RowBounds, Store};
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::world::{Events, PASSKEY, SMART, World, consumers, ledger};
use orrery_testkit::account_events::passkey::{
    added, ed25519, legacy, policy, removed, secp256r1, storage, unlimited, updated, upgraded, val,
    wrapped,
};
use orrery_testkit::account_events::smart::{
    delegated, empty, event, external, passkey, rule_by_ids, rule_inline,
};
use orrery_testkit::account_events::{Made, account, address, contract, contract_id, number};
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::values::{fields, i128, list, map};

/// Returns one transaction with these events of one contract.
pub fn by(contract: u16, made: impl IntoIterator<Item = Made>) -> Events {
    vec![made.into_iter().map(|made| (contract_id(contract), made)).collect()]
}

pub fn id(contract: u16) -> String {
    contract_id(contract).to_string()
}

pub fn get(world: &World, target: &str) -> Value {
    let answer = world.ask(target);
    assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn text(world: &World, target: &str) -> String {
    String::from_utf8(world.ask(target).body).unwrap()
}

#[test]
fn routes_are_public_and_allow_any_origin() {
    let world = World::new();
    for (base, service, failure) in [
        (SMART, "smart-account-indexer", "Contract not found"),
        (PASSKEY, "passkey-indexer", "Wallet not found"),
    ] {
        let health = format!("{{\"status\":\"ok\",\"service\":\"{service}\"}}");
        let detail = if base == SMART { "contract" } else { "wallet" };
        let nobody = id(9);
        for (target, status, error) in [
            (base.to_owned(), 200, None),
            (format!("{base}/"), 200, None),
            (format!("{base}/api/stats"), 200, None),
            (format!("{base}/api/lookup/00ff"), 200, None),
            (format!("{base}/api/lookup/0X00FF"), 200, None),
            (format!("{base}/api/lookup/%30x00ff"), 200, None),
            (format!("{base}/api/lookup/address/{nobody}"), 200, None),
            (format!("{base}/api/lookup/0x"), 400, Some("Invalid credential ID")),
            (format!("{base}/api/lookup/0x0x00"), 400, Some("Invalid credential ID")),
            (format!("{base}/api/lookup/abc"), 400, Some("Invalid credential ID")),
            (format!("{base}/api/lookup/zz"), 400, Some("Invalid credential ID")),
            (format!("{base}/api/lookup/%ff"), 400, Some("Invalid credential ID")),
            (format!("{base}/api/lookup/address"), 400, Some("Invalid credential ID")),
            (
                format!("{base}/api/lookup/{}", "ab".repeat(2049)),
                400,
                Some("Invalid credential ID"),
            ),
            (
                format!("{base}/api/lookup/address/{}", nobody.to_lowercase()),
                400,
                Some("Invalid address"),
            ),
            (format!("{base}/api/lookup/address/{}A", &nobody[..55]), 400, Some("Invalid address")),
            (format!("{base}/api/lookup/address/x"), 400, Some("Invalid address")),
            (format!("{base}/api/{detail}/{nobody}"), 404, Some(failure)),
            (format!("{base}/api/{detail}/x"), 404, Some(failure)),
            (format!("{base}/api/lookup"), 404, Some("Not found")),
            (format!("{base}/api/credentials"), 404, Some("Not found")),
            (format!("{base}/api/{detail}/{nobody}/signers"), 404, Some("Not found")),
            (format!("{base}/x"), 404, Some("Not found")),
        ] {
            for headers in [&[][..], &[("authorization", "Bearer nonsense")]] {
                let answer = world.server.connect().request("GET", &target, headers);
                assert_eq!(answer.status, status, "{target}");
                assert_eq!(answer.header("content-type"), Some("application/json"), "{target}");
                assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{target}");
                assert_eq!(answer.header("cache-control"), Some("no-store"), "{target}");
                assert_eq!(answer.header("x-result-truncated"), None, "{target}");
                match error {
                    Some(error) => assert_eq!(answer.json()["error"], error, "{target}"),
                    None => assert!(answer.json().is_object(), "{target}"),
                }
                let head = world.server.connect().request("HEAD", &target, &[]);
                assert_eq!((head.status, head.body.len()), (status, 0), "{target}");
            }
            let asked = ("access-control-request-headers", "authorization, x-client-name");
            let origin = ("origin", "http://localhost:5173");
            let options = world.server.connect().request("OPTIONS", &target, &[asked, origin]);
            assert_eq!(options.status, 204, "{target}");
            assert_eq!(options.header("access-control-allow-origin"), Some(origin.1));
            assert_eq!(options.header("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
            assert_eq!(options.header("access-control-max-age"), Some("86400"));
            let sendable = if base == SMART { asked.1 } else { "*" };
            assert_eq!(options.header("access-control-allow-headers"), Some(sendable));
            let posted = world.server.connect().request("POST", &target, &[]);
            assert_eq!(posted.status, 405, "{target}");
            assert_eq!(posted.header("access-control-allow-origin"), Some("*"));
            assert!(posted.json()["error"].is_string());
        }
        assert_eq!(text(&world, base), health);
        assert_eq!(text(&world, &format!("{base}/")), health);
    }
    let longest = "ab".repeat(1023);
    assert_eq!(world.ask(&format!("{PASSKEY}/api/lookup/{longest}")).status, 200);
    assert_eq!(world.ask(&format!("{PASSKEY}/api/lookup/{longest}00")).status, 400);
    assert_eq!(world.ask(&format!("{SMART}/api/lookup/{}", "ab".repeat(2048))).status, 200);
    // An address that is neither an account nor a contract.
    let muxed = "MA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVAAAAAAAAAAAAAJLK";
    assert_eq!(world.ask(&format!("{PASSKEY}/api/lookup/address/{muxed}")).status, 400);
    assert_eq!(
        text(&world, &format!("{SMART}/api/lookup/0x00FF")),
        r#"{"credentialId":"00ff","contracts":[],"count":0,"as_of_ledger":null,"complete":false}"#
    );
    assert_eq!(
        text(&world, &format!("{SMART}/api/stats")),
        concat!(
            r#"{"stats":{"total_events":0,"unique_contracts":0,"unique_credentials":0,"#,
            r#""first_ledger":0,"last_ledger":0,"eventTypes":[]},"as_of_ledger":null,"complete":false}"#
        )
    );
    assert_eq!(
        text(&world, &format!("{PASSKEY}/api/stats")),
        concat!(
            r#"{"stats":{"total_events":0,"unique_contracts":0,"unique_credentials":0,"total_signers":0,"#,
            r#""active_signers":0,"first_ledger":null,"last_ledger":null,"eventTypes":[]},"#,
            r#""as_of_ledger":null,"complete":false}"#
        )
    );
}

#[test]
fn smart_account_responses_match_what_the_client_expects() {
    let world = World::new();
    let (verifier, who, limiter) = (contract(2), account(1), contract(3));
    let register = |at, signer| event("signer_registered", at, fields([("signer", signer)]));
    let install = fields([("limit", i128(5_000_000)), ("threshold", number(2))]);
    world.add(
        900,
        &by(
            1,
            [
                register(0, external(&verifier, &passkey(&[0xab; 2]))),
                register(1, external(&verifier, &[0xdc; 32])),
                register(2, delegated(&who)),
                event("policy_registered", 0, fields([("policy", address(&limiter))])),
                rule_by_ids(0, &[0, 2, 1], &[]),
                event(
                    "policy_added",
                    0,
                    fields([("install_param", install), ("policy_id", number(0))]),
                ),
            ],
        ),
    );
    world.add(901, &[]);
    world.add(902, &by(1, [rule_inline(7, &[external(&verifier, &passkey(&[0xab; 2]))], &[])]));
    let summary = format!(
        concat!(
            r#"{{"contract_id":"{}","context_rule_count":2,"external_signer_count":3,"#,
            r#""delegated_signer_count":1,"native_signer_count":0,"first_seen_ledger":900,"#,
            r#""last_seen_ledger":902,"context_rule_ids":[0,7]}}"#
        ),
        id(1)
    );
    let extent = r#""as_of_ledger":902,"complete":true}"#;
    let signer = |kind: &str, of: &dyn std::fmt::Display, credential: &str| {
        format!(
            r#"{{"signer_type":"{kind}","signer_address":"{of}","credential_id":{credential}}}"#
        )
    };
    let expected = format!(
        concat!(
            r#"{{"contractId":"{}","summary":{},"contextRules":[{{"context_rule_id":0,"signers":[{},{},{}],"#,
            r#""policies":[{{"policy_address":"{}","install_params":{{"map":[{{"key":{{"symbol":"limit"}},"#,
            r#""val":{{"i128":"5000000"}}}},{{"key":{{"symbol":"threshold"}},"val":{{"u32":2}}}}]}}}}]}},"#,
            r#"{{"context_rule_id":7,"signers":[{}],"policies":[]}}],{}"#
        ),
        id(1),
        summary,
        signer("Delegated", &who, "null"),
        signer("External", &verifier, "\"abab\""),
        signer("External", &verifier, &format!("\"{}\"", "dc".repeat(32))),
        limiter,
        signer("External", &verifier, "\"abab\""),
        extent,
    );
    assert_eq!(text(&world, &format!("{SMART}/api/contract/{}", id(1))), expected);
    for (target, name, asked) in [
        ("0xABAB".to_owned(), "credentialId", "abab".to_owned()),
        ("dc".repeat(32), "credentialId", "dc".repeat(32)),
        (format!("address/{verifier}"), "signerAddress", verifier.to_string()),
        (format!("address/{who}"), "signerAddress", who.to_string()),
    ] {
        let expected =
            format!(r#"{{"{name}":"{asked}","contracts":[{summary}],"count":1,{extent}"#);
        assert_eq!(text(&world, &format!("{SMART}/api/lookup/{target}")), expected);
    }
    // The address of a policy is not that of a signer.
    let of_policy = get(&world, &format!("{SMART}/api/lookup/address/{limiter}"));
    assert_eq!(of_policy["count"], 0);
    // An account without rules is not found, but still counted; a new rule brings it back.
    world.add(903, &by(1, [0, 7].map(|rule| event("context_rule_removed", rule, empty()))));
    assert_eq!(world.ask(&format!("{SMART}/api/contract/{}", id(1))).status, 404);
    assert_eq!(get(&world, &format!("{SMART}/api/lookup/abab"))["contracts"], json!([]));
    let stats = &get(&world, &format!("{SMART}/api/stats"))["stats"];
    assert_eq!((&stats["unique_contracts"], &stats["unique_credentials"]), (&json!(1), &json!(2)));
    assert_eq!(stats["eventTypes"][0], json!({ "event_type": "context_rule_added", "count": 2 }));
    world.add(904, &by(1, [rule_by_ids(8, &[0], &[])]));
    let back = get(&world, &format!("{SMART}/api/contract/{}", id(1)));
    assert_eq!(back["summary"]["first_seen_ledger"], 900);
    assert_eq!(back["summary"]["context_rule_ids"], json!([8]));
}

fn signers(world: &World, contract: u16) -> Vec<Value> {
    let detail = get(world, &format!("{PASSKEY}/api/wallet/{}", id(contract)));
    detail["signers"].as_array().unwrap().clone()
}

#[test]
fn wallet_responses_match_what_the_client_expects() {
    let world = World::at(1_800_000_000, 1_000_020);
    let (token, who) = (contract(5), contract(6));
    let (first, second, third) = (secp256r1(&[0x12, 0xbe]), ed25519(3), policy(&who));
    let deny = val(&second, [wrapped(ScVal::U64(1_799_999_999)), wrapped(fields([]))]);
    let limited = map([(address(&token), ScVal::Void), (address(&who), list([first.clone()]))]);
    let limited = val(&third, [wrapped(ScVal::Void), wrapped(limited)]);
    world.add(
        1_000_000,
        &by(
            1,
            [
                added(&first, unlimited(&first), storage("Persistent")),
                added(&second, deny, storage("Temporary")),
                added(&third, limited, storage("Persistent")),
            ],
        ),
    );
    let public_key = hex::encode(orrery_testkit::account_events::public_key(9));
    let strkey = account(3).to_string();
    let mut limits = [
        (token.to_string(), "null".to_owned()),
        (who.to_string(), r#"[{"type":"secp256r1","value":"12be"}]"#.to_owned()),
    ];
    limits.sort();
    let limits = limits.map(|(address, keys)| format!("\"{address}\":{keys}")).join(",");
    let expected = format!(
        concat!(
            r#"{{"contractId":"{}","generation":"v1","first_seen_ledger":1000000,"last_seen_ledger":1000000,"#,
            r#""signers":[{{"key":{{"type":"secp256r1","value":"12be"}},"publicKey":"{}","#,
            r#""storage":"persistent","status":"live"}},"#,
            r#"{{"key":{{"type":"ed25519","value":"{}"}},"expiration":1799999999,"expiration_unit":"unix","#,
            r#""limits":{{}},"storage":"temporary","status":"expired"}},"#,
            r#"{{"key":{{"type":"policy","value":"{}"}},"limits":{{{}}},"storage":"persistent","#,
            r#""status":"live"}}],"as_of_ledger":1000000,"complete":true}}"#
        ),
        id(1),
        public_key,
        strkey,
        who,
        limits
    );
    assert_eq!(text(&world, &format!("{PASSKEY}/api/wallet/{}", id(1))), expected);
    let summary = format!(
        concat!(
            r#"{{"contract_id":"{}","generation":"v1","signer_count":3,"first_seen_ledger":1000000,"#,
            r#""last_seen_ledger":1000000}}"#
        ),
        id(1)
    );
    for (target, name, asked) in [
        ("0x12BE".to_owned(), "credentialId", "12be".to_owned()),
        (format!("address/{strkey}"), "signerAddress", strkey.clone()),
        (format!("address/{who}"), "signerAddress", who.to_string()),
    ] {
        // An expired signer is still a signer.
        let expected = format!(
            r#"{{"{name}":"{asked}","wallets":[{summary}],"count":1,"as_of_ledger":1000000,"complete":true}}"#
        );
        assert_eq!(text(&world, &format!("{PASSKEY}/api/lookup/{target}")), expected);
    }
    // An address that occurs only in limits is not found.
    assert_eq!(get(&world, &format!("{PASSKEY}/api/lookup/address/{token}"))["count"], 0);
}

#[test]
fn signers_change_according_to_their_events() {
    let world = World::new();
    let key = ed25519(3);
    let limits = |limits: ScVal| val(&key, [wrapped(ScVal::Void), wrapped(limits)]);
    let bare =
        |limits: ScVal| list([val(&key, [ScVal::Void, wrapped(limits)]), storage("Persistent")]);
    let only = |world: &World| {
        let signers = signers(world, 1);
        assert_eq!(signers.len(), 1, "one row for each key");
        signers[0].clone()
    };
    let lookup = format!("{PASSKEY}/api/lookup/address/{}", account(3));
    // Legacy contracts treat empty limits as no limits.
    world.add(10, &by(1, [legacy("add", &key, bare(fields([])))]));
    assert_eq!(only(&world).get("limits"), None);
    // After an upgrade, the same limits mean what they mean in v1, and the generation is v1.
    world.add(11, &by(1, [upgraded(None)]));
    assert_eq!(only(&world)["limits"], json!({}));
    let found = get(&world, &lookup);
    assert_eq!(found["wallets"][0]["generation"], "v1");
    assert_eq!(found["wallets"][0]["last_seen_ledger"], 11);
    // Deny-all limits, then unlimited.
    world.add(
        12,
        &by(1, [updated(&key, limits(fields([])), storage("Persistent"), storage("Persistent"))]),
    );
    assert_eq!(only(&world)["limits"], json!({}));
    world.add(
        13,
        &by(1, [updated(&key, unlimited(&key), storage("Persistent"), storage("Temporary"))]),
    );
    assert_eq!((only(&world).get("limits"), &only(&world)["storage"]), (None, &json!("temporary")));
    // A removed signer keeps its last state; added again, it has the new one.
    world.add(14, &by(1, [removed(&key, storage("Temporary"))]));
    let gone = only(&world);
    assert_eq!((&gone["status"], &gone["storage"]), (&json!("removed"), &json!("temporary")));
    assert_eq!(get(&world, &lookup)["count"], 0);
    assert_eq!(world.ask(&format!("{PASSKEY}/api/wallet/{}", id(1))).status, 200);
    let second = secp256r1(&[1]);
    world.add(
        15,
        &by(
            1,
            [
                added(&second, unlimited(&second), storage("Persistent")),
                legacy("add", &key, bare(fields([]))),
            ],
        ),
    );
    let both = signers(&world, 1);
    assert_eq!((&both[0]["key"]["type"], &both[0]["status"]), (&json!("ed25519"), &json!("live")));
    assert_eq!(get(&world, &lookup)["wallets"][0]["generation"], "legacy");
    // Neither an upgrade nor the removal of an unknown signer makes a contract a wallet.
    world.add(16, &by(2, [upgraded(None), removed(&key, storage("Persistent"))]));
    assert_eq!(world.ask(&format!("{PASSKEY}/api/wallet/{}", id(2))).status, 404);
    let stats = &get(&world, &format!("{PASSKEY}/api/stats"))["stats"];
    assert_eq!((&stats["unique_contracts"], &stats["total_signers"]), (&json!(1), &json!(2)));
    let of = |name: &str| {
        let kinds = stats["eventTypes"].as_array().unwrap();
        kinds.iter().find(|it| it["event_type"] == name).map(|it| it["count"].clone())
    };
    assert_eq!((of("upgraded"), of("signer_removed")), (Some(json!(1)), Some(json!(2))));
}

#[test]
fn signers_are_valid_up_to_and_including_their_expiration() {
    let (unix, old) = (ed25519(1), ed25519(2));
    let second = val(&unix, [wrapped(ScVal::U64(5_000)), wrapped(ScVal::Void)]);
    let ledger =
        list([val(&old, [wrapped(number(700)), wrapped(ScVal::Void)]), storage("Temporary")]);
    let made = [added(&unix, second, storage("Persistent")), legacy("add", &old, ledger)];
    for (clock, tip, expected) in [
        (4_999, 699, ["live", "live"]),
        (5_000, 700, ["live", "live"]),
        (5_001, 700, ["expired", "live"]),
        (5_000, 701, ["live", "expired"]),
        (u64::MAX, u32::MAX, ["expired", "expired"]),
    ] {
        let world = World::at(clock, tip);
        world.add(10, &by(1, made.clone()));
        let statuses: Vec<Value> =
            signers(&world, 1).iter().map(|it| it["status"].clone()).collect();
        assert_eq!(statuses, expected, "at {clock} and {tip}");
    }
    // Without a fixed ledger, the newest one of the network counts, or the newest stored one.
    let world = World::with(|settings| settings.indexers.fixed_clock = 1);
    world.add(700, &by(1, made));
    assert_eq!(signers(&world, 1)[1]["status"], "live");
    world.server.health.set_network_latest(701.into());
    assert_eq!(signers(&world, 1)[1]["status"], "expired");
    // The largest possible number of seconds.
    let ever = val(&unix, [wrapped(ScVal::U64(u64::MAX)), wrapped(ScVal::Void)]);
    world.add(701, &by(3, [added(&unix, ever, storage("Persistent"))]));
    assert_eq!(signers(&world, 3)[0]["expiration"], u64::MAX);
}

#[test]
fn responses_say_whether_they_are_complete() {
    let world = World::new();
    let key = ed25519(1);
    let add = |world: &World, sequence, contract| {
        let rule = rule_inline(0, &[delegated(&account(1))], &[]);
        world.add(
            sequence,
            &by(contract, [added(&key, unlimited(&key), storage("Persistent")), rule]),
        );
    };
    let completeness = |world: &World, contract: u16| {
        let wallet = get(world, &format!("{PASSKEY}/api/wallet/{}", id(contract)));
        let account = get(world, &format!("{SMART}/api/contract/{}", id(contract)));
        assert_eq!(wallet["as_of_ledger"], account["as_of_ledger"]);
        assert_eq!(wallet["complete"], account["complete"]);
        (wallet["as_of_ledger"].as_u64().unwrap(), wallet["complete"].as_bool().unwrap())
    };
    add(&world, 10, 1);
    assert_eq!(completeness(&world, 1), (10, true));
    add(&world, 12, 2);
    assert_eq!((completeness(&world, 1), completeness(&world, 2)), ((12, false), (12, true)));
    let lookup = format!("{PASSKEY}/api/lookup/address/{}", account(1));
    assert_eq!(get(&world, &lookup)["complete"], false);
    assert_eq!(get(&world, &format!("{PASSKEY}/api/lookup/00"))["complete"], false);
    world.add(11, &[]);
    assert_eq!((completeness(&world, 1), completeness(&world, 2)), ((12, true), (12, true)));
    assert_eq!(get(&world, &lookup)["complete"], true);
    assert_eq!(get(&world, &format!("{PASSKEY}/api/stats"))["complete"], true);
}

#[test]
fn responses_include_every_ledger_stored_before_the_request() {
    let world = World::with(|settings| settings.limits.scan_ms = Millis::new(nonzero!(20_000)));
    let key = ed25519(1);
    let lookup = format!("{PASSKEY}/api/lookup/address/{}", account(1));
    for sequence in 10..20 {
        let wallet = added(&key, unlimited(&key), storage("Persistent"));
        world.store(sequence, &by(sequence as u16, [wallet]));
        // The other routes show the ledger from here on. The lookup arrives before the index has
        // processed the ledger, and repeats an earlier one.
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| get(&world, &lookup));
            std::thread::sleep(Duration::from_millis(u64::from(sequence % 3)));
            world.feed();
            let answer = asked.join().unwrap();
            assert_eq!(answer["count"], sequence - 9);
            assert_eq!(answer["as_of_ledger"], sequence);
        });
    }
    let world = World::with(|settings| settings.limits.scan_ms = Millis::new(nonzero!(20)));
    world.store(10, &by(1, [added(&key, unlimited(&key), storage("Persistent"))]));
    let answer = world.ask(&lookup);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert!(answer.error(503, "not_ready").contains("1 stored ledgers"), "it says how many");
    world.feed();
    assert_eq!(get(&world, &lookup)["count"], 1);
}

/// Returns all rows of an index.
pub fn rows(store: &Store, consumer: &str) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let families = if consumer == SmartAccounts::CONSUMER {
        SmartAccounts::FAMILIES
    } else {
        PasskeyWallets::FAMILIES
    };
    let view = store.consumer_view(consumer, RowBounds::none()).unwrap();
    let mut found = Vec::new();
    for family in families {
        view.scan(family, |key, value| {
            found.push(((*family).to_owned(), key.to_vec(), value.to_vec()));
        })
        .unwrap();
    }
    found
}

#[test]
fn a_rebuilt_index_equals_the_original() {
    use rand::SeedableRng;
    let directory = scratch();
    let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
    let node = Node::open_with(&config, Some(&local()), consumers().to_vec()).unwrap();
    let store: &Arc<Store> = node.store();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(8);
    let of = [crate::histories::AccountKind::Smart, crate::histories::AccountKind::Passkey];
    let [mut all, more] = of.map(|of| crate::histories::history(&mut rng, of, 40, 12));
    all.iter_mut().zip(more).for_each(|(all, more)| all.extend(more));
    // The newer half is stored first.
    for sequence in (21..=40).chain(1..=20) {
        let prepared =
            ledger(sequence, &all[sequence as usize - 1]).prepare(&IndexOptions::default());
        store.commit(prepared, Durability::Synced).unwrap();
        for consumer in consumers() {
            while store.step(&*consumer).unwrap() {}
        }
    }
    for name in [SmartAccounts::CONSUMER, PasskeyWallets::CONSUMER] {
        let before = (rows(store, name), store.consumer_digest(name).unwrap());
        assert!(before.0.len() > 100);
        let request = |begin| RebuildRequest { name: name.to_owned(), begin, allow_loss: false };
        node.rebuild(&request(true)).unwrap();
        while node.rebuild_step(name).unwrap() {}
        assert!(before == (rows(store, name), store.consumer_digest(name).unwrap()), "{name}");
        let report = node.rebuild(&request(false)).unwrap();
        assert_eq!(report.digest, Some(before.1));
    }
    let digests = [SmartAccounts::CONSUMER, PasskeyWallets::CONSUMER]
        .map(|name| store.consumer_digest(name).unwrap());
    assert_ne!(digests[0], digests[1]);
}

/// The index evaluates only the first mebibyte of a contract's events, so that a contract that
/// emits endlessly does not delay others.
#[test]
fn the_evaluated_events_of_a_contract_are_limited() {
    let world = World::new();
    let rules = |from: u32| {
        let signer = |number: u32| external(&contract(2), &[number as u8; 1000]);
        by(1, (from..from + 400).map(move |it| rule_inline(it, &[signer(it)], &[])))
    };
    world.add(10, &rules(0));
    let detail = || get(&world, &format!("{SMART}/api/contract/{}", id(1)));
    let account_detail = detail();
    assert_eq!(
        (&account_detail["summary"]["context_rule_count"], &account_detail["complete"]),
        (&json!(400), &json!(true))
    );
    world.add(11, &rules(400));
    world.add(12, &rules(800));
    let account_detail = detail();
    let count = account_detail["summary"]["context_rule_count"].as_u64().unwrap();
    assert!((800..1200).contains(&count), "{count}");
    assert_eq!(account_detail["complete"], false);
    assert_eq!(account_detail["summary"]["last_seen_ledger"], 12);
    // Later events do not change the account as it is shown, but all are counted.
    world.add(13, &by(1, [event("context_rule_removed", 0, empty())]));
    assert_eq!(detail()["summary"]["context_rule_count"], count);
    assert_eq!(detail()["summary"]["last_seen_ledger"], 13);
    assert_eq!(get(&world, &format!("{SMART}/api/stats"))["stats"]["total_events"], 1201);
    let lookup = get(&world, &format!("{SMART}/api/lookup/address/{}", contract(2)));
    assert_eq!((&lookup["count"], &lookup["complete"]), (&json!(1), &json!(false)));
}
