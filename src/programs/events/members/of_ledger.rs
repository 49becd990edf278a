//! The events of one ledger that a project selects, for those who tell users of them: of each member from the
//! ledger on in which it became one.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use super::index::Flags;
use super::selection::{Selected as Ran, Updates, ran_there};
use super::selectors::Selectors;
use crate::ProgramError;
use crate::events::declared_by::DeclaredBy;
use crate::events::interfaces::OfProject;
use crate::manifest::Manifest;
use crate::runner::Runner;
use orrery_executables::lookup::Lookup;
use orrery_executables::{DeclaredEvent, InterfaceReader, Tried};
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{ContractId, EventId, LedgerRange, LedgerSeq};
use orrery_membership::Selected;
use orrery_store::{Bounds, EventQuery, EventRecord, RowBounds, TransactionPosition};

/// What is known of a contract in a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// It is a member.
    Member,
    /// It is one in the transactions in which it runs a code.
    ByCode,
    /// It is none.
    Other,
}

/// The walk through one ledger.
struct Walk<'a> {
    runner: &'a Runner,
    manifest: &'a Manifest,
    selectors: &'a Selectors,
    ledger: LedgerSeq,
    /// `None` where no contract is selected by what it runs.
    lookup: Option<Lookup<'a>>,
    /// `None` where no event is selected by its name.
    names: Option<InterfaceReader<'a>>,
    known: HashMap<ContractId, Membership>,
    /// Codes that the events of transactions name.
    updates: BTreeMap<u32, Updates>,
    /// Events of contracts whose code decides, with the decision if it does not.
    by_code: Vec<(EventId, ContractId, TransactionPosition, Named)>,
    selected: Selected,
}

/// Whether an event has a name that the project selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Yes,
    No,
    NotKnown,
}

impl Runner {
    /// Returns the interface that was supplied with a project.
    pub(crate) fn supplied(&self, manifest: &Manifest) -> Result<Option<Tried>, ProgramError> {
        if !manifest.events.as_ref().is_some_and(|project| project.has_supplied) {
            return Ok(None);
        }
        let by = DeclaredBy::Supplied(manifest.module);
        let known = self.events.get(by, &OfProject::of(manifest))?;
        Ok(known.and_then(|known| Some(Tried::Code(known.hash, known.shared()?))))
    }

    /// Returns the events of a ledger that a project selects, by what is known of its members now.
    pub(crate) fn selected(
        &self,
        manifest: &Manifest,
        ledger: LedgerSeq,
    ) -> Result<Selected, ProgramError> {
        let supplied = self.supplied(manifest)?;
        let selected = Selected { supplied, ..Selected::default() };
        let project = manifest.events.as_ref();
        if project.is_some_and(|project| !project.wants(ledger)) {
            return Ok(selected);
        }
        let none = Selectors::default();
        let selectors = project.map_or(&none, |project| &project.selectors);
        let lookup = match selectors.wasm.is_empty() {
            true => None,
            false => Some(Lookup::new(&self.store, RowBounds::none())?),
        };
        let names = match selectors.all.is_empty() {
            true => None,
            false => Some(self.events.interfaces().loading_reader()?),
        };
        if let Some(names) = &names {
            names.supply(selected.supplied.clone());
        }
        let (known, updates, by_code) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let (runner, query) = (self, EventQuery::of_ledgers(LedgerRange::only(ledger)));
        let mut walk = Walk {
            runner,
            manifest,
            selectors,
            ledger,
            lookup,
            names,
            known,
            updates,
            by_code,
            selected,
        };
        let walked =
            self.store.events_within(&query, Bounds::NONE, |event| match walk.event(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            })?;
        walked.broken_off.map_or(Ok(()), Err)?;
        walk.finish()
    }

    /// Returns what a contract is to a project in a ledger. The lookup is there where codes select contracts.
    pub(super) fn membership(
        &self,
        (manifest, selectors, lookup): (&Manifest, &Selectors, Option<&Lookup<'_>>),
        ledger: LedgerSeq,
        contract: &ContractId,
    ) -> Result<Membership, ProgramError> {
        let program = manifest.id;
        let flags = self.events.members().flags(program, contract);
        if manifest.contracts.contains(contract) || flags.has(Flags::CREATED) {
            return Ok(Membership::Member);
        }
        let count = selectors.factories.len();
        let is_announced = flags.has(Flags::ANNOUNCED);
        if is_announced {
            let announced = self.announced(program, contract, count)?;
            if announced.is_some_and(|since| since <= ledger) {
                return Ok(Membership::Member);
            }
        }
        let Some(lookup) = lookup.filter(|_| flags.has(Flags::MAY_RUN)) else {
            return Ok(Membership::Other);
        };
        // All events of what is announced are rows, so also those after its first stay.
        if is_announced {
            let stay = self.first_stay(lookup, contract, &selectors.wasm)?;
            if stay.is_some_and(|since| since <= ledger) {
                return Ok(Membership::Member);
            }
        }
        Ok(Membership::ByCode)
    }
}

impl Walk<'_> {
    fn event(&mut self, event: &EventRecord<'_>) -> Result<(), ProgramError> {
        let Some(contract) = event.contract.map(|contract| ContractId(*contract)) else {
            return Ok(());
        };
        let order = event.application_order;
        if self.lookup.is_some() && event.event_type == EventType::System {
            let updates = self.updates.entry(order).or_default();
            updates.add(contract, event.topics.iter().copied());
        }
        let membership = match self.known.get(&contract) {
            Some(known) => *known,
            None => {
                let found = self.membership(&contract)?;
                self.known.insert(contract, found);
                found
            }
        };
        if membership == Membership::Member {
            self.selected.events.insert(event.id);
            return Ok(());
        }
        let named = self.named(event);
        let at = TransactionPosition { ledger: event.ledger, application_order: order };
        match (named, membership) {
            (Named::Yes, _) => self.selected.events.extend([event.id]),
            (_, Membership::ByCode) => self.by_code.push((event.id, contract, at, named)),
            (Named::NotKnown, _) => self.selected.unsure.extend([event.id]),
            (Named::No, _) => {}
        }
        Ok(())
    }

    /// Returns whether a contract is a member in the ledger.
    fn membership(&self, contract: &ContractId) -> Result<Membership, ProgramError> {
        let of = (self.manifest, self.selectors, self.lookup.as_ref());
        self.runner.membership(of, self.ledger, contract)
    }

    /// Returns whether an event has a name that the project selects.
    fn named(&self, event: &EventRecord<'_>) -> Named {
        let Some(names) = &self.names else { return Named::No };
        let (tried, is_sure) = names.of_event(event, self.runner.store.network().id());
        let declared = DeclaredEvent::tried(event, tried, names);
        let named = declared.as_ref().and_then(DeclaredEvent::named);
        match named.is_some_and(|named| self.selectors.selects_by_name(&named)) {
            true => Named::Yes,
            false if is_sure => Named::No,
            false => Named::NotKnown,
        }
    }

    fn finish(mut self) -> Result<Selected, ProgramError> {
        let none = Updates::default();
        for (event, contract, at, named) in std::mem::take(&mut self.by_code) {
            let Some(lookup) = &self.lookup else { continue };
            let updates = self.updates.get(&at.application_order).unwrap_or(&none);
            let ran = ran_there(lookup, &self.selectors.wasm, &contract, at, updates)?;
            match (ran, named) {
                (Ran::Yes, _) => self.selected.events.extend([event]),
                (Ran::NotKnown, _) | (Ran::No, Named::NotKnown) => {
                    self.selected.unsure.extend([event]);
                }
                (Ran::No, _) => {}
            }
        }
        if let Some(names) = &self.names {
            names.finish()?;
        }
        Ok(self.selected)
    }
}
