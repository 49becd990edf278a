//! The built service with a sandbox's exchange: what happens to the pools that its factory opens is told to
//! subscriptions to a project of them, as it is to subscriptions to each pool.

use std::collections::{BTreeMap, BTreeSet};

use orrery::control::{Client, Ledgers, STORE};
use orrery::decode::decode;
use orrery::domain::ContractId;
use orrery::sandbox::network::{FIRST_MARKET_LEDGER, Sandbox};
use orrery_testkit::binary::Service;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::wait::wait_until;
use serde_json::{Value, json};
use stellar_xdr::{Limits, ReadXdr, ScAddress, ScVal};

use crate::receiver::{Receiver, answer};
use crate::service::{Owner, SETTINGS, directory};

/// The newest ledger, and the one after which subscriptions are made.
const LAST: u32 = 130;
const MADE: u32 = 40;
/// Ledgers without other code for a pool after which a silence is told.
const SILENT: u32 = 9;

/// The pools that the factory announces, each with the ledger.
fn pools(chain: &[Vec<u8>], factory: ContractId) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for raw in chain {
        let view = decode(raw, local().id()).unwrap();
        for event in view.events.iter().filter(|it| it.contract == Some(&factory.0)) {
            if let ScVal::Address(ScAddress::Contract(id)) =
                ScVal::from_xdr(event.data, Limits::none()).unwrap()
            {
                found.insert(ContractId(id.0.0).to_string(), view.header.sequence.0);
            }
        }
    }
    found
}

/// Ledgers with an event of a pool that says that it has other code.
fn upgrades(chain: &[Vec<u8>], pools: &BTreeMap<String, u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for raw in chain {
        let view = decode(raw, local().id()).unwrap();
        let is_update = |event: &orrery::decode::EventView<'_>| {
            let topic = view.topics(event).first().map(|it| ScVal::from_xdr(*it, Limits::none()));
            let contract = event.contract.map(|contract| ContractId(*contract).to_string());
            matches!(topic, Some(Ok(ScVal::Symbol(name))) if name.as_slice() == b"executable_update")
                && contract.is_some_and(|contract| pools.contains_key(&contract))
        };
        if view.events.iter().any(is_update) {
            found.insert(view.header.sequence.0);
        }
    }
    found
}

/// Ids without the tag, with bodies, of all deliveries of a subscription.
fn deliveries(owner: &Owner, id: u64) -> BTreeMap<String, Value> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("webhooks/{id}/deliveries?limit=20&body=true{cursor}");
        let page = owner.get(&path);
        let Some(last) = page.as_array().unwrap().last() else { return all };
        cursor = format!("&cursor={}", last["delivery_id"].as_str().unwrap());
        for delivery in page.as_array().unwrap() {
            let id = delivery["delivery_id"].as_str().unwrap();
            let body = serde_json::from_str(delivery["body"].as_str().unwrap()).unwrap();
            all.insert(id[id.find('-').unwrap()..].to_owned(), body);
        }
    }
}

fn replay(owner: &Owner, id: u64) {
    let mut from = 2;
    loop {
        let body = json!({ "from": from, "to": LAST });
        let done = owner.post(&format!("webhooks/{id}/replay"), &body);
        match done["next"].as_u64() {
            Some(next) => from = next,
            None => return,
        }
    }
}

struct Scene {
    ana: Owner,
    /// What is told of, with the subscription to the project, and those to pools.
    subscriptions: Vec<(Value, u64, Vec<u64>)>,
}

impl Scene {
    /// Subscribes to all that may be told of the project and of each pool.
    fn subscribe(ana: Owner, receiver: &Receiver, pools: &BTreeMap<String, u32>) -> Self {
        let on = [
            json!({ "on": "upgrade" }),
            json!({ "on": "storage" }),
            json!({ "on": "ttl", "within": 12, "entries": ["instance", "code", "data"] }),
            json!({ "on": "failed_call" }),
        ];
        let mut number = 0;
        let mut subscribe = |on: &Value, of: Value| {
            number += 1;
            let mut body = on.clone();
            let members = of.as_object().unwrap().clone();
            body.as_object_mut().unwrap().extend(members);
            body["webhook_endpoint"] = receiver.url(&format!("/{number}")).into();
            ana.post("webhooks/new", &body)["ids"][0].as_u64().unwrap()
        };
        let subscriptions = on.map(|on| {
            let of_project = subscribe(&on, json!({ "project": "POOLS" }));
            let of_pools =
                pools.keys().map(|pool| subscribe(&on, json!({ "contract_ids": [pool] })));
            let of_pools = of_pools.collect();
            (on, of_project, of_pools)
        });
        let subscriptions = subscriptions.into();
        Self { ana, subscriptions }
    }

    /// Waits until the subscriptions to the project have what those to pools have.
    fn compare(&self, when: &str) {
        for (on, of_project, of_pools) in &self.subscriptions {
            wait_until(&format!("{when}: {on}"), || {
                let each = of_pools.iter().flat_map(|id| deliveries(&self.ana, *id));
                let expected: BTreeMap<String, Value> = each.collect();
                let found = deliveries(&self.ana, *of_project);
                let newest = |all: &BTreeMap<String, Value>| {
                    all.values().map(|it| it["trigger"]["ledger"].as_u64()).max().flatten()
                };
                // There is something of each kind in the last fifty ledgers.
                let is_done = newest(&expected) > Some(u64::from(LAST) - 50);
                match is_done && found == expected {
                    true => Ok(()),
                    false => Err((found, expected)),
                }
            });
        }
    }
}

#[test]
fn what_happens_to_the_pools_of_a_factory_is_told() {
    let network = local();
    let factory = Sandbox::exchange_factory(&network).unwrap();
    let chain = ledgers(sandbox(11, 1..=3).with_exchange(FIRST_MARKET_LEDGER), LAST - 1);
    let pools = pools(&chain, factory);
    let later = pools.values().filter(|ledger| **ledger > MADE).count();
    assert!(later > 0 && later < pools.len(), "{pools:?}");
    let receiver = Receiver::start(|_| answer(204));
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    let store = |ledgers: &[Vec<u8>]| {
        let mut client = Client::connect(directory.path()).unwrap().expect("the service runs");
        client.ask(STORE, &Ledgers(ledgers.to_vec())).unwrap().unwrap();
    };
    let (before, after) = chain.split_at(MADE as usize - 1);
    store(before);
    let event = json!({
        "contract": factory.to_string(), "event": "pool_created", "param": "pool",
    });
    let watched =
        ana.post("retroshade/watch", &json!({ "project_name": "pools", "factories": [event] }));
    let scene = Scene::subscribe(ana, &receiver, &pools);
    let ana = &scene.ana;
    let silence = json!({
        "webhook_endpoint": receiver.url("/silence"), "project": "pools",
        "on": "silence", "within": SILENT, "topic1": "executable_update",
    });
    let silence = ana.post("webhooks/new", &silence)["ids"][0].as_u64().unwrap();
    for ledgers in after.chunks(7) {
        store(ledgers);
    }
    scene.compare("as it happens");
    // No pool has got other code for so many ledgers.
    let upgrades = upgrades(after, &pools);
    let mut expected = BTreeMap::new();
    let mut last = MADE;
    for ledger in MADE + 1..=LAST {
        if upgrades.contains(&ledger) {
            last = ledger;
        }
        if ledger - last == SILENT {
            expected.insert(format!("-{ledger}-0-q0"), last);
        }
    }
    assert!(expected.len() > 1, "{upgrades:?}");
    wait_until("silences are told", || {
        let told = deliveries(ana, silence);
        let told: BTreeMap<String, u32> = told
            .into_iter()
            .map(|(id, body)| {
                assert_eq!(body["trigger"]["contract_id"], Value::Null);
                (id, body["trigger"]["since_ledger"].as_u64().unwrap() as u32)
            })
            .collect();
        if told == expected { Ok(()) } else { Err((told, expected.clone())) }
    });
    replayed_and_previewed(&scene, &receiver);
    listed_and_tested(ana, &pools);
    ended(ana, &watched);
}

/// Replays and previews of the project say what those of all pools say.
fn replayed_and_previewed(scene: &Scene, receiver: &Receiver) {
    let ana = &scene.ana;
    for (on, of_project, of_pools) in &scene.subscriptions {
        let before = deliveries(ana, *of_project).len();
        replay(ana, *of_project);
        of_pools.iter().for_each(|id| replay(ana, *id));
        let each = of_pools.iter().flat_map(|id| deliveries(ana, *id));
        let expected: BTreeMap<String, Value> = each.collect();
        assert_eq!(deliveries(ana, *of_project), expected, "replayed: {on}");
        assert!(expected.len() > before || on["on"] != "storage", "{on}");
        let previewed = |of: Value| {
            let mut body = on.clone();
            body.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
            body["webhook_endpoint"] = receiver.url("/").into();
            body["last"] = json!(100_000);
            ana.post("webhooks/try", &body)["matched"].as_u64().unwrap()
        };
        let pools: BTreeSet<String> = ana
            .get("webhooks/list")
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["contract_id"].as_str())
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
            .collect();
        let of_pools: u64 =
            pools.iter().map(|pool| previewed(json!({ "contract_ids": [pool] }))).sum();
        assert_eq!(previewed(json!({ "project": "pools" })), of_pools, "previewed: {on}");
    }
}

/// The list has the project, and a test says something of one of its contracts.
fn listed_and_tested(ana: &Owner, pools: &BTreeMap<String, u32>) {
    let listed = ana.get("webhooks/list");
    let own = listed.as_array().unwrap().iter().filter(|it| it["project"] == "pools");
    let mut kinds = BTreeSet::new();
    for subscription in own {
        assert_eq!(subscription["contract_id"], "", "{subscription}");
        assert_eq!(subscription["late_members"], Value::Null, "{subscription}");
        kinds.insert(subscription["on"].as_str().unwrap().to_owned());
        let id = &subscription["id"];
        let tested = ana.post(&format!("webhooks/{id}/test"), &json!({}));
        let delivery = tested["delivery_id"].as_str().unwrap();
        let path = format!("webhooks/{id}/deliveries?delivery_id={delivery}&body=true");
        let body = ana.get(&path)[0]["body"].as_str().unwrap().to_owned();
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&body["test"], &body["trigger"]["on"]), (&json!(true), &subscription["on"]));
        match body["trigger"]["contract_id"].as_str() {
            Some(contract) => assert!(pools.contains_key(contract), "{body}"),
            None => assert_eq!(subscription["on"], "silence"),
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

/// Replacing the project keeps the subscriptions, deleting it ends them with a reason.
fn ended(ana: &Owner, watched: &Value) {
    let states = || {
        let listed = ana.get("webhooks/list");
        let own = listed.as_array().unwrap().iter().filter(|it| it["project"] == "pools");
        let state = |it: &Value| (it["enabled"] == true, it["disabled_reason"].clone());
        own.map(state).collect::<Vec<_>>()
    };
    let replaced = ana.post(
        "retroshade/watch",
        &json!({ "project_name": "pools", "replace": true, "public": true }),
    );
    wait_until("it is replaced", || {
        let list = ana.get("retroshade/list");
        let list = list.as_array().unwrap().clone();
        if list.len() == 1 && list[0]["id"] == replaced["id"] { Ok(()) } else { Err(list) }
    });
    assert_ne!(watched["id"], replaced["id"]);
    assert!(states().iter().all(|(is_enabled, _)| *is_enabled), "{:?}", states());
    let id = replaced["id"].as_u64().unwrap();
    assert_eq!(ana.ask("DELETE", &format!("retroshade/{id}"), None).0, 200);
    wait_until("they end", || {
        let states = states();
        let has_ended = |(is_enabled, reason): &(bool, Value)| {
            !is_enabled && reason.as_str().is_some_and(|it| it.contains("'pools'"))
        };
        if states.len() == 5 && states.iter().all(has_ended) { Ok(()) } else { Err(states) }
    });
}
