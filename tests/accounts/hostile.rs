//! Contracts that emit events of accounts to make the index or a request work: what an event costs
//! does not grow with what its contract has emitted before, and neither does what a request costs.
//!
//! Small: contracts with 2,000 rows; full: 100,000.

use std::cell::Cell;
use std::time::{Duration, Instant};

use orrery::accounts::passkey::PasskeyWallets;
use orrery::accounts::smart::SmartAccounts;
use orrery::accounts::{AccountIndex, Emitted, Position};
use orrery::api::{self, Access, ApiSettings};
use orrery::store::{RowFlow, Rows, RowsMut, StoreError};
use orrery_testkit::account_events::passkey::{added, removed, secp256r1, storage, unlimited};
use orrery_testkit::account_events::smart::{
    delegated, empty, event, external, passkey, rule_by_ids, rule_inline,
};
use orrery_testkit::account_events::{Made, account, address, contract, contract_id, number};
use orrery_testkit::size;
use orrery_testkit::values::{fields, string};

use crate::memory::Memory;
use crate::world::World;

/// Rows that a small contract has. A rule has fewer members.
const FEW: u32 = 64;
/// Maximum number of rows that an event of any contract reads and writes.
const MOST: u64 = 1_000;

fn many() -> u32 {
    u32::try_from(size::choose(2_000, 100_000)).unwrap()
}

/// Rows that count how many of them are read and written.
struct Counted {
    rows: Memory,
    work: Cell<u64>,
}

impl Counted {
    fn count(&self) {
        self.work.set(self.work.get() + 1);
    }
}

impl Rows for Counted {
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.count();
        self.rows.get(family, key)
    }

    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> RowFlow {
        self.count();
        self.rows.scan_prefix(family, prefix, from, &mut |key, value| {
            self.count();
            visit(key, value)
        })
    }
}

impl RowsMut for Counted {
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.count();
        self.rows.put(family, key, value)
    }

    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError> {
        self.count();
        self.rows.delete(family, key)
    }
}

fn emitted<I: AccountIndex>(at: (u32, u32), made: &Made) -> Emitted<I::Event> {
    let topics = made.topics_xdr();
    let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
    let event = I::recognise(&topics, &made.data_xdr()).unwrap_or_else(|| panic!("{made:?}"));
    let position = Position { ledger: at.0, application_order: 1, event_index: at.1 };
    Emitted { contract: contract_id(1), position, event }
}

/// Returns how many rows each event reads and writes when a contract emits it after `before`, and
/// when it arrives after them although it lies before them on the chain.
fn works<I: AccountIndex>(before: &[Made], events: &[Made]) -> Vec<(u64, u64)> {
    let before: Vec<_> = (0..).zip(before).map(|(at, made)| emitted::<I>((10, at), made)).collect();
    let mut memory = Memory::default();
    for piece in before.chunks(500) {
        I::apply_events(&mut memory, piece).unwrap();
    }
    let work = |at, made: &Made| {
        let mut counted = Counted { rows: memory.clone(), work: Cell::new(0) };
        I::apply_events(&mut counted, &[emitted::<I>(at, made)]).unwrap();
        counted.work.get()
    };
    events.iter().map(|made| (work((11, 0), made), work((9, 0), made))).collect()
}

/// Asserts that events after many others cost less than twice what they cost after few, and that
/// no event costs much, whenever it arrives.
fn assert_constant<I: AccountIndex>(
    what: &str,
    before: impl Fn(u32) -> Vec<Made>,
    events: &[Made],
) {
    let (few, many) = (works::<I>(&before(FEW), events), works::<I>(&before(many()), events));
    for ((made, few), many) in events.iter().zip(few).zip(many) {
        let topics = &made.topics;
        assert!(many.0 < 2 * few.0, "{what}: {topics:?}: {few:?} rows, then {many:?}");
        assert!(many.0.max(many.1) < MOST, "{what}: {topics:?}: {many:?} rows");
    }
}

fn register(id: u32) -> Made {
    let signer = external(&contract(2), &passkey(&id.to_be_bytes()));
    event("signer_registered", id, fields([("signer", signer)]))
}

fn smart_events() -> Vec<Made> {
    let by_id = |name: &str, id| event(name, 0, fields([("signer_id", number(id))]));
    let inline = |name: &str| event(name, 0, fields([("signer", delegated(&account(7)))]));
    let policy = |name: &str| event(name, 0, fields([("policy", address(&contract(7)))]));
    vec![
        event("context_rule_removed", 0, empty()),
        event("context_rule_removed", u32::MAX, empty()),
        event("context_rule_meta_updated", 0, fields([("name", string("m"))])),
        rule_by_ids(0, &[0, 1, 2], &[0]),
        register(0),
        register(1),
        event("signer_registered", 0, fields([("signer", delegated(&account(8)))])),
        event("signer_deregistered", 0, empty()),
        by_id("signer_added", 0),
        by_id("signer_added", 5),
        by_id("signer_removed", 0),
        inline("signer_added"),
        inline("signer_removed"),
        event("policy_registered", 0, fields([("policy", address(&contract(8)))])),
        event("policy_deregistered", 0, empty()),
        policy("policy_added"),
        policy("policy_removed"),
    ]
}

/// Signers that are registered and added to one rule; rules that have the same signer; signers and
/// policies in full in one rule; rules of their own.
#[test]
fn an_event_of_a_smart_account_costs_the_same_whatever_came_before() {
    let events = smart_events();
    let added = |id| event("signer_added", 0, fields([("signer_id", number(id))]));
    let registered = |rows: u32| {
        let pairs = (0..rows / 2).flat_map(|id| [register(id), added(id)]);
        [rule_by_ids(0, &[], &[])].into_iter().chain(pairs).collect()
    };
    assert_constant::<SmartAccounts>("registered", registered, &events);
    let shared = |rows: u32| {
        let rules = (0..rows).map(|rule| rule_by_ids(rule, &[0], &[0]));
        [register(0)].into_iter().chain(rules).collect()
    };
    assert_constant::<SmartAccounts>("shared", shared, &events);
    let in_full = |rows: u32| {
        let members = (0..rows).map(|at| {
            let signer = external(&contract(2), &passkey(&at.to_be_bytes()));
            event("signer_added", 0, fields([("signer", signer)]))
        });
        [rule_inline(0, &[], &[])].into_iter().chain(members).collect()
    };
    assert_constant::<SmartAccounts>("in full", in_full, &events);
    let rules = |rows: u32| {
        let signer = |rule: u32| external(&contract(2), &passkey(&rule.to_be_bytes()));
        (0..rows).map(|rule| rule_inline(rule, &[signer(rule)], &[])).collect()
    };
    assert_constant::<SmartAccounts>("rules", rules, &events);
    // Ids that are added without being registered.
    let unknown =
        |rows: u32| [rule_by_ids(0, &[], &[])].into_iter().chain((0..rows).map(added)).collect();
    assert_constant::<SmartAccounts>("unknown", unknown, &events);
}

#[test]
fn an_event_of_a_wallet_costs_the_same_whatever_came_before() {
    let key = |at: u32| secp256r1(&at.to_be_bytes());
    let add = |at| added(&key(at), unlimited(&key(at)), storage("Persistent"));
    let events = [add(0), add(u32::MAX), removed(&key(0), storage("Persistent"))];
    assert_constant::<PasskeyWallets>("wallet", |rows| (0..rows).map(add).collect(), &events);
}

/// Returns a world with a contract that is account and wallet and has this many signers, of which
/// others have the same verifier.
fn world(rows: u32) -> World {
    let world = World::new();
    let signer = |at: u32| external(&contract(2), &passkey(&at.to_be_bytes()));
    let key = |at: u32| secp256r1(&at.to_be_bytes());
    let made = |at: u32| {
        [
            rule_inline(at, &[signer(at)], &[]),
            register(at),
            event("signer_added", 0, fields([("signer_id", number(at))])),
            added(&key(at), unlimited(&key(at)), storage("Persistent")),
        ]
    };
    let all: Vec<u32> = (0..rows).collect();
    for (sequence, some) in (10..).zip(all.chunks(500)) {
        let emitted = some.iter().flat_map(|at| made(*at)).map(|made| (contract_id(1), made));
        world.store(sequence, &[emitted.collect()]);
    }
    world.temp.store.flush().unwrap();
    world.feed();
    world
}

/// Returns the shortest of some times that a request takes, each in another state of the store, so
/// that no response comes from a cache.
fn time(world: &World, sequence: &mut u32, method: &str, target: &str) -> Duration {
    let mut times = (0..3).map(|_| {
        *sequence += 1;
        world.add(*sequence, &[]);
        let begun = Instant::now();
        let answer = match method {
            "POST" => {
                let filter = serde_json::json!({ "contractIds": [contract_id(1).to_string()] });
                let params = serde_json::json!({ "startLedger": 10, "filters": [filter] });
                let call = serde_json::json!({
                    "jsonrpc": "2.0", "id": 1, "method": "getEvents", "params": params,
                });
                let (mut connection, body) = (world.server.connect(), call.to_string());
                let head = format!("POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: ");
                let request = format!("{head}{}\r\n\r\n{body}", body.len());
                connection.send(request.as_bytes()).unwrap();
                connection.answer(false)
            }
            _ => world.ask(target),
        };
        assert!(answer.status < 500, "{target}: {}", String::from_utf8_lossy(&answer.body));
        begun.elapsed()
    });
    let first = times.next().unwrap();
    times.fold(first, Duration::min)
}

/// Each route that needs no token, called for a contract with few rows and for one with many. A
/// route that is added later is called too; a new parameter of a path needs a value here.
#[test]
fn a_request_of_anybody_costs_the_same_whatever_a_contract_has() {
    let (few, many) = (world(FEW), world(many()));
    let (mut of_few, mut of_many) = (1_000, 1_000);
    let value = |segment: &str| match segment {
        "{credential_id}" => "00000001".to_owned(),
        "{address}" => contract(2).to_string(),
        "{contract_id}" | "{contract}" => contract_id(1).to_string(),
        "{ledger}" | "{id}" => "10".to_owned(),
        "{hash}" => "ab".repeat(32),
        "{*rest}" => "other".to_owned(),
        named if named.starts_with('{') => panic!("give a value for {named}"),
        literal => literal.to_owned(),
    };
    let mut asked = 0;
    for route in api::routes(&ApiSettings::default()) {
        if route.access() != Access::Public {
            continue;
        }
        let target = route.template.split('/').map(value).collect::<Vec<_>>().join("/");
        let small = time(&few, &mut of_few, route.method, &target);
        let large = time(&many, &mut of_many, route.method, &target);
        // A busy machine may take some milliseconds longer for any request.
        let most = 2 * small.max(Duration::from_millis(50));
        println!("{} {target}: {small:?}, {large:?}", route.method);
        assert!(large < most, "{target}: {small:?} with few rows, {large:?} with many");
        asked += 1;
    }
    assert!(asked > 12, "{asked} routes");
}
