//! Subscriptions with conditions: what is sent live, replayed and previewed is the same, and what cannot be
//! judged is counted.

use std::sync::Arc;

use orrery::conditions::Condition;
use orrery::domain::{ContractId, LedgerRange};
use orrery::executables::{ExecutableIndex, Interfaces};
use orrery::settings::{self, nonzero};
use orrery::store::{Bounds, Extensions, LedgerConsumer, Needs, Store};
use orrery::webhooks::manage::{NewSubscriptions, WebhookDeps, Webhooks};
use orrery::webhooks::registry::Registry;
use orrery::webhooks::target::{Policy, Sender, Timeouts, system_lookup};
use orrery::webhooks::time::Clocks;
use orrery::webhooks::unmet::Unmet;
use orrery::webhooks::{Clock, Sealer, WebhookConsumer, WebhookError};
use orrery_testkit::pubnet::commit;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::upgraded::Upgraded;
use serde_json::Value;

use super::world::{BEGINNING, Chain, World, owner, symbol, wanted};

struct Named {
    interfaces: Arc<Interfaces>,
    store: Arc<Store>,
    webhooks: Webhooks,
    consumer: WebhookConsumer,
}

impl Drop for Named {
    fn drop(&mut self) {
        self.interfaces.stop();
    }
}

impl Named {
    /// Webhooks whose events have names, with the thread that reads interfaces into memory.
    fn open(directory: &std::path::Path) -> Self {
        Self::with(directory, settings::Webhooks::default())
    }

    fn with(directory: &std::path::Path, settings: settings::Webhooks) -> Self {
        let registry: Arc<Registry> = Arc::default();
        let consumer = WebhookConsumer::new(Arc::clone(&registry));
        let consumers = [consumer.spec(), ExecutableIndex.spec()];
        let extensions = Extensions { consumers: consumers.into(), ..Extensions::default() };
        let store = Store::open_with(directory, Some(&local()), extensions).unwrap();
        let store = Arc::new(store);
        let clock: Clock = Arc::new(|| BEGINNING);
        let clocks = Clocks { machine: Arc::clone(&clock), elapsed: Arc::new(|| 0) };
        registry.open(&store, Sealer::new(&[7; 32]).unwrap(), settings, &clocks).unwrap();
        let interfaces = Interfaces::new(Arc::clone(&store), None);
        registry.name_events_by(Arc::clone(&interfaces));
        let worker = Arc::clone(&interfaces);
        std::thread::spawn(move || worker.work());
        let sender = Sender::new(Policy::default(), system_lookup(), Timeouts::default());
        let deps = WebhookDeps { store: Arc::clone(&store), registry, sender, clock };
        Self { interfaces, store, webhooks: Webhooks::new(deps), consumer }
    }

    fn subscribe(&self, contract: ContractId, condition: Option<&str>) -> u32 {
        let wanted = with(contract, condition);
        self.webhooks.create(&owner("ana"), wanted).unwrap().ids[0]
    }

    /// Bodies of the deliveries of a subscription, the oldest first.
    fn bodies(&self, id: u32) -> Vec<Value> {
        let ana = owner("ana");
        let page = self.webhooks.deliveries(&ana, id, None, None, 10_000).unwrap();
        let bodies = self.webhooks.bodies(&ana, id, &page.deliveries, 64 << 20).unwrap();
        let read = |body: Option<String>| serde_json::from_str(&body.unwrap()).unwrap();
        bodies.into_iter().rev().map(read).collect()
    }

    fn unmet(&self, id: u32) -> Unmet {
        let subscription = self.webhooks.registry().of_owner(&owner("ana"), id).unwrap();
        self.webhooks.unmet(&subscription).unwrap()
    }

    fn preview(&self, contract: ContractId, condition: &str) -> (u64, Vec<Value>) {
        let wanted = with(contract, Some(condition));
        let previewed =
            self.webhooks.preview(&owner("ana"), wanted, 100_000, Bounds::NONE).unwrap();
        let stored = self.store.status().ledgers_with(Needs::EVENTS);
        assert_eq!(previewed.ledgers, stored.ledgers());
        let read = |body: &Vec<u8>| serde_json::from_slice(body).unwrap();
        (previewed.matched, previewed.first.iter().map(read).collect())
    }
}

fn with(contract: ContractId, condition: Option<&str>) -> NewSubscriptions {
    let condition = condition.map(|text| Condition::parse(text).unwrap());
    NewSubscriptions { condition, ..wanted("https://example.com/", contract) }
}

/// What a body says of the parameter `value`: declared, or inferred.
fn value(body: &Value) -> Option<Value> {
    let event = &body["event"];
    match &event["params"] {
        Value::Object(params) => params.get("value").cloned(),
        _ => {
            let data = &event["body"]["v0"]["data"];
            Some(data.as_object().unwrap().values().next().unwrap().clone())
        }
    }
}

#[test]
fn what_is_sent_replayed_and_previewed_meets_the_condition() {
    let (upgraded, directory) = (Upgraded::made(), scratch());
    let named = Named::open(directory.path());
    let contract = upgraded.contracts[0];
    let all = named.subscribe(contract, None);
    let conditions = ["value = 'word'", "VALUE >= 100 and ledger > 3", "not value = 'word'"];
    let ids = conditions.map(|condition| named.subscribe(contract, Some(condition)));
    commit(&named.store, &upgraded.ledgers);
    while named.store.step(&ExecutableIndex).unwrap() {}
    while named.store.step(&named.consumer).unwrap() {}
    let sent = named.bodies(all);
    let is_word = |body: &&Value| value(body) == Some("word".into());
    let is_great =
        |body: &&Value| value(body).and_then(|it| it.as_u64()).is_some_and(|number| number >= 100);
    let words: Vec<_> = sent.iter().filter(is_word).cloned().collect();
    let great: Vec<_> = sent.iter().filter(is_great).cloned().collect();
    assert!(words.len() > 2 && great.len() > 2, "{} {}", words.len(), great.len());
    assert_eq!(named.bodies(ids[0]), words);
    assert_eq!(named.bodies(ids[1]), great);
    // Where the declared type is another, nothing matches, also not the opposite.
    let others = named.bodies(ids[2]);
    assert!(others.len() < sent.len() - words.len());
    assert!(others.iter().all(|body| !is_word(&body)));
    for (id, condition) in ids.into_iter().zip(conditions) {
        let before = named.bodies(id);
        assert_eq!(named.preview(contract, condition).0, before.len() as u64);
        assert_eq!(named.preview(contract, condition).1, before[..3.min(before.len())]);
        let unmet = named.unmet(id);
        assert_eq!(unmet.unjudged, None);
        // The first event of which a declaration says the other type.
        let is_misfit = |body: &&Value| {
            let params = &body["event"]["params"];
            // Beside `who` it is a value of any type.
            let declared = params.get("value").filter(|_| params.get("who").is_none());
            let is_of_one_type = ["said", "told"].iter().any(|it| body["event"]["name"] == *it);
            is_of_one_type
                && declared.is_some_and(|it| it.is_string() == condition.starts_with("VALUE"))
        };
        let first =
            sent.iter().find(is_misfit).map(|body| body["event"]["ledger"].as_u64().unwrap());
        let misfit = unmet.misfit.map(|misfit| (u64::from(misfit.first_ledger), misfit.reason));
        assert_eq!(misfit.as_ref().map(|(ledger, _)| *ledger), first, "{condition}");
        if let Some((_, reason)) = misfit {
            assert!(reason.contains("'value' is a") || reason.contains("'VALUE' is a"), "{reason}");
        }
        let ana = owner("ana");
        let everything = LedgerRange::new(1, u32::MAX);
        let done = named.webhooks.replay_ledgers(&ana, id, everything, &|| false).unwrap();
        assert_eq!((done.deliveries, done.unjudged), (before.len() as u64, 0));
        assert_eq!(named.bodies(id), before);
    }
}

#[test]
fn a_condition_that_no_event_can_meet_is_refused_and_one_makes_another_subscription() {
    let (upgraded, directory) = (Upgraded::made(), scratch());
    let named = Named::open(directory.path());
    commit(&named.store, &upgraded.ledgers);
    while named.store.step(&ExecutableIndex).unwrap() {}
    let contract = upgraded.contracts[0];
    let create = |condition| named.webhooks.create(&owner("ana"), with(contract, condition));
    for (condition, why) in [
        ("valeu = 5", "no event that the contracts declare has 'valeu': is 'value' meant?"),
        ("note = 'x'", "'note' is a number"),
    ] {
        let refused = create(Some(condition)).err();
        let refused = refused.map_or_else(String::new, |refused| refused.to_string());
        let begins = format!("'where' can be met by no event: {why}");
        assert!(refused.starts_with(&begins), "{condition}: {refused}");
    }
    let first = create(None).unwrap().ids[0];
    let second = create(Some("value = 5")).unwrap().ids[0];
    assert_ne!(first, second);
    for (condition, same) in [(None, first), (Some("value = 5"), second)] {
        assert!(matches!(create(condition), Err(WebhookError::Duplicate(id)) if id == same));
    }
    assert!(create(Some("value = 6")).is_ok());
}

#[test]
fn events_of_contracts_of_which_nothing_is_known_are_counted() {
    let directory = scratch();
    let world = World::open_with_names(directory.path());
    let mut chain = Chain::new(4, vec![symbol("transfer")]);
    let contract = chain.universe.contracts[0];
    let all = world.subscribe("ana", "https://example.com/", contract);
    let created = world.webhooks.create(&owner("ana"), with(contract, Some("ledger > 0")));
    let id = created.unwrap().ids[0];
    chain.grow(20);
    for next in 1..=20 {
        chain.commit(&world.store, next);
    }
    while world.store.step(&ExecutableIndex).unwrap() {}
    world.feed();
    let sent = world.deliveries("ana", all);
    let bodies = world.webhooks.bodies(&owner("ana"), all, &sent, 64 << 20).unwrap();
    let bodies = bodies.into_iter().map(|body| serde_json::from_str(&body.unwrap()).unwrap());
    // Events of the system have no declaration, so they are judged.
    let of_contract = |body: &Value| body["event"]["type_"] == "contract";
    let (of_contract, of_system): (Vec<Value>, Vec<Value>) = bodies.partition(of_contract);
    assert!(!of_contract.is_empty());
    let judged = world.deliveries("ana", id).len();
    assert!(judged <= of_system.len());
    let subscription = world.registry.of_owner(&owner("ana"), id).unwrap();
    let unjudged = world.webhooks.unmet(&subscription).unwrap().unjudged.unwrap();
    assert_eq!(unjudged.events, of_contract.len() as u64);
    let ledgers = of_contract.iter().map(|body| body["event"]["ledger"].as_u64().unwrap());
    assert_eq!(u64::from(unjudged.first_ledger), ledgers.min().unwrap());
    let replayed = world
        .webhooks
        .replay_ledgers(&owner("ana"), id, LedgerRange::new(1, 20), &|| false)
        .unwrap();
    assert_eq!((replayed.deliveries, replayed.unjudged), (judged as u64, unjudged.events));
    // It goes with its subscription.
    world.webhooks.delete(&owner("ana"), id).unwrap();
    assert_eq!(world.webhooks.unmet(&subscription).unwrap(), Unmet::default());
}

/// The work of conditions is on the account of their owner: a subscription whose condition takes more than the
/// owner may have is disabled, and all others go on, those of the same owner too.
#[test]
fn a_hostile_condition_is_disabled_and_costs_nobody_else() {
    let (upgraded, directory) = (Upgraded::made(), scratch());
    let settings = settings::Webhooks { owner_ledger_steps: nonzero!(2_500), ..Default::default() };
    let named = Named::with(directory.path(), settings);
    let contract = upgraded.contracts[0];
    let likes: Vec<_> = (0..45).map(|_| format!("name like '%_{}b%'", "a".repeat(55))).collect();
    let hostile = format!("{} or ledger > 0", likes.join(" or "));
    let create = |who: &str, condition: &str| {
        let wanted = with(contract, Some(condition));
        named.webhooks.create(&owner(who), wanted).unwrap().ids[0]
    };
    let heavy = create("ana", &hostile);
    let light = [create("ana", "ledger > 0"), create("bob", "ledger > 0")];
    commit(&named.store, &upgraded.ledgers);
    while named.store.step(&ExecutableIndex).unwrap() {}
    while named.store.step(&named.consumer).unwrap() {}
    let state = |id: u32| named.webhooks.registry().get(id).unwrap().state();
    let reason = state(heavy).disabled_reason.unwrap();
    assert!(reason.contains("take more than 2500 steps at ledger"), "{reason}");
    let waiting = |id: u32| named.webhooks.registry().get(id).unwrap().waiting();
    assert_eq!(waiting(heavy), 0);
    assert!(light.iter().all(|id| state(*id).enabled));
    assert!(waiting(light[0]) > 3 && waiting(light[0]) == waiting(light[1]));
}
