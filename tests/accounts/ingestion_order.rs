//! Random histories in chain order, backwards, and in any order with repeats: the index keeps the
//! same bytes, and HTTP responses equal those of the second implementations.
//!
//! Small: 400 histories of each kind, and 8 with 40 contracts each over HTTP; full: 100,000 and
//! 2,500.

use std::collections::BTreeSet;

use orrery::accounts::passkey::PasskeyWallets;
use orrery::accounts::smart::SmartAccounts;
use orrery::accounts::{AccountIndex, Emitted, Position};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::histories::{AccountKind, history};
use crate::memory::Memory;
use crate::world::{At, Events, PASSKEY, SMART, World, body};
use crate::{passkey_naive, smart_naive};
use orrery_testkit::size;

/// UNIX time and ledger at which expirations of signers are evaluated.
const SECOND: u64 = 1_700_000_000;
const LEDGER: u32 = 1_000;

/// Returns the events that one of the indexes recognises.
pub fn recognised<Event>(
    ledgers: &[Events],
    recognise: impl Fn(&[&[u8]], &[u8]) -> Option<Event>,
) -> Vec<Emitted<Event>> {
    let mut found = Vec::new();
    each(ledgers, |contract, (ledger, application_order, event_index), made| {
        let topics = made.topics_xdr();
        let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
        if let Some(event) = recognise(&topics, &made.data_xdr()) {
            let position = Position { ledger, application_order, event_index };
            found.push(Emitted { contract, position, event });
        }
    });
    found
}

fn each(
    ledgers: &[Events],
    mut visit: impl FnMut(orrery::domain::ContractId, At, &orrery_testkit::account_events::Made),
) {
    for (ledger, events) in (1..).zip(ledgers) {
        for (order, emitted) in (1..).zip(events) {
            for (index, (contract, made)) in (0..).zip(emitted) {
                visit(*contract, (ledger, order, index), made);
            }
        }
    }
}

/// Passes the events to an index in pieces of random size, and returns the resulting rows once it
/// has nothing left to do.
fn kept<I: AccountIndex>(rng: &mut ChaCha8Rng, events: &[Emitted<I::Event>]) -> Memory {
    let (mut memory, mut rest) = (Memory::default(), events);
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rng.random_range(1..=rest.len()));
        I::apply_events(&mut memory, piece).unwrap();
        if rng.random_bool(0.5) {
            I::continue_work(&mut memory, rng.random_range(1..100)).unwrap();
        }
        rest = later;
    }
    while I::continue_work(&mut memory, 100).unwrap() {}
    memory
}

fn assert_same_in_any_order<I: AccountIndex<Event: Clone>>(
    rng: &mut ChaCha8Rng,
    mut events: Vec<Emitted<I::Event>>,
) {
    let expected = kept::<I>(rng, &events);
    events.reverse();
    assert!(kept::<I>(rng, &events) == expected, "backwards");
    let again: Vec<_> = events.iter().filter(|_| rng.random_bool(0.3)).cloned().collect();
    events.extend(again);
    events.shuffle(rng);
    assert!(kept::<I>(rng, &events) == expected, "in any order, with repeats");
}

#[test]
fn the_index_does_not_depend_on_the_order_of_ingestion() {
    let mut rng = ChaCha8Rng::seed_from_u64(14);
    let mut events = 0;
    for _ in 0..size::choose(400, 100_000) {
        let (ledgers, contracts) = (rng.random_range(1..12), rng.random_range(1..4));
        let smart_history = history(&mut rng, AccountKind::Smart, ledgers, contracts);
        let passkey_history = history(&mut rng, AccountKind::Passkey, ledgers, contracts);
        let of_smart = recognised(&smart_history, SmartAccounts::recognise);
        let of_passkey = recognised(&passkey_history, PasskeyWallets::recognise);
        events += of_smart.len() + of_passkey.len();
        assert_same_in_any_order::<SmartAccounts>(&mut rng, of_smart);
        assert_same_in_any_order::<PasskeyWallets>(&mut rng, of_passkey);
    }
    println!("{events} events");
}

/// Schemas of responses, by the base path of the index and the start of the path after it.
pub struct ResponseSchemas(Vec<(&'static str, &'static str, jsonschema::Validator)>);

impl ResponseSchemas {
    /// Reads the schemas from the service's OpenAPI description.
    pub fn new() -> Self {
        let yaml = include_str!("../../schema/openapi.yaml");
        let root: Value = serde_yaml_ng::from_str(yaml).unwrap();
        let validator = |schema: &str| {
            let of = json!({ "$ref": format!("#/components/schemas/{schema}") });
            let whole = json!({ "components": root["components"], "allOf": [of] });
            jsonschema::draft202012::new(&whole).unwrap()
        };
        let routes = [
            (SMART, "/api/lookup", "SmartAccounts"),
            (SMART, "/api/contract", "SmartAccount"),
            (SMART, "/api/stats", "SmartAccountsStats"),
            (PASSKEY, "/api/lookup", "PasskeyWallets"),
            (PASSKEY, "/api/wallet", "PasskeyWallet"),
            (PASSKEY, "/api/stats", "PasskeyWalletsStats"),
        ];
        Self(routes.map(|(base, path, schema)| (base, path, validator(schema))).into())
    }

    /// Asserts that a response conforms to its schema.
    pub fn check(&self, target: &str, answer: &Value) {
        let of = |(base, path, _): &&(&str, &str, jsonschema::Validator)| {
            target.strip_prefix(base).is_some_and(|rest| rest.starts_with(path))
        };
        let (_, _, validator) = self.0.iter().find(of).expect(target);
        let problems: Vec<_> = validator.iter_errors(answer).map(|it| it.to_string()).collect();
        assert!(problems.is_empty(), "{target}: {problems:?} in {answer}");
    }
}

/// Removes the members that the reference does not have.
fn plain(mut answer: Value) -> Value {
    if let Some(members) = answer.as_object_mut() {
        assert!(members.remove("complete").is_some_and(|it| it.is_boolean()));
        assert!(members.remove("as_of_ledger").is_some_and(|it| it.is_u64() || it.is_null()));
    }
    answer
}

#[test]
fn responses_agree_with_the_second_implementations() {
    let mut rng = ChaCha8Rng::seed_from_u64(41);
    let mut asked = 0;
    for round in 0..size::choose(8, 2_500) {
        let of = if round % 2 == 0 { AccountKind::Smart } else { AccountKind::Passkey };
        let ledgers = history(&mut rng, of, 60, 40);
        let (mut smart, mut passkey) = Default::default();
        take(&mut smart, &mut passkey, &ledgers);
        let mut order: Vec<u32> = (1..=ledgers.len() as u32).collect();
        match round % 3 {
            0 => {}
            1 => order.reverse(),
            _ => order.shuffle(&mut rng),
        }
        let world = World::at(SECOND, LEDGER);
        for sequence in order {
            world.store(sequence, &ledgers[sequence as usize - 1]);
            if rng.random_bool(0.3) {
                // Repeated: a ledger that is stored already is not stored again.
                world.store(sequence, &ledgers[sequence as usize - 1]);
                world.feed();
            }
        }
        world.feed();
        asked += assert_same(&world, &smart, &passkey);
    }
    println!("{asked} answers");
}

pub fn take(
    smart: &mut smart_naive::Naive,
    passkey: &mut passkey_naive::Naive,
    ledgers: &[Events],
) {
    each(ledgers, |contract, at, made| {
        let contract = contract.to_string();
        let topics: Vec<Value> = made.topics.iter().map(|it| json!(it)).collect();
        smart.take(&contract, at, &topics, &json!(made.data));
        passkey.take(&contract, at, &topics, &json!(made.data));
    });
}

/// Queries everything that occurs in the events, and returns the number of compared responses.
pub fn assert_same(
    world: &World,
    smart: &smart_naive::Naive,
    passkey: &passkey_naive::Naive,
) -> usize {
    let mut connection = world.server.connect();
    let mut asked = 0;
    let schemas = ResponseSchemas::new();
    let mut check = |target: String, status: u16, expected: Value| {
        let (found, answer) = body(&mut connection, &target);
        if found == 200 {
            schemas.check(&target, &answer);
        }
        let answer = if found == 200 { plain(answer) } else { json!(answer["error"]) };
        assert_eq!((found, &answer), (status, &expected), "{target}");
        asked += 1;
    };
    let list = |name: &str, of: &str, list: &str, found: Vec<Value>| json!({ name: of, "count": found.len(), list: found });

    let (contracts, credentials, addresses) = smart.names();
    for contract in &contracts {
        let target = format!("{SMART}/api/contract/{contract}");
        match smart.detail(contract) {
            Some(detail) => check(target, 200, detail),
            None => check(target, 404, json!("Contract not found")),
        }
    }
    for id in credentials {
        let expected = list("credentialId", &id, "contracts", smart.lookup("credential_id", &id));
        check(format!("{SMART}/api/lookup/0X{}", id.to_uppercase()), 200, expected);
    }
    for address in addresses {
        let found = smart.lookup("signer_address", &address);
        let expected = list("signerAddress", &address, "contracts", found);
        check(format!("{SMART}/api/lookup/address/{address}"), 200, expected);
    }
    check(format!("{SMART}/api/stats"), 200, json!({ "stats": smart.stats() }));

    let (wallets, credentials, addresses) = passkey.names();
    let all: BTreeSet<_> = wallets.iter().chain(&contracts).collect();
    for contract in all {
        let target = format!("{PASSKEY}/api/wallet/{contract}");
        match passkey.detail(contract, u64::from(LEDGER), SECOND) {
            Some(detail) => check(target, 200, detail),
            None => check(target, 404, json!("Wallet not found")),
        }
    }
    for id in credentials {
        let expected = list("credentialId", &id, "wallets", passkey.lookup(&["secp256r1"], &id));
        check(format!("{PASSKEY}/api/lookup/{id}"), 200, expected);
    }
    for address in addresses {
        let found = passkey.lookup(&["ed25519", "policy"], &address);
        let expected = list("signerAddress", &address, "wallets", found);
        check(format!("{PASSKEY}/api/lookup/address/{address}"), 200, expected);
    }
    check(format!("{PASSKEY}/api/stats"), 200, json!({ "stats": passkey.stats() }));
    asked
}
