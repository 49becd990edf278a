//! Whether an event belongs to a project with selectors.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use stellar_xdr::ScVal;

use super::index::{Flags, MemberIndex};
use super::selectors::Selectors;
use crate::ProgramError;
use crate::events::KnownInterface;
use crate::events::logged::{LoggedEvent, LoggedEvents};
use crate::events::values::values;
use crate::manifest::Manifest;
use orrery_executables::lookup::{Lookup, Ran, Side};
use orrery_executables::updated_codes;
use orrery_interfaces::NamedEvent;
use orrery_ledger::domain::{ContractId, Hash32, ProgramId};
use orrery_store::{RowBounds, Store, StoreError, TransactionPosition};

/// Number of kinds of events of which it is remembered whether they may have a name of a project.
const MOST_REMEMBERED: usize = 4_096;

/// Whether the events of a contract in a transaction belong to a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    /// They do.
    Yes,
    /// They do not.
    No,
    /// It is not known which code the contract ran.
    NotKnown,
}

/// The codes that events of a transaction name as those of their contracts: there may be more than the
/// ones before and after the transaction.
#[derive(Debug, Default)]
pub struct Updates(BTreeMap<ContractId, BTreeSet<Hash32>>);

impl Updates {
    /// Reads those of the events of a transaction.
    pub fn of(events: &LoggedEvents<'_>) -> Result<Self, ProgramError> {
        let mut updates = Self::default();
        for event in events.all_events() {
            let event = event?;
            if event.is_system {
                updates.add(event.contract, event.topics.iter());
            }
        }
        Ok(updates)
    }

    /// Adds those that a system event with these topics, each XDR, names.
    pub fn add<'t>(&mut self, contract: ContractId, topics: impl Iterator<Item = &'t [u8]>) {
        let codes: Vec<Hash32> = updated_codes(topics).collect();
        if !codes.is_empty() {
            self.0.entry(contract).or_default().extend(codes);
        }
    }

    fn have(&self, contract: &ContractId, code: &Hash32) -> bool {
        self.0.get(contract).is_some_and(|codes| codes.contains(code))
    }
}

/// Says which events belong to a project.
pub struct Selection<'a> {
    program: ProgramId,
    /// `None` for a project without selectors, whose contracts alone are read.
    of: Option<(&'a MemberIndex, &'a Selectors)>,
    /// `None` where no contract is selected by what it runs.
    lookup: Option<Lookup<'a>>,
    /// Whether events may have a name of the project, by interfaces and first topics.
    may_be_named: RefCell<HashMap<Vec<u8>, bool>>,
}

impl<'a> Selection<'a> {
    pub fn new(
        store: &'a Store,
        index: &'a MemberIndex,
        manifest: &'a Manifest,
    ) -> Result<Self, ProgramError> {
        let selectors = manifest.events.as_ref().map(|project| &project.selectors);
        let of = selectors.filter(|it| !it.is_empty()).map(|selectors| (index, selectors));
        let has_codes = of.is_some_and(|(_, selectors)| !selectors.wasm.is_empty());
        let lookup = has_codes.then(|| Lookup::new(store, RowBounds::none())).transpose()?;
        let may_be_named = RefCell::default();
        Ok(Self { program: manifest.id, of, lookup, may_be_named })
    }

    /// Returns the names by which the project selects events of any contract.
    pub fn names(&self) -> &[String] {
        self.of.map_or(&[], |(_, selectors)| selectors.all.as_slice())
    }

    /// Whether an event is selected by what it is called, whatever contract emitted it.
    pub fn selects(&self, event: &NamedEvent<'_>) -> bool {
        self.of.is_some_and(|(_, selectors)| selectors.selects_by_name(event))
    }

    /// Whether an event may have such a name, by the interfaces in which its declaration is looked for and its
    /// first topics. Most events have none, and are not decoded.
    pub fn may_be_named(&self, event: &LoggedEvent<'_>, known: &[&KnownInterface]) -> bool {
        let mut key = Vec::with_capacity(128);
        known.iter().for_each(|known| key.extend_from_slice(known.hash.as_bytes()));
        key.push(event.topics.iter().count().min(255) as u8);
        event.topics.iter().take(2).for_each(|topic| key.extend_from_slice(topic));
        if let Some(may) = self.may_be_named.borrow().get(&key) {
            return *may;
        }
        let selects =
            |name: &str| self.of.is_some_and(|(_, selectors)| selectors.selects_all_called(name));
        let declares =
            known.iter().any(|known| known.interface().event_names().into_iter().any(selects));
        let may = declares || {
            let ((topics, _), void) = (values(event), ScVal::Void);
            let named = NamedEvent::of(None, &topics, &void);
            named.is_some_and(|named| self.selects(&named))
        };
        let mut remembered = self.may_be_named.borrow_mut();
        if remembered.len() >= MOST_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, may);
        may
    }

    /// Whether the project names a contract itself.
    pub fn is_named(&self, contract: &ContractId) -> bool {
        self.of.is_none_or(|(index, _)| index.flags(self.program, contract).has(Flags::NAMED))
    }

    /// Returns whether the events of a contract in a transaction belong to the project. `updates` are those of the transaction.
    pub fn of(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        updates: &Updates,
    ) -> Result<Selected, ProgramError> {
        let Some((index, selectors)) = self.of else { return Ok(Selected::Yes) };
        let flags = index.flags(self.program, contract);
        if flags.are_whole() {
            return Ok(Selected::Yes);
        }
        match &self.lookup {
            Some(lookup) if flags.has(Flags::MAY_RUN) => {
                ran_there(lookup, &selectors.wasm, contract, at, updates)
            }
            _ => Ok(Selected::No),
        }
    }
}

/// Whether a contract ran one of these codes before, in or after a transaction.
pub fn ran(
    lookup: &Lookup<'_>,
    codes: &[Hash32],
    contract: &ContractId,
    at: TransactionPosition,
    updates: &Updates,
) -> Result<Selected, ProgramError> {
    ran_by((codes, contract, updates), |side| lookup.ran(contract, at, side))
}

/// As [`ran`], of a transaction that has an event of the contract, or has changed what it holds.
pub fn ran_there(
    lookup: &Lookup<'_>,
    codes: &[Hash32],
    contract: &ContractId,
    at: TransactionPosition,
    updates: &Updates,
) -> Result<Selected, ProgramError> {
    // What it ran before a transaction that has created it, it runs after it, or the updates name it.
    ran_by((codes, contract, updates), |side| lookup.ran_there(contract, at, side))
}

fn ran_by(
    (codes, contract, updates): (&[Hash32], &ContractId, &Updates),
    ran: impl Fn(Side) -> Result<Ran, StoreError>,
) -> Result<Selected, ProgramError> {
    if codes.iter().any(|code| updates.have(contract, code)) {
        return Ok(Selected::Yes);
    }
    let mut selected = Selected::No;
    for side in [Side::Before, Side::After] {
        match ran(side)? {
            Ran::Code(code) if codes.contains(&code) => return Ok(Selected::Yes),
            Ran::Unknown(_) => selected = Selected::NotKnown,
            Ran::Code(_) | Ran::Asset | Ran::Nothing => {}
        }
    }
    Ok(selected)
}
