//! Members of projects, by replaying the whole metadata of all ledgers in their order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stellar_xdr::{
    ContractDataEntry, ContractEvent, ContractEventBody, ContractEventType, ContractExecutable,
    LedgerCloseMeta, LedgerEntryChange, LedgerEntryData, LedgerKey, LedgerKeyContractData, Limits,
    ReadXdr, ScAddress, ScVal, TransactionMeta, TransactionMetaV4,
};

use super::*;
use orrery_contract_data::LAST_ORDER;

/// Contract and key of an entry that says what contracts run.
type Place = (ContractId, ScVal);

/// Codes that contracts ran.
type Codes = HashMap<ContractId, BTreeSet<[u8; 32]>>;

/// What the ledgers say.
#[derive(Default)]
pub struct Model {
    /// Events: ledger, contract, and the codes that the contract ran around its transaction, or in it.
    events: Vec<(u32, ContractId, BTreeSet<[u8; 32]>)>,
    /// The codes that each contract ran around a transaction, or in it, and after the last one of each ledger.
    ran: BTreeMap<(u32, u32), Codes>,
    /// Contracts with the ones in whose calls they were constructed.
    made: BTreeMap<ContractId, ContractId>,
    /// Where contracts were created.
    created: BTreeMap<ContractId, (u32, u32)>,
    /// Where contracts began to run a code first.
    stays: BTreeMap<(ContractId, [u8; 32]), (u32, u32)>,
    /// Emitters of events with the topic `made`, with the contracts that these name, and the first place.
    announced: BTreeMap<(ContractId, ContractId), (u32, u32, usize)>,
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
            for (order, transaction) in (1..).zip(ledger.tx_processing.iter()) {
                let TransactionMeta::V4(meta) = &transaction.tx_apply_processing else { continue };
                model.apply((sequence, order), meta);
            }
            let contracts = model.executables.keys().map(|(contract, _)| *contract);
            let ran = |it| (it, run(&model.executables, it).into_iter().collect());
            let at_end = contracts.map(ran).collect();
            model.ran.insert((sequence, LAST_ORDER), at_end);
        }
        model
    }

    fn apply(&mut self, at: (u32, u32), meta: &TransactionMetaV4) {
        let (before, ledger) = (self.executables.clone(), at.0);
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
        for contract in created {
            self.created.entry(contract).or_insert(at);
        }
        for (contract, _) in self.executables.keys() {
            if let Some(code) = run(&self.executables, *contract) {
                self.stays.entry((*contract, code)).or_insert(at);
            }
        }
        let events: Vec<&ContractEvent> =
            meta.operations.iter().flat_map(|operation| operation.events.iter()).collect();
        let contracts: BTreeSet<ContractId> =
            before.keys().chain(self.executables.keys()).map(|(contract, _)| *contract).collect();
        let around = |contract: ContractId| {
            let mut ran: BTreeSet<[u8; 32]> =
                [run(&before, contract), run(&self.executables, contract)]
                    .into_iter()
                    .flatten()
                    .collect();
            let is_own = |it: &&&ContractEvent| {
                it.type_ == ContractEventType::System
                    && it.contract_id.as_ref().is_some_and(|id| id.0.0 == contract.0)
            };
            for update in events.iter().filter(is_own) {
                let ContractEventBody::V0(body) = &update.body;
                for executable in &body.topics[1..] {
                    let ScVal::Vec(Some(parts)) = executable else { panic!() };
                    if let [_, ScVal::Bytes(hash)] = parts.as_slice() {
                        ran.insert(hash.as_slice().try_into().unwrap());
                    }
                }
            }
            ran
        };
        let ran: Codes = contracts.into_iter().map(|it| (it, around(it))).collect();
        for (index, event) in events.iter().enumerate() {
            let Some(id) = &event.contract_id else { continue };
            let contract = ContractId(id.0.0);
            let ContractEventBody::V0(body) = &event.body;
            if let ([topic], ScVal::Address(address)) = (body.topics.as_slice(), &body.data)
                && symbol_is(topic, "made")
                && let Some(announced) = contract_of(address)
            {
                let place = (ledger, at.1, index + 1);
                self.announced.entry((contract, announced)).or_insert(place);
            }
            self.events.push((ledger, contract, ran.get(&contract).cloned().unwrap_or_default()));
        }
        self.ran.insert(at, ran);
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

    /// Whether a contract is a member whatever it runs.
    fn is_whole(&self, contracts: &[ContractId], selectors: &Selectors, of: &ContractId) -> bool {
        let is_announced = selectors
            .factories
            .iter()
            .any(|factory| self.announced.contains_key(&(factory.contract, *of)));
        let is_created = self.made.get(of).is_some_and(|maker| {
            selectors.created_by.contains(&CreatorAddress(Creator::Contract(*maker)))
        });
        contracts.contains(of) || is_announced || is_created
    }

    /// Returns the members of a project, each with where it became one: nowhere, if it is named.
    fn ranks(
        &self,
        contracts: &[ContractId],
        selectors: &Selectors,
    ) -> BTreeMap<ContractId, (u32, u32, usize)> {
        let mut ranks: BTreeMap<ContractId, (u32, u32, usize)> = BTreeMap::new();
        let mut add = |contract: &ContractId, at| {
            let first = ranks.entry(*contract).or_insert(at);
            *first = at.min(*first);
        };
        contracts.iter().for_each(|contract| add(contract, (0, 0, 0)));
        for ((factory, contract), at) in &self.announced {
            if selectors.factories.iter().any(|it| it.contract == *factory) {
                add(contract, *at);
            }
        }
        for (contract, maker) in &self.made {
            let maker = CreatorAddress(Creator::Contract(*maker));
            if selectors.created_by.contains(&maker) {
                let (ledger, order) = self.created[contract];
                add(contract, (ledger, order, 0));
            }
        }
        for ((contract, code), (ledger, order)) in &self.stays {
            if selectors.wasm.iter().any(|wasm| wasm.0 == *code) {
                add(contract, (*ledger, *order, 0));
            }
        }
        ranks
    }

    /// Whether a contract is one of the members of a project that became members first, at most so many. `None` where
    /// that is not modelled: of those that ran a code only in the middle of a transaction, where there is room.
    pub fn stays(
        &self,
        (contracts, selectors): (&[ContractId], &Selectors),
        contract: &ContractId,
        most: usize,
    ) -> Option<bool> {
        let ranks = self.ranks(contracts, selectors);
        let mut in_order: Vec<_> = ranks.iter().map(|(contract, at)| (*at, *contract)).collect();
        in_order.sort_unstable();
        if contracts.contains(contract) {
            return Some(true);
        }
        match in_order.iter().position(|(_, it)| it == contract) {
            Some(place) => Some(place < most),
            None if in_order.len() >= most => Some(false),
            None => (most > self.created.len()).then_some(true),
        }
    }

    /// Returns the number of selected events of each contract in each ledger.
    pub fn selected(
        &self,
        contracts: &[ContractId],
        selectors: &Selectors,
    ) -> BTreeMap<(u32, ContractId), usize> {
        let mut selected = BTreeMap::new();
        for (ledger, contract, ran) in &self.events {
            let has_run = selectors.wasm.iter().any(|code| ran.contains(&code.0));
            if has_run || self.is_whole(contracts, selectors, contract) {
                *selected.entry((*ledger, *contract)).or_default() += 1;
            }
        }
        selected
    }

    /// Whether a change of what a contract holds belongs to a project: by the transaction with this order, or
    /// after all of a ledger.
    pub fn selects_change(
        &self,
        (contracts, selectors): (&[ContractId], &Selectors),
        contract: &ContractId,
        at: (u32, u32),
    ) -> bool {
        let ran = self.ran.get(&at).and_then(|ran| ran.get(contract));
        let has_run =
            ran.is_some_and(|ran| selectors.wasm.iter().any(|code| ran.contains(&code.0)));
        has_run || self.is_whole(contracts, selectors, contract)
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
