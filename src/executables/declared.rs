//! The declaration of a stored event, by the interfaces that its contract had.

use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::reader::{InterfaceReader, Tried};
use orrery_interfaces::{Found, Matched, is_asset_contract};
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{ContractId, DEEPEST_VALUE, NetworkId};
use orrery_store::{EventRecord, TransactionPosition};

/// Limits of a value: more bytes than the events of a transaction may have.
const LIMITS: Limits = Limits { depth: DEEPEST_VALUE, len: 4 << 20 };

/// The values of an event of a contract, with the interfaces that may declare it.
#[derive(Debug)]
pub struct DeclaredEvent {
    topics: Vec<ScVal>,
    data: ScVal,
    tried: Vec<Tried>,
    /// Which of them declares the event, and how.
    found: Option<(usize, Found)>,
}

impl DeclaredEvent {
    /// Reads the values of an event on this network; `None` for a system event, and for one whose
    /// contract has no known interface.
    pub fn of(
        event: &EventRecord<'_>,
        network: &NetworkId,
        names: &InterfaceReader<'_>,
    ) -> Option<Self> {
        let contract = ContractId(*event.contract?);
        if event.event_type != EventType::Contract {
            return None;
        }
        let application_order = event.application_order;
        let at = TransactionPosition { ledger: event.ledger, application_order };
        let may_be_asset = event.topics.last().is_some_and(|topic| is_string(topic));
        let mut tried = Vec::new();
        if !may_be_asset {
            tried = names.tried(&contract, at);
            if tried.is_empty() {
                return None;
            }
        }
        let value = |xdr: &&[u8]| ScVal::from_xdr(xdr, LIMITS).ok();
        let topics = event.topics.iter().map(value).collect::<Option<Vec<_>>>()?;
        let data = value(&event.data)?;
        if may_be_asset {
            tried = match is_asset_contract(&topics, network, &contract) {
                true => vec![Tried::Asset],
                false => names.tried(&contract, at),
            };
        }
        if tried.is_empty() {
            return None;
        }
        let find = |(at, tried): (usize, &Tried)| {
            Some((at, names.findings().find(tried.identified(), event.id.0, &topics, &data)?))
        };
        let found = tried.iter().enumerate().find_map(find);
        Some(Self { topics, data, tried, found })
    }

    /// Returns the event's declaration with its parameters; `None` when it fits none.
    pub fn matched(&self) -> Option<Matched<'_>> {
        let (at, found) = self.found?;
        Matched::of(at, self.tried[at].interface(), found, &self.topics, &self.data)
    }
}

/// Whether this is the XDR of a string, as which an asset's events name the asset.
fn is_string(topic: &[u8]) -> bool {
    topic.starts_with(&[0, 0, 0, 14])
}
