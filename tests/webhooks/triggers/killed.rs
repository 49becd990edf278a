//! The built service, killed with SIGKILL while it stores generated histories: nothing is missing, and nothing
//! comes twice under another id.

use std::time::Duration;

use orrery::control::{Client, Ledgers, STORE};
use orrery::domain::ContractId;
use orrery::webhooks::trigger::Trigger;
use orrery_testkit::binary::Service;
use orrery_testkit::size;
use orrery_testkit::storage::histories::{Shape, StorageHistory};
use orrery_testkit::wait::wait_until;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::model::{Chain, Watch};
use super::scene::trigger;
use crate::receiver::{Receiver, answer};
use crate::service::{Owner, SETTINGS, directory};

/// Returns the members of a request for a trigger.
fn request(trigger: &Trigger) -> Value {
    let keys = trigger.keys();
    let mut body = json!({
        "on": trigger.name(),
        "within": trigger.within(),
        "entries": trigger.entries().map(orrery::webhooks::trigger::Entries::names),
        "key_name": keys.and_then(|keys| keys.key_name.clone()),
        "key": keys.and_then(|keys| keys.key.clone()),
        "durability": keys.and_then(|keys| keys.durability).map(|it| it.name()),
        "functions": trigger.functions(),
    });
    body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    body
}

/// Whether a service takes the trigger: one about entries that would run out names some.
fn can_be_asked(trigger: &Trigger) -> bool {
    trigger.entries().is_none_or(|entries| entries.instance || entries.code || entries.data)
}

#[test]
fn triggers_survive_kills() {
    let histories = size::choose(2, 100);
    for seed in 0..histories {
        let rng = &mut StdRng::seed_from_u64(seed ^ 0xdead);
        let shape = Shape {
            ledgers: size::choose(30, 120) as u32,
            transactions: 6,
            contracts: 3,
            ..Shape::small(seed)
        };
        let history = StorageHistory::made(seed, shape);
        let chain = Chain::of(&history.network, history.ledgers.iter().map(|it| &it.xdr));
        let receiver = Receiver::start(|_| answer(204));
        let directory = directory();
        let mut service = Some(Service::start_with(directory.path(), &SETTINGS));
        let mut ana = Owner::new(directory.path(), service.as_ref().unwrap(), "ana");
        let store = |ledgers: &[Vec<u8>]| {
            let client = Client::connect(directory.path()).ok().flatten();
            let stored = client.map(|mut it| it.ask(STORE, &Ledgers(ledgers.to_vec())));
            matches!(stored, Some(Ok(Ok(_))))
        };
        let raws: Vec<Vec<u8>> = history.ledgers.iter().map(|it| it.xdr.clone()).collect();
        assert!(store(&raws[..3]));
        let mut watched = Vec::new();
        let contracts: Vec<_> = history.contracts.keys().copied().map(ContractId).collect();
        while watched.len() < 15 {
            let trigger = trigger(rng.random());
            if !can_be_asked(&trigger) {
                continue;
            }
            let contract = contracts[rng.random_range(0..contracts.len())];
            let mut body = request(&trigger);
            let number = watched.len();
            body["webhook_endpoint"] = receiver.url(&format!("/{number}")).into();
            body["contract_ids"] = json!([contract.to_string()]);
            let id = ana.post("webhooks/new", &body)["ids"][0].as_u64().unwrap();
            let after = history.ledgers[2].sequence;
            watched.push((id, Watch { contract, trigger, after }));
        }
        // The same of a project with two of the contracts.
        let of_project = &contracts[..2];
        let named: Vec<String> = of_project.iter().map(ToString::to_string).collect();
        ana.post("retroshade/watch", &json!({ "project_name": "both", "contracts": named }));
        let mut followed = Vec::new();
        while followed.len() < 5 {
            let trigger =
                trigger(rng.random_range(0..u64::MAX / 5) / 5 * 5 + followed.len() as u64);
            if !can_be_asked(&trigger) {
                continue;
            }
            let mut body = request(&trigger);
            body["webhook_endpoint"] = receiver.url(&format!("/p{}", followed.len())).into();
            body["project"] = "both".into();
            let id = ana.post("webhooks/new", &body)["ids"][0].as_u64().unwrap();
            followed.push((id, trigger));
        }
        let members = of_project.iter().map(|contract| (*contract, 0)).collect();
        let after = history.ledgers[2].sequence;
        let of_followed = |trigger| chain.expected_of_members(&members, trigger, after);
        let mut all: Vec<(u64, String, Vec<String>)> = Vec::new();
        let ids = |all: Vec<super::model::Expected>| all.into_iter().map(|(id, _)| id).collect();
        for (id, watch) in &watched {
            all.push((*id, format!("{watch:?}"), ids(chain.expected(watch))));
        }
        for (id, trigger) in &followed {
            all.push((*id, format!("of a project: {trigger:?}"), ids(of_followed(trigger))));
        }
        let mut left = &raws[3..];
        while !left.is_empty() {
            let (now, later) = left.split_at(rng.random_range(1..=left.len().min(8)));
            left = later;
            if rng.random() {
                let moment = Duration::from_micros(rng.random_range(0..60_000));
                std::thread::scope(|scope| {
                    let storing = scope.spawn(|| store(now));
                    std::thread::sleep(moment);
                    drop(service.take());
                    storing.join().unwrap();
                });
                let again = Service::start_with(directory.path(), &SETTINGS);
                ana.base.clone_from(&again.base);
                service = Some(again);
            }
            assert!(store(now), "storing ledgers again is not an error");
        }
        for (id, watch, expected) in &all {
            let about = format!("seed {seed}, subscription {id}: {watch}");
            wait_until(&about, || {
                let path = format!("webhooks/{id}/deliveries?limit=1000");
                let listed = ana.get(&path);
                let listed = listed.as_array().unwrap();
                let delivered = listed.iter().all(|it| it["status"] == "delivered");
                let id = |it: &Value| {
                    let id = it["delivery_id"].as_str().unwrap();
                    id[id.find('-').unwrap()..].to_owned()
                };
                let found: Vec<String> = listed.iter().rev().map(id).collect();
                if delivered && found == *expected {
                    Ok(())
                } else {
                    Err((found, expected.clone()))
                }
            });
        }
        // Each arrived, under one id.
        let received = receiver.received();
        let mut ids: Vec<String> = received.iter().map(crate::receiver::Received::id).collect();
        ids.sort_unstable();
        ids.dedup();
        let expected: usize = all.iter().map(|(_, _, expected)| expected.len()).sum();
        assert_eq!(ids.len(), expected, "seed {seed}");
    }
}
