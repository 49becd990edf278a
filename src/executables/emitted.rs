//! What the events of a ledger say of what contracts run, in the form in which it is gathered while the ledger is
//! decoded: which contracts emitted some, and which changed their own executables.

use std::collections::{BTreeMap, HashMap};

use super::updates::{Update, is_update};
use orrery_ledger::decode::{EventType, LedgerView};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{EventQuery, RowCodec, Store, StoreError};

/// Longest topic that can name an asset: `CODE:ISSUER`, in XDR.
const LONGEST_ASSET: usize = 80;
/// Discriminant of a string in the XDR of a value (SCV_STRING).
const STRING: [u8; 4] = 14_u32.to_be_bytes();

/// What the events of a ledger say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Emitted {
    /// The contracts that emitted some.
    pub emitters: BTreeMap<ContractId, Emitter>,
    /// The contracts that changed their executables, with the application orders of the transactions.
    pub updates: BTreeMap<(ContractId, u32), Steps>,
}

/// A contract that emitted events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitter {
    /// Application order of the first transaction with one.
    pub first: u32,
    /// XDR of a last topic that may name an asset; empty where there is none.
    pub asset: Vec<u8>,
}

/// The changes that a contract made of its executable in a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps {
    /// Hash of the transaction.
    pub transaction: Hash32,
    /// What each event says, in their order.
    pub updates: Vec<Update>,
}

/// An event, as far as it counts.
struct Seen<'e, T> {
    contract: Option<&'e [u8; 32]>,
    kind: EventType,
    transaction: &'e [u8; 32],
    application_order: u32,
    topics: T,
}

impl Emitted {
    fn add<'e>(&mut self, event: Seen<'e, impl Iterator<Item = &'e [u8]> + Clone>) {
        let Seen { contract, kind, transaction, application_order, topics } = event;
        let Some(contract) = contract.map(|contract| ContractId(*contract)) else { return };
        if kind == EventType::System
            && is_update(topics.clone())
            && let Some(update) = Update::of_topics(topics.clone())
        {
            let steps = self.updates.entry((contract, application_order)).or_default();
            steps.transaction = Hash32(*transaction);
            steps.updates.push(update);
        }
        let new = Emitter { first: application_order, asset: Vec::new() };
        let emitter = self.emitters.entry(contract).or_insert(new);
        emitter.first = emitter.first.min(application_order);
        if emitter.asset.is_empty()
            && let Some(last) = topics.last()
            && last.starts_with(&STRING)
            && last.len() <= LONGEST_ASSET
        {
            emitter.asset = last.to_vec();
        }
    }

    fn of(ledger: &LedgerView<'_>) -> Self {
        let mut emitted = Self::default();
        // Contracts that have an asset, with the application orders from which on their events say nothing
        // new: a full ledger has thousands of events of few contracts.
        let mut known: HashMap<&[u8; 32], u32> = HashMap::new();
        for event in &ledger.events {
            // Events are those of the ledger's transactions.
            let Some(transaction) = ledger.transactions.get(event.transaction) else { continue };
            let application_order = transaction.application_order;
            let is_known = |contract: &[u8; 32]| {
                known.get(contract).is_some_and(|it| *it <= application_order)
            };
            if event.event_type == EventType::Contract && event.contract.is_some_and(is_known) {
                continue;
            }
            emitted.add(Seen {
                contract: event.contract,
                kind: event.event_type,
                transaction: transaction.hash.as_bytes(),
                application_order,
                topics: ledger.topics(event).iter().copied(),
            });
            if let Some(contract) = event.contract
                && let Some(emitter) = emitted.emitters.get(&ContractId(*contract))
                && !emitter.asset.is_empty()
            {
                known.insert(contract, emitter.first);
            }
        }
        emitted
    }

    /// Reads the stored events of a ledger.
    ///
    /// # Errors
    /// When the database fails.
    pub fn stored(store: &Store, ledger: LedgerSeq) -> Result<Self, StoreError> {
        let mut emitted = Self::default();
        store.events(&EventQuery::of_ledgers(LedgerRange::only(ledger)), |event| {
            emitted.add(Seen {
                contract: event.contract,
                kind: event.event_type,
                transaction: event.tx,
                application_order: event.application_order,
                topics: event.topics.iter().copied(),
            });
        })?;
        Ok(emitted)
    }
}

/// Returns what the events of a ledger say, in the form for [`Emitted::decode`].
pub(super) fn gather(ledger: &LedgerView<'_>) -> Vec<u8> {
    Emitted::of(ledger).encode()
}

/// A ledger has some thousand events and contracts at most.
impl RowCodec for Emitted {
    fn write(&self, to: &mut Vec<u8>) {
        (self.emitters.len() as u32).write(to);
        for (contract, Emitter { first, asset }) in &self.emitters {
            (*contract, (*first, asset.len() as u8)).write(to);
            to.extend_from_slice(asset);
        }
        (self.updates.len() as u32).write(to);
        for (of, Steps { transaction, updates }) in &self.updates {
            (*of, (*transaction, updates.len() as u32)).write(to);
            updates.iter().for_each(|update| update.write(to));
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut emitted = Self::default();
        for _ in 0..u32::read(bytes)? {
            let (contract, (first, length)) = <(ContractId, (u32, u8))>::read(bytes)?;
            let asset = bytes.split_off(..usize::from(length))?.to_vec();
            emitted.emitters.insert(contract, Emitter { first, asset });
        }
        for _ in 0..u32::read(bytes)? {
            let (of, (transaction, count)) = <((ContractId, u32), (Hash32, u32))>::read(bytes)?;
            let updates = (0..count).map(|_| Update::read(bytes)).collect::<Option<_>>()?;
            emitted.updates.insert(of, Steps { transaction, updates });
        }
        Some(emitted)
    }
}
