//! What a ledger says of contracts, in the form in which it is gathered while the ledger is decoded: which
//! transactions have to be read, which contracts emitted events, and which codes their events name.

use std::collections::{BTreeMap, BTreeSet};

use orrery_executables::facts;
use orrery_ledger::decode::{EventType, LedgerView};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{EventQuery, RowCodec, Store, StoreError};

use super::updates::{is_update, updated_codes};

/// Longest topic that can name an asset: `CODE:ISSUER`, in XDR.
const LONGEST_ASSET: usize = 80;
/// Discriminant of a string in the XDR of a value (SCV_STRING).
const STRING: [u8; 4] = 14_u32.to_be_bytes();

/// What the events of a ledger say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Emitted {
    /// The contracts that emitted some, each with the XDR of a last topic that may name an asset; empty where
    /// there is none.
    pub emitters: BTreeMap<ContractId, Vec<u8>>,
    /// The codes that events of the host name of contracts.
    pub updates: BTreeSet<(ContractId, Hash32)>,
}

impl Emitted {
    fn add<'a>(
        &mut self,
        contract: Option<&[u8; 32]>,
        kind: EventType,
        topics: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        let Some(contract) = contract.map(|contract| ContractId(*contract)) else { return };
        if kind == EventType::System && is_update(topics.clone()) {
            self.updates.extend(updated_codes(topics.clone()).map(|code| (contract, code)));
        }
        let asset = self.emitters.entry(contract).or_default();
        if asset.is_empty()
            && let Some(last) = topics.last()
            && last.starts_with(&STRING)
            && last.len() <= LONGEST_ASSET
        {
            *asset = last.to_vec();
        }
    }

    fn of(ledger: &LedgerView<'_>) -> Self {
        let mut emitted = Self::default();
        for event in &ledger.events {
            emitted.add(event.contract, event.event_type, ledger.topics(event).iter().copied());
        }
        emitted
    }

    /// Reads the stored events of a ledger.
    pub fn stored(store: &Store, ledger: LedgerSeq) -> Result<Self, StoreError> {
        let mut emitted = Self::default();
        store.events(&EventQuery::of_ledgers(LedgerRange::only(ledger)), |event| {
            emitted.add(event.contract, event.event_type, event.topics.iter().copied());
        })?;
        Ok(emitted)
    }
}

/// Returns what a ledger says, in the form for [`decode`].
pub fn gather(ledger: &LedgerView<'_>) -> Vec<u8> {
    let Emitted { emitters, updates } = Emitted::of(ledger);
    let mut gathered = Vec::new();
    // A ledger has some thousand events and contracts at most.
    (emitters.len() as u32).write(&mut gathered);
    for (contract, asset) in &emitters {
        (*contract, asset.len() as u8).write(&mut gathered);
        gathered.extend_from_slice(asset);
    }
    (updates.len() as u32).write(&mut gathered);
    updates.iter().for_each(|update| update.write(&mut gathered));
    gathered.extend(facts::mentions(ledger));
    gathered
}

/// Decodes what was gathered: what the events say, and what is left for [`facts::decode`].
pub fn decode(mut gathered: &[u8]) -> Option<(Emitted, &[u8])> {
    let bytes = &mut gathered;
    let mut emitted = Emitted::default();
    for _ in 0..u32::read(bytes)? {
        let (contract, length) = <(ContractId, u8)>::read(bytes)?;
        let asset = bytes.split_off(..usize::from(length))?;
        emitted.emitters.insert(contract, asset.to_vec());
    }
    for _ in 0..u32::read(bytes)? {
        emitted.updates.insert(RowCodec::read(bytes)?);
    }
    Some((emitted, gathered))
}
