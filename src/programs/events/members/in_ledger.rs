//! Who belongs to a project in one ledger, for those who tell users what happens to its contracts.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::of_ledger::Membership;
use super::selection::{Selected as Ran, Updates, ran};
use super::selectors::Selectors;
use crate::ProgramError;
use crate::manifest::Manifest;
use crate::runner::Runner;
use orrery_executables::lookup::Lookup;
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_membership::{AT_THE_END, Belongs, Facts, MembersInLedger};
use orrery_store::{EventQuery, RowBounds, StoreError, TransactionPosition};

/// Who belongs to a project in a ledger.
pub struct InLedger<'a> {
    runner: &'a Runner,
    manifest: Arc<Manifest>,
    ledger: LedgerSeq,
    /// Whether the project begins with a later ledger.
    is_before: bool,
    /// `None` where no contract is selected by what it runs.
    lookup: Option<Lookup<'a>>,
    known: RefCell<HashMap<ContractId, Membership>>,
    /// Codes that the events of transactions name.
    updates: OnceCell<BTreeMap<u32, Updates>>,
}

impl Runner {
    /// Returns who belongs to a project in a ledger, by what is known of its members now.
    pub(crate) fn members_in(
        &self,
        manifest: Arc<Manifest>,
        ledger: LedgerSeq,
    ) -> Result<InLedger<'_>, ProgramError> {
        let project = manifest.events.as_ref();
        let has_codes = project.is_some_and(|project| !project.selectors.wasm.is_empty());
        let is_before = project.is_some_and(|project| !project.wants(ledger));
        let lookup = match has_codes && !is_before {
            true => Some(Lookup::new(&self.store, RowBounds::none())?),
            false => None,
        };
        let (known, updates) = (RefCell::default(), OnceCell::new());
        Ok(InLedger { runner: self, manifest, ledger, is_before, lookup, known, updates })
    }

    /// Returns all contracts that belong to a project as far as is known, or may, by id.
    pub(crate) fn all_members(&self, manifest: &Manifest) -> Arc<[ContractId]> {
        let selectors = manifest.events.as_ref().map(|project| &project.selectors);
        match selectors.is_some_and(|selectors| !selectors.is_empty()) {
            true => self.events.members().sorted(manifest.id),
            false => {
                let mut contracts = manifest.contracts.clone();
                contracts.sort_unstable();
                contracts.into()
            }
        }
    }
}

impl InLedger<'_> {
    fn membership(&self, contract: &ContractId) -> Result<Membership, ProgramError> {
        if let Some(known) = self.known.borrow().get(contract) {
            return Ok(*known);
        }
        let none = Selectors::default();
        let selectors = self.manifest.events.as_ref().map_or(&none, |project| &project.selectors);
        let of = (&*self.manifest, selectors, self.lookup.as_ref());
        let found = self.runner.membership(of, self.ledger, contract)?;
        self.known.borrow_mut().insert(*contract, found);
        Ok(found)
    }

    /// Returns the codes that the events of a transaction name.
    fn updates(&self, application_order: u32) -> Result<Option<&Updates>, StoreError> {
        if self.updates.get().is_none() {
            let mut all: BTreeMap<u32, Updates> = BTreeMap::new();
            let query = EventQuery::of_ledgers(LedgerRange::only(self.ledger));
            self.runner.store.events(&query, |event| {
                let contract = event.contract.map(|contract| ContractId(*contract));
                let is_system = event.event_type == EventType::System;
                if let Some(contract) = contract.filter(|_| is_system) {
                    let of = all.entry(event.application_order).or_default();
                    of.add(contract, event.topics.iter().copied());
                }
            })?;
            // It is empty: nobody else has set it.
            let _ = self.updates.set(all);
        }
        Ok(self.updates.get().and_then(|all| all.get(&application_order)))
    }

    fn belongs(&self, contract: &ContractId, order: u32) -> Result<Belongs, ProgramError> {
        if self.is_before {
            return Ok(Belongs::No);
        }
        let lookup = match (self.membership(contract)?, &self.lookup) {
            (Membership::Member, _) => return Ok(Belongs::Yes),
            (Membership::ByCode, Some(lookup)) => lookup,
            (Membership::ByCode | Membership::Other, _) => return Ok(Belongs::No),
        };
        let none = Updates::default();
        let updates = match order {
            AT_THE_END => &none,
            order => self.updates(order)?.unwrap_or(&none),
        };
        let at = TransactionPosition { ledger: self.ledger, application_order: order };
        let codes = self.manifest.events.as_ref().map(|project| &*project.selectors.wasm);
        Ok(match ran(lookup, codes.unwrap_or_default(), contract, at, updates)? {
            Ran::Yes => Belongs::Yes,
            Ran::No => Belongs::No,
            Ran::NotKnown => Belongs::NotKnown,
        })
    }
}

impl MembersInLedger for InLedger<'_> {
    fn may_have(&self, contract: &ContractId) -> bool {
        let flags = || self.runner.events.members().flags(self.manifest.id, contract);
        !self.is_before && (self.manifest.contracts.contains(contract) || !flags().is_empty())
    }

    fn has(&self, contract: &ContractId, application_order: u32) -> Result<Belongs, StoreError> {
        self.belongs(contract, application_order).map_err(ProgramError::into_store)
    }

    fn referring(&self, entry: [u8; 32]) -> Result<Vec<ContractId>, StoreError> {
        let selectors = self.manifest.events.as_ref().map(|project| &project.selectors);
        if !selectors.is_some_and(Selectors::have_members) {
            return Ok(self.manifest.contracts.clone());
        }
        let mut found = Vec::new();
        Facts::new(&self.runner.store)?.referring(entry, |contract| {
            if self.may_have(&contract) {
                found.push(contract);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}
