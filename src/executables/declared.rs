//! The declaration of a stored event, by the interfaces that its contract had.

use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::reader::{AllTried, InterfaceReader, Tried};
use orrery_interfaces::{Found, Matched, NamedEvent};
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
    tried: AllTried,
    /// Which of them declares the event, and how.
    found: Option<(usize, Found)>,
}

impl InterfaceReader<'_> {
    /// Returns the interfaces that may declare an event of a contract on this network, in the order in
    /// which they are tried, and whether that is all: the supplied one, if there is one, before those of the
    /// contract. A system event has none.
    pub fn of_event(&self, event: &EventRecord<'_>, network: &NetworkId) -> (AllTried, bool) {
        let contract = match event.contract {
            Some(contract) if event.event_type == EventType::Contract => ContractId(*contract),
            _ => return (AllTried::default(), true),
        };
        let application_order = event.application_order;
        let at = TransactionPosition { ledger: event.ledger, application_order };
        let names_asset = |topic: &&[u8]| self.is_of_asset(network, &contract, topic);
        let (tried, is_sure) = match event.topics.last().is_some_and(names_asset) {
            true => (AllTried::from([Tried::Asset]), true),
            false => self.tried_surely(&contract, at),
        };
        (self.with_supplied(tried), is_sure)
    }
}

impl DeclaredEvent {
    /// Reads the values of an event on this network; `None` for a system event, and for one whose
    /// contract has no known interface.
    pub fn of(
        event: &EventRecord<'_>,
        network: &NetworkId,
        names: &InterfaceReader<'_>,
    ) -> Option<Self> {
        let (tried, _) = names.of_event(event, network);
        if tried.is_empty() { None } else { Self::tried(event, tried, names) }
    }

    /// Reads the values of an event, and finds which of these interfaces declares it; `None` when the
    /// values cannot be read.
    pub fn tried(
        event: &EventRecord<'_>,
        tried: AllTried,
        names: &InterfaceReader<'_>,
    ) -> Option<Self> {
        let value = |xdr: &&[u8]| ScVal::from_xdr(xdr, LIMITS).ok();
        let topics = event.topics.iter().map(value).collect::<Option<Vec<_>>>()?;
        let data = value(&event.data)?;
        let xdr = event.topics.iter().copied();
        // Most events are told by their bytes.
        let flat = |first: &Tried| first.interface().flat_declaration(xdr, event.data, |_, _| ());
        let found = match tried.first().and_then(flat) {
            Some(number) => Some((0, Found::exactly(number))),
            None => tried.iter().enumerate().find_map(|(at, tried)| {
                let found = names.findings().find(tried.identified(), event.id.0, &topics, &data);
                Some((at, found?))
            }),
        };
        Some(Self { topics, data, tried, found })
    }

    /// The topics.
    pub fn topics(&self) -> &[ScVal] {
        &self.topics
    }

    /// Returns the event by itself; `None` where it has no name.
    pub fn named(&self) -> Option<NamedEvent<'_>> {
        NamedEvent::of(self.matched(), &self.topics, &self.data)
    }

    /// Returns the event's declaration with its parameters; `None` when it fits none.
    pub fn matched(&self) -> Option<Matched<'_>> {
        let (at, found) = self.found?;
        Matched::of(at, self.tried[at].interface(), found, &self.topics, &self.data)
    }
}
