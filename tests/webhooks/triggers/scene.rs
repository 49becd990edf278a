//! A store with the consumers that triggers need, and subscriptions whose deliveries are read.

use std::path::Path;
use std::sync::Arc;

use orrery::contract_data::ContractData;
use orrery::decode::decode;
use orrery::domain::{ContractId, LedgerRange, Network, Owner};
use orrery::executables::{ExecutableIndex, Interfaces};
use orrery::settings;
use orrery::store::{
    Bounds, Durability, Extensions, Fault, IndexOptions, LedgerConsumer, PreparedLedger, Store,
};
use orrery::webhooks::manage::{NewSubscriptions, WebhookDeps, Webhooks};
use orrery::webhooks::registry::Registry;
use orrery::webhooks::target::{Policy, Sender, Timeouts, system_lookup};
use orrery::webhooks::time::Clocks;
use orrery::webhooks::trigger::{Entries, Keys, Trigger};
use orrery::webhooks::{CONSUMER, Clock, Sealer, WebhookConsumer};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value as Json;

use super::members::{OfStore, Stand};
use super::model::Expected;

pub struct Scene {
    pub store: Arc<Store>,
    pub webhooks: Webhooks,
    network: Network,
    consumer: WebhookConsumer,
}

pub fn ana() -> Owner {
    Owner("ana".to_owned())
}

impl Scene {
    pub fn open(directory: &Path, network: &Network) -> Self {
        Self::open_with(directory, network, Arc::default())
    }

    /// Opens a store with these projects.
    pub fn open_with(directory: &Path, network: &Network, stand: Arc<Stand>) -> Self {
        let registry: Arc<Registry> = Arc::default();
        let consumer = WebhookConsumer::new(Arc::clone(&registry));
        let consumers: Vec<Arc<dyn LedgerConsumer>> =
            vec![Arc::new(ContractData), Arc::new(ExecutableIndex)];
        let mut extensions = Extensions::for_consumers(&consumers);
        extensions.consumers.push(consumer.spec());
        let store = Arc::new(Store::open_with(directory, Some(network), extensions).unwrap());
        let clock: Clock = Arc::new(|| 1_800_000_000_000);
        let clocks = Clocks { machine: Arc::clone(&clock), elapsed: Arc::new(|| 0) };
        let settings = settings::Webhooks {
            owner_subscriptions: std::num::NonZeroU32::MAX,
            owner_backlog: std::num::NonZeroU32::MAX,
            owner_ledger_deliveries: std::num::NonZeroU32::MAX,
            ..Default::default()
        };
        registry.open(&store, Sealer::new(&[7; 32]).unwrap(), settings, &clocks).unwrap();
        let moment = std::time::Duration::from_millis(1);
        registry.name_events_by(Interfaces::patient(Arc::clone(&store), None, moment));
        registry.follow(Arc::new(OfStore { stand, store: Arc::clone(&store) }));
        let sender = Sender::new(Policy::default(), system_lookup(), Timeouts::default());
        let deps = WebhookDeps { store: Arc::clone(&store), registry, sender, clock };
        Self { store, webhooks: Webhooks::new(deps), network: network.clone(), consumer }
    }

    pub fn commit(&self, raw: &[u8]) {
        let view = decode(raw, self.network.id()).unwrap();
        let options = IndexOptions::default();
        // Some without what is gathered from whole ledgers, as those that an older version stored.
        let prepared = match view.header.sequence.0 % 3 {
            0 => PreparedLedger::new(&view, &options),
            _ => self.store.prepare(&view, None, &options),
        };
        let prepared = prepared.unwrap();
        self.store.commit(prepared, Durability::Deferred).unwrap();
    }

    /// Advances the indexes as far as they get.
    pub fn index(&self) {
        while self.store.step(&ContractData as &dyn LedgerConsumer).unwrap() {}
        while self.store.step(&ExecutableIndex as &dyn LedgerConsumer).unwrap() {}
    }

    /// Advances the webhooks by a step. Returns whether there was one.
    pub fn step(&self) -> bool {
        self.store.step(&self.consumer).unwrap()
    }

    /// Advances the webhooks by a step whose write fails.
    pub fn fail_step(&self, fault: Fault) {
        self.store.faults().plan(move |_| Some(fault));
        // Without a ledger to process, nothing is written.
        let _ = self.store.step(&self.consumer);
        self.store.faults().plan(|_| None);
    }

    /// Advances everything as far as it gets.
    pub fn feed(&self) {
        self.index();
        while self.step() {}
    }

    pub fn subscribe(&self, contract: ContractId, trigger: Trigger, include_backfill: bool) -> u32 {
        let number = self.webhooks.registry().list(&ana()).len();
        let endpoint = format!("https://example.com/{number}").parse().unwrap();
        let wanted = NewSubscriptions {
            contracts: vec![contract],
            trigger,
            include_backfill,
            ..NewSubscriptions::to(endpoint)
        };
        self.webhooks.create(&ana(), wanted).unwrap().ids[0]
    }

    /// Subscribes to a project.
    pub fn follow(&self, project: &str, trigger: Trigger) -> u32 {
        let wanted = self.of_project(project, trigger);
        self.webhooks.create(&ana(), wanted).unwrap().ids[0]
    }

    fn of_project(&self, project: &str, trigger: Trigger) -> NewSubscriptions {
        let number = self.webhooks.registry().list(&ana()).len();
        let endpoint = format!("https://example.com/{number}").parse().unwrap();
        let project = Some(project.to_owned());
        NewSubscriptions { project, trigger, ..NewSubscriptions::to(endpoint) }
    }

    /// Returns how much a subscription to a project would have been told in all ledgers, and how many of these
    /// were looked through: all, unless that takes too long.
    pub fn previewed(&self, project: &str, trigger: Trigger) -> (u64, u64) {
        let wanted = self.of_project(project, trigger);
        let previewed = self.webhooks.preview(&ana(), wanted, 100_000, Bounds::NONE).unwrap();
        (previewed.matched, previewed.ledgers)
    }

    /// Disables a subscription.
    pub fn disable(&self, id: u32) {
        let subscription = self.webhooks.registry().get(id).unwrap();
        let mut state = subscription.state();
        state.disable("a test");
        let row = subscription.row(state.clone());
        let put = self.store.change_consumer_rows(CONSUMER, move |effects| row.put(effects, id));
        put.unwrap();
        subscription.set_state(state);
    }

    /// Returns the deliveries of a subscription in their order: ids without the tag, and bodies.
    pub fn deliveries(&self, id: u32) -> Vec<(String, Json)> {
        let read = |(id, body): (String, String)| (id, serde_json::from_str(&body).unwrap());
        self.bodies(id).into_iter().map(read).collect()
    }

    /// As [`Self::deliveries`], with bodies as they are sent.
    pub fn bodies(&self, id: u32) -> Vec<(String, String)> {
        let subscription = self.webhooks.registry().get(id).unwrap();
        let tag = subscription.definition.tag.clone();
        let page = self.webhooks.deliveries(&ana(), id, None, None, usize::MAX).unwrap();
        let mut all = page.deliveries;
        all.reverse();
        let bodies = self.webhooks.bodies(&ana(), id, &all, usize::MAX).unwrap();
        let each = all.iter().zip(bodies).map(|((number, delivery), body)| {
            let body = body.expect("a body is stored");
            // One that is too deep to be parsed has it too.
            assert!(body.contains(&format!("\"ledger\":{},", delivery.ledger)), "{body}");
            (number.id(&tag).strip_prefix(&tag).unwrap().to_owned(), body)
        });
        each.collect()
    }

    pub fn replay(&self, id: u32, range: LedgerRange) {
        let mut range = range;
        loop {
            let done = self.webhooks.replay_ledgers(&ana(), id, range, &|| false).unwrap();
            match done.next {
                Some(next) => range.first = next,
                None => return,
            }
        }
    }
}

/// Asserts that deliveries are those that are expected, in this order.
pub fn compare(found: &[(String, Json)], expected: &[Expected], about: &str) {
    let ids = |all: &[(String, Json)]| all.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(found), ids(expected), "{about}");
    for ((id, body), (_, members)) in found.iter().zip(expected) {
        for (name, value) in members.as_object().unwrap() {
            assert_eq!(&body["trigger"][name], value, "{name} of {id}, {about}: {body}");
        }
    }
}

/// Returns a random trigger.
pub fn trigger(seed: u64) -> Trigger {
    let rng = &mut StdRng::seed_from_u64(seed);
    let keys = |rng: &mut StdRng| {
        let name = ["Balance", "Counter", "Admin", "Price"].choose(rng).unwrap();
        let key = ["instance", "symbol:Counter", "u32:3"].choose(rng).unwrap();
        let durability = ["persistent", "temporary", "instance"].choose(rng).unwrap();
        let name = rng.random_bool(0.2).then(|| (*name).to_owned());
        let key = rng.random_bool(0.15).then_some(*key);
        let durability = rng.random_bool(0.2).then_some(*durability);
        Keys::parse(name, key, durability).unwrap()
    };
    match seed % 5 {
        0 => Trigger::Storage { keys: keys(rng) },
        1 => Trigger::Upgrade,
        2 => Trigger::FailedCall {
            functions: match rng.random_range(0..4) {
                0 => vec!["act".to_owned(), "other".to_owned()],
                1 => vec!["other".to_owned()],
                _ => Vec::new(),
            },
        },
        3 => Trigger::Silence { within: rng.random_range(1..6) },
        _ => {
            let entries =
                Entries { instance: rng.random(), code: rng.random(), data: rng.random_bool(0.8) };
            let keys = if entries.data { keys(rng) } else { Keys::default() };
            let within =
                if rng.random() { rng.random_range(1..8) } else { rng.random_range(1..200) };
            Trigger::Ttl { within, entries, keys }
        }
    }
}
