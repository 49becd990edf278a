//! Support for the benches of pushed events: the events that are stored of a load, which determine
//! the expected deliveries, and subscriptions over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use orrery::domain::{ContractId, Network, Page};
use orrery::pipeline::Pipeline;
use orrery::store::{Durability, EventQuery, Store, TopicFilter};
use serde_json::Value;

use super::client::Client;
use super::indexing::{Unobserved, raw};
use super::many;

/// An event of a load.
pub struct Event {
    pub contract: Option<[u8; 32]>,
    /// XDR of the second topic.
    pub topic2: Option<Vec<u8>>,
}

/// The stored events of each ledger, in ledger order.
pub struct Load(Vec<Vec<Event>>);

impl Load {
    /// Stores the ledgers in a temporary store and reads their events back.
    pub fn of(
        network: &Network,
        ledgers: &[Vec<u8>],
        parent: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir_in(parent)?;
        let store = Arc::new(Store::open(directory.path(), Some(network))?);
        let pipeline =
            Pipeline::new(Arc::clone(&store), many::options(false), Arc::new(Unobserved));
        let raw = ledgers.iter().map(|xdr| Ok::<_, std::convert::Infallible>(raw(xdr)));
        pipeline.run(raw, Durability::Deferred, |_| ControlFlow::Continue(()))?;
        let query = EventQuery {
            ledgers: None,
            contracts: Vec::new(),
            topics: TopicFilter::default(),
            page: Page::all(),
        };
        let mut by_ledger: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
        let latest = store.status().latest().ok_or("there are no ledgers")?.0;
        for number in (0..).take(ledgers.len()) {
            by_ledger.insert(latest - number, Vec::new());
        }
        store.events(&query, |event| {
            let topic2 = event.topics.get(1).map(|topic| topic.to_vec());
            let event_of = Event { contract: event.contract.copied(), topic2 };
            by_ledger.entry(event.ledger.0).or_default().push(event_of);
        })?;
        Ok(Self(by_ledger.into_values().collect()))
    }

    /// Returns the contract with the most events.
    pub fn busiest(&self) -> Result<ContractId, Box<dyn Error>> {
        let mut counts: BTreeMap<[u8; 32], usize> = BTreeMap::new();
        for contract in self.0.iter().flatten().filter_map(|event| event.contract) {
            *counts.entry(contract).or_default() += 1;
        }
        let busiest = counts.into_iter().max_by_key(|(_, count)| *count);
        Ok(ContractId(busiest.ok_or("no contract has an event")?.0))
    }

    /// Returns the contract with the most distinct second topics, which are accounts: an asset with
    /// many holders.
    pub fn widest(&self) -> Result<ContractId, Box<dyn Error>> {
        let mut topics: BTreeMap<[u8; 32], BTreeSet<&[u8]>> = BTreeMap::new();
        for event in self.0.iter().flatten() {
            if let (Some(contract), Some(topic)) = (event.contract, &event.topic2) {
                topics.entry(contract).or_default().insert(topic);
            }
        }
        let widest = topics.into_iter().max_by_key(|(_, topics)| topics.len());
        Ok(ContractId(widest.ok_or("no event has two topics")?.0))
    }

    /// Returns the number of events of a contract in each ledger.
    pub fn counts(&self, contract: ContractId) -> Vec<usize> {
        let of = |event: &&Event| event.contract == Some(contract.0);
        self.0.iter().map(|events| events.iter().filter(of).count()).collect()
    }

    /// Iterates over the events of each ledger.
    pub fn ledgers(&self) -> impl Iterator<Item = &[Event]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// Creates a subscription.
pub fn subscribe(client: &mut Client, wanted: &Value) -> Result<(), Box<dyn Error>> {
    client.post("/rest/webhooks/new", wanted.to_string().as_bytes())?;
    Ok(())
}

/// Returns the number of an owner's deliveries that still have to be sent. Fails if a subscription
/// was disabled.
pub fn waiting(client: &mut Client) -> Result<u64, Box<dyn Error>> {
    let listed: Vec<Value> = serde_json::from_slice(client.get("/rest/webhooks/list")?)?;
    let disabled = listed.iter().find(|it| it["enabled"] != true);
    match disabled {
        Some(subscription) => Err(format!("it was disabled: {subscription}").into()),
        None => Ok(listed.iter().filter_map(|it| it["deliveries_waiting"].as_u64()).sum()),
    }
}
