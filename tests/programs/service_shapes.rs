//! A contract that declares nothing, each of whose events has a shape that no other has: what a project
//! of events writes for them is bounded by their bytes.

use orrery::domain::ContractId;
use serde_json::json;
use stellar_xdr::{Limits, ScVal, WriteXdr};

use crate::network::{Chain, call};
use crate::service::Scene;
use crate::service_projects::{wait_for_events, watch};
use orrery_testkit::binary::Service;
use orrery_testkit::engine_world::module;
use orrery_testkit::size;
use orrery_testkit::values::{fields, list, symbol};
use orrery_testkit::wasm_text::{Data, env_call, env_imports};

/// Keys of each event.
const KEYS: usize = 100;
/// Calls in a ledger, and events of each.
const CALLS: u64 = 10;
const EVENTS: u64 = 10;
const TOPIC: &str = "shape";
/// Bytes that a project's tables take whatever is in them, in a small test: a hundred of as many columns.
const OF_TABLES: u64 = 4 << 20;
/// Requests that change a project, and nothing of its events.
const REQUESTS: usize = 40;

/// A contract that emits an event for each item of a vector.
fn emitting_each() -> Vec<u8> {
    let [topics, items, at] = ["topics", "items", "at"].map(|it| format!("(local.get ${it})"));
    let item = env_call("vec_get", &[items.clone(), at.clone()]);
    let emit = env_call("contract_event", &[topics, item]);
    let count = env_call("vec_len", &[items]);
    // The position is a value: a number of 32 bits above a tag.
    module(&format!(
        "{} {}
         (func (export \"emit\") (param $topics i64) (param $items i64) (result i64)
          (local $at i64)
          (local.set $at (i64.const 4))
          (block $end (loop $next
           (br_if $end (i64.ge_u {at} {count}))
           (drop {emit})
           (local.set $at (i64.add {at} (i64.const {})))
           (br $next)))
          (i64.const 2))",
        env_imports(),
        Data::default().memory(),
        1_u64 << 32,
    ))
}

/// The data of an event of some 4.5 KB: a map with keys that no other has.
fn data(number: u64) -> ScVal {
    let keys: Vec<_> =
        (0..KEYS).map(|key| format!("a_key_that_no_other_has_{number}_{key}")).collect();
    fields(keys.iter().map(|key| (key.as_str(), ScVal::U32(7))))
}

fn bytes(value: &ScVal) -> u64 {
    value.to_xdr(Limits::none()).unwrap().len() as u64
}

/// Bytes that a service and its processes wrote, as they count them themselves: whatever the file system
/// makes of them, and what the processes sent each other.
struct Written {
    /// For the ledgers.
    ledgers: u64,
    /// For requests that change nothing of the events.
    requests: u64,
    /// For both, those that reached the disk: none where the file system is in memory.
    on_disk: u64,
}

/// A network in which a contract emits events of shapes of their own.
struct Shaped {
    contract: ContractId,
    /// Ledgers in which the contract is created.
    before: Vec<Vec<u8>>,
    /// Ledgers in which it emits events.
    ledgers: Vec<Vec<u8>>,
    /// Bytes of the events: the XDR of their topics and data.
    bytes: u64,
}

impl Shaped {
    fn new(count: u64) -> Self {
        let mut chain = Chain::new();
        let contract = chain.create_of(&emitting_each(), Vec::new());
        let before = chain.take_unsaved();
        let mut of_events = 0;
        for first in (0..count).step_by((CALLS * EVENTS) as usize) {
            let calls = (0..CALLS).map(|number| {
                let of_call = first + number * EVENTS..first + (number + 1) * EVENTS;
                let data: Vec<_> = of_call.map(data).collect();
                of_events +=
                    data.iter().map(|data| bytes(&symbol(TOPIC)) + bytes(data)).sum::<u64>();
                call(contract, "emit", vec![list([symbol(TOPIC)]), list(data)])
            });
            let calls: Vec<_> = calls.collect();
            chain.close(&calls);
        }
        Self { contract, before, ledgers: chain.take_unsaved(), bytes: of_events }
    }

    /// Stores the ledgers one by one, with or without a project that reads the events of each.
    fn written(&self, is_watched: bool) -> Written {
        let scene = Scene::new();
        let service = Service::start(scene.path());
        scene.import_ledgers(&self.before);
        let ana = scene.owner(&service, "ana");
        let id = is_watched.then(|| watch(&ana, "shapes", &[self.contract]));
        let begun = ["wchar", "write_bytes"].map(|figure| service.io(figure));
        for (number, ledger) in (1..).zip(&self.ledgers) {
            scene.import_ledgers([ledger]);
            if let Some(id) = id {
                wait_for_events(&ana, id, number * CALLS * EVENTS);
            }
        }
        let events = self.ledgers.len() as u64 * CALLS * EVENTS;
        if is_watched {
            ana.wait_for_rows("shapes.events", events as usize);
        }
        let ledgers = service.io("wchar") - begun[0];
        for _ in 0..REQUESTS / 2 {
            let Some(id) = id else { break };
            for verb in ["pause", "resume"] {
                ana.post(&format!("{id}/{verb}"), &json!({}));
            }
        }
        let requests = service.io("wchar") - begun[0] - ledgers;
        Written { ledgers, requests, on_disk: service.io("write_bytes") - begun[1] }
    }
}

/// Small: 600 shapes; full: 10,000.
#[test]
fn shapes_of_events_cost_no_more_writes_than_their_bytes() {
    let count = size::choose(600, 10_000);
    let shaped = Shaped::new(count);
    let (with, without) = (shaped.written(true), shaped.written(false));
    let of_project = with.ledgers.saturating_sub(without.ledgers);
    let per_byte = |written: u64| written as f64 / shaped.bytes as f64;
    println!(
        "{count} shapes, {} bytes of events; for each byte {:.2} written for the project, {:.2} for the ledgers; {:.2} \
         and {:.2} reached the disk; {} bytes for {REQUESTS} requests",
        shaped.bytes,
        per_byte(of_project),
        per_byte(without.ledgers),
        per_byte(with.on_disk.saturating_sub(without.on_disk)),
        per_byte(without.on_disk),
        with.requests,
    );
    let most = 4 * shaped.bytes + size::choose(OF_TABLES, 0);
    assert!(of_project <= most, "{of_project} bytes, at most {most}");
    assert!(with.requests < 1 << 20, "{} bytes for {REQUESTS} requests", with.requests);
}
