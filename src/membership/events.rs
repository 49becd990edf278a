//! What events say: which contracts there are of which it may not be known what they run, and which codes contracts have
//! named. It needs no transactions.

use std::collections::{BTreeMap, BTreeSet};

use orrery_executables::{CodeEvents, Emitted};
use orrery_interfaces::is_asset_contract;
use orrery_ledger::domain::{ContractId, NetworkId};
use orrery_store::{RowBounds, Store, StoreError};
use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::adding::Adding;
use super::learnt::Learnt;
use super::named::Named;
use super::rows::{CONSUMER, SEEN};

/// Limits of a topic that names an asset.
const TOPIC: Limits = Limits { depth: 10, len: 256 };

/// Returns the feed consumer that keeps what events say of what contracts run, and adds it to these facts.
pub fn code_events() -> CodeEvents {
    CodeEvents::telling(tell)
}

/// What is new.
struct News {
    /// Contracts of which there was no event before: whether each is that of an asset.
    emitters: BTreeMap<ContractId, bool>,
    /// What contracts have named.
    named: BTreeMap<ContractId, BTreeSet<Named>>,
}

impl News {
    fn of(store: &Store, emitted: &[Emitted]) -> Result<Self, StoreError> {
        let mut named: BTreeMap<ContractId, BTreeSet<Named>> = BTreeMap::new();
        for ((contract, _), steps) in emitted.iter().flat_map(|emitted| &emitted.updates) {
            let all = steps.updates.iter().flat_map(|update| [&update.before, &update.after]);
            named.entry(*contract).or_default().extend(all.flatten().filter_map(Named::of));
        }
        let rows = store.consumer_view(CONSUMER, RowBounds::none())?;
        let (mut emitters, network) = (BTreeMap::new(), store.network().id());
        for (contract, emitter) in emitted.iter().flat_map(|emitted| &emitted.emitters) {
            let is_new = emitters.contains_key(contract) || !SEEN.has(&rows, contract)?;
            if is_new {
                let is_asset = is_asset(network, contract, &emitter.asset);
                *emitters.entry(*contract).or_default() |= is_asset;
            }
        }
        Ok(Self { emitters, named })
    }
}

fn is_asset(network: &NetworkId, contract: &ContractId, topic: &[u8]) -> bool {
    let topic = ScVal::from_xdr(topic, TOPIC).ok();
    topic.is_some_and(|it| is_asset_contract(&[it], network, contract))
}

/// Adds what the events of some ledgers say to the facts, which are another consumer's rows.
fn tell(store: &Store, emitted: &[Emitted]) -> Result<(), StoreError> {
    if store.consumer(CONSUMER).is_none() {
        return Ok(());
    }
    let news = News::of(store, emitted)?;
    if news.emitters.is_empty() && news.named.is_empty() {
        return Ok(());
    }
    store.change_consumer_rows(CONSUMER, move |effects| {
        let mut adding = Adding::new(effects)?;
        for (contract, is_asset) in &news.emitters {
            adding.add_emitter(contract, *is_asset)?;
        }
        for (contract, named) in &news.named {
            for named in named {
                adding.add_runner(*named, *contract)?;
            }
            adding.know(contract)?;
            adding.learn(Learnt::Contract(*contract))?;
        }
        adding.finish()
    })
}
