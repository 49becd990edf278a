//! Members of projects, by replaying the whole metadata of all ledgers in their order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stellar_xdr::{
    ContractDataEntry, ContractEvent, ContractEventBody, ContractEventType, ContractExecutable,
    LedgerCloseMeta, LedgerEntryChange, LedgerEntryData, LedgerKey, LedgerKeyContractData, Limits,
    ReadXdr, ScAddress, ScVal, TransactionMeta, TransactionMetaV4,
};

use super::*;

/// Contract and key of an entry that says what contracts run.
type Place = (ContractId, ScVal);

/// What the ledgers say.
#[derive(Default)]
pub struct Model {
    /// Events: ledger, contract, and the codes that the contract ran around its transaction, or in it.
    events: Vec<(u32, ContractId, BTreeSet<[u8; 32]>)>,
    /// Contracts with the ones in whose calls they were constructed.
    made: BTreeMap<ContractId, ContractId>,
    /// Contracts that events with the topic `made` name, with the emitters.
    announced: BTreeSet<(ContractId, ContractId)>,
    executables: HashMap<Place, ContractExecutable>,
}

fn contract_of(address: &ScAddress) -> Option<ContractId> {
    match address {
        ScAddress::Contract(contract) => Some(ContractId(contract.0.0)),
        _ => None,
    }
}

fn symbol_is(value: &ScVal, text: &str) -> bool {
    matches!(value, ScVal::Symbol(symbol) if symbol.as_slice() == text.as_bytes())
}

impl Model {
    pub fn of(ledgers: &[&Vec<u8>]) -> Self {
        let mut model = Self::default();
        for raw in ledgers {
            let ledger = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap();
            let LedgerCloseMeta::V2(ledger) = ledger else { panic!() };
            let sequence = ledger.ledger_header.header.ledger_seq;
            for transaction in ledger.tx_processing.iter() {
                let TransactionMeta::V4(meta) = &transaction.tx_apply_processing else { continue };
                model.apply(sequence, meta);
            }
        }
        model
    }

    fn apply(&mut self, ledger: u32, meta: &TransactionMetaV4) {
        let before = self.executables.clone();
        let mut created = BTreeSet::new();
        for change in meta.operations.iter().flat_map(|operation| operation.changes.iter()) {
            self.change(change, &mut created);
        }
        for event in meta.diagnostic_events.iter() {
            let ContractEventBody::V0(body) = &event.event.body;
            let [called, contract, function] = body.topics.as_slice() else { continue };
            if !symbol_is(called, "fn_call") || !symbol_is(function, "__constructor") {
                continue;
            }
            let ScVal::Bytes(contract) = contract else { panic!() };
            let contract = ContractId(contract.as_slice().try_into().unwrap());
            assert!(created.contains(&contract), "it is created in that transaction");
            let caller = event.event.contract_id.as_ref().unwrap();
            self.made.insert(contract, ContractId(caller.0.0));
        }
        let events: Vec<&ContractEvent> =
            meta.operations.iter().flat_map(|operation| operation.events.iter()).collect();
        for event in &events {
            let Some(id) = &event.contract_id else { continue };
            let contract = ContractId(id.0.0);
            let ContractEventBody::V0(body) = &event.body;
            if let ([topic], ScVal::Address(address)) = (body.topics.as_slice(), &body.data)
                && symbol_is(topic, "made")
            {
                self.announced.extend(contract_of(address).map(|announced| (contract, announced)));
            }
            let mut ran: BTreeSet<[u8; 32]> =
                [run(&before, contract), run(&self.executables, contract)]
                    .into_iter()
                    .flatten()
                    .collect();
            let own = events.iter().filter(|it| it.contract_id.as_ref() == Some(id));
            for update in own.filter(|it| it.type_ == ContractEventType::System) {
                let ContractEventBody::V0(body) = &update.body;
                for executable in &body.topics[1..] {
                    let ScVal::Vec(Some(parts)) = executable else { panic!() };
                    if let [_, ScVal::Bytes(hash)] = parts.as_slice() {
                        ran.insert(hash.as_slice().try_into().unwrap());
                    }
                }
            }
            self.events.push((ledger, contract, ran));
        }
    }

    fn change(&mut self, change: &LedgerEntryChange, created: &mut BTreeSet<ContractId>) {
        let entry = match change {
            LedgerEntryChange::Created(entry)
            | LedgerEntryChange::Updated(entry)
            | LedgerEntryChange::Restored(entry) => entry,
            LedgerEntryChange::Removed(LedgerKey::ContractData(LedgerKeyContractData {
                contract,
                key,
                ..
            })) => {
                if let Some(contract) = contract_of(contract) {
                    self.executables.remove(&(contract, key.clone()));
                }
                return;
            }
            LedgerEntryChange::Removed(_) | LedgerEntryChange::State(_) => return,
        };
        let LedgerEntryData::ContractData(ContractDataEntry { contract, key, val, .. }) =
            &entry.data
        else {
            return;
        };
        let Some(contract) = contract_of(contract) else { return };
        let executable = match val {
            ScVal::ContractInstance(instance) => instance.executable.clone(),
            ScVal::Bytes(hash) if matches!(key, ScVal::ExecutableTag(_)) => {
                let hash = hash.as_slice().try_into().unwrap();
                ContractExecutable::Wasm(stellar_xdr::Hash(hash))
            }
            _ => return,
        };
        if matches!(change, LedgerEntryChange::Created(_)) {
            created.insert(contract);
        }
        self.executables.insert((contract, key.clone()), executable);
    }

    /// Returns the number of selected events of each contract in each ledger.
    pub fn selected(
        &self,
        contracts: &[ContractId],
        selectors: &Selectors,
    ) -> BTreeMap<(u32, ContractId), usize> {
        let mut selected = BTreeMap::new();
        for (ledger, contract, ran) in &self.events {
            let is_announced = selectors
                .factories
                .iter()
                .any(|factory| self.announced.contains(&(factory.contract, *contract)));
            let is_created = self.made.get(contract).is_some_and(|maker| {
                selectors.created_by.contains(&CreatorAddress(Creator::Contract(*maker)))
            });
            let has_run = selectors.wasm.iter().any(|code| ran.contains(&code.0));
            if contracts.contains(contract) || is_announced || is_created || has_run {
                *selected.entry((*ledger, *contract)).or_default() += 1;
            }
        }
        selected
    }
}

fn run(executables: &HashMap<Place, ContractExecutable>, contract: ContractId) -> Option<[u8; 32]> {
    match executables.get(&(contract, ScVal::LedgerKeyContractInstance))? {
        ContractExecutable::Wasm(hash) => Some(hash.0),
        ContractExecutable::StellarAsset => None,
        ContractExecutable::ExternalRef(reference) => {
            let owner = contract_of(&reference.executable_owner)?;
            let tag = ScVal::ExecutableTag(reference.tag.clone());
            match executables.get(&(owner, tag))? {
                ContractExecutable::Wasm(hash) => Some(hash.0),
                _ => None,
            }
        }
    }
}
