//! What a contract ran before and after a transaction: exactly, or not known.
//!
//! What a change left holds until the next change, if no ledger in between is missing; what a change
//! found held since the ledger that last modified the entry, and before that as far back as no ledger
//! is missing. Another server's answer holds for the ledgers that it says. Where all these do not say it, events may
//! (`told`).

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use super::code_events::EventRows;
use super::consumer::CONSUMER;
use super::held::{Answer, answered, from_last, from_next, just_before};
pub use super::held::{Side, Steady};
use super::rows;
use super::told::{Around, Asked, Told};
use super::value::{Before, Executable, id_of, instance_key, owner_of};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{ConsumerView, RowBounds, Store, StoreError, TransactionPosition};

/// Number of changes that are read to find the last ones, in multiples of their number.
const MOST_READ: usize = 4;

/// Maximum number of contracts whose last answer a lookup keeps.
const MAX_CACHED: usize = 1024;

/// What a contract ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// The module with this hash.
    Code(Hash32),
    /// The contract of an asset.
    Asset,
    /// Nothing, or nothing that has an interface.
    Nothing,
    /// It is not known. The entry with this XDR `LedgerKey` would say.
    Unknown(Vec<u8>),
}

/// Lookups on a snapshot of the index.
pub struct Lookup<'s> {
    store: &'s Store,
    view: ConsumerView<'s>,
    /// Place in the feed up to which the snapshot has the rows of all ledgers.
    place: u64,
    /// A snapshot of what events say; `None` where nobody keeps it.
    events: Option<EventRows<'s>>,
    /// The last answer about each entry.
    answers: RefCell<HashMap<[u8; 32], Answer>>,
}

impl<'s> Lookup<'s> {
    /// Takes a snapshot, of which no more is read than `bounds` allow.
    ///
    /// # Errors
    /// [`StoreError`] when the index does not exist here, or the database fails.
    pub fn new(store: &'s Store, bounds: RowBounds<'s>) -> Result<Self, StoreError> {
        let unknown = || StoreError::UnknownConsumer(CONSUMER.to_owned());
        // Read before the snapshot, which then has the rows of all ledgers up to this place.
        let place = store.consumer(CONSUMER).ok_or_else(unknown)?.place;
        let view = store.consumer_view(CONSUMER, bounds)?;
        let events = EventRows::new(store)?;
        Ok(Self { store, view, place, events, answers: RefCell::default() })
    }

    /// Returns the store.
    pub(super) fn store(&self) -> &'s Store {
        self.store
    }

    /// Returns what events say; `None` where nobody keeps it.
    pub(super) fn events(&self) -> Option<&EventRows<'s>> {
        self.events.as_ref()
    }

    /// Returns the place in the feed up to which the snapshot has the rows of all ledgers.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Whether the snapshot has every change of an entry of `owner` in these ledgers: none is
    /// missing, and none was stored but not processed by the index.
    fn has_all(&self, owner: &ContractId, ledgers: LedgerRange) -> bool {
        self.store.is_complete_for(CONSUMER, owner, ledgers)
            && self.store.ledgers_after(self.place).within(ledgers).is_empty()
    }

    /// Returns the snapshot.
    pub fn view(&self) -> &ConsumerView<'s> {
        &self.view
    }

    /// Returns what a contract ran at one side of a transaction.
    pub fn ran(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        side: Side,
    ) -> Result<Ran, StoreError> {
        self.ran_if(contract, at, side, false)
    }

    /// As [`Self::ran`], of a contract that counts as there: the transaction has an event of it, or has changed what it
    /// holds. Where it is not known whether it was there before, that is what it ran if it was; if not, the transaction
    /// has created it, with the code that it had before it changed any.
    pub fn ran_there(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        side: Side,
    ) -> Result<Ran, StoreError> {
        self.ran_if(contract, at, side, true)
    }

    fn ran_if(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        side: Side,
        is_there: bool,
    ) -> Result<Ran, StoreError> {
        let Some(instance) = instance_key(contract) else { return Ok(Ran::Nothing) };
        let asked = Asked { owner: contract, key: &instance, at, side, is_there };
        let named = match self.held(asked)? {
            None => return Ok(Ran::Unknown(instance)),
            Some(Some(Executable::Reference(key))) => key,
            Some(other) => return Ok(ran(other)),
        };
        let Some(owner) = owner_of(&named) else { return Ok(Ran::Nothing) };
        let asked = Asked { owner: &owner, key: &named, at, side, is_there: false };
        Ok(match self.held(asked)? {
            None => Ran::Unknown(named),
            Some(target) => ran(target),
        })
    }

    /// Returns what an entry with this XDR `LedgerKey` names at one side of a transaction: an instance, or
    /// one to which instances refer. `Some(None)` when there is no such entry; `None` when it is not known.
    pub fn named(
        &self,
        ledger_key: &[u8],
        at: TransactionPosition,
        side: Side,
    ) -> Result<Option<Option<Executable>>, StoreError> {
        match owner_of(ledger_key) {
            Some(owner) => {
                self.held(Asked { owner: &owner, key: ledger_key, at, side, is_there: false })
            }
            None => Ok(None),
        }
    }

    /// Returns what an entry with this XDR `LedgerKey` names after a transaction, as [`Self::named`], if the changes
    /// up to this one say it: what later ones find does not count.
    pub fn shown(
        &self,
        ledger_key: &[u8],
        at: TransactionPosition,
    ) -> Result<Option<Option<Executable>>, StoreError> {
        let Some(owner) = owner_of(ledger_key) else { return Ok(None) };
        let last = rows::at_or_before(&self.view, &id_of(ledger_key), at)?;
        let is_complete = |first, last| {
            let ledgers = LedgerRange { first, last };
            self.has_all(&owner, ledgers).then_some(ledgers)
        };
        Ok(from_last(last.as_ref(), at, is_complete).map(|(_, value)| value))
    }

    /// Returns transactions around one among which a contract ran the same, before and after each, if that
    /// was just looked up.
    pub fn steady(&self, contract: &ContractId, at: TransactionPosition) -> Option<Steady> {
        let id = id_of(&instance_key(contract)?);
        let answers = self.answers.borrow();
        let answer = answers.get(&id).filter(|it| it.steady.has(at))?;
        // Where it refers to another entry, that one may have changed.
        let refers = matches!(answer.value, Some(Executable::Reference(_)));
        (!refers).then_some(answer.steady)
    }

    /// Returns what a contract is known to have run, the latest first: what the last changes of its instance,
    /// and of entries that it refers to, say, `most` at the most. What it runs after `last` comes first,
    /// also when that is not known.
    pub fn ran_ever(
        &self,
        contract: &ContractId,
        last: TransactionPosition,
        most: usize,
    ) -> Result<Vec<Ran>, StoreError> {
        let Some(instance) = instance_key(contract) else { return Ok(Vec::new()) };
        let mut found = vec![self.ran(contract, last, Side::After)?];
        let (mut positions, mut entries) = (BTreeSet::new(), Vec::new());
        if let Some(events) = self.events() {
            events.visit_latest(contract, |position, update| {
                positions.insert(position);
                entries.extend(update.references().map(id_of));
                Ok(match positions.len() < most {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
        }
        entries.push(id_of(&instance));
        // What a contract has referred to, and how often that was changed, is up to its author.
        while let Some(entry) = entries.pop()
            && positions.len() < MOST_READ * most
        {
            for (position, change) in rows::latest(&self.view, &entry, most)? {
                positions.insert(position);
                if entry == id_of(&instance) {
                    entries.extend(change.references().map(id_of));
                }
            }
        }
        for position in positions.into_iter().rev().take(most) {
            for side in [Side::After, Side::Before] {
                let ran = self.ran(contract, position, side)?;
                if !matches!(ran, Ran::Unknown(_)) && !found.contains(&ran) {
                    found.push(ran);
                }
            }
        }
        Ok(found)
    }

    /// Returns the XDR `LedgerKey`s of what a contract refers to after transactions of a ledger that change that,
    /// or referred to just before them.
    pub fn references_within(
        &self,
        contract: &ContractId,
        ledger: LedgerSeq,
    ) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let mut found = BTreeSet::new();
        let Some(instance) = instance_key(contract) else { return Ok(found) };
        let id = id_of(&instance);
        let mut at = TransactionPosition { ledger, application_order: 0 };
        while let Some((next, change)) = rows::after(&self.view, &id, at)?
            && next.ledger == ledger
        {
            found.extend(change.references().map(<[u8]>::to_vec));
            at = next;
        }
        Ok(found)
    }

    /// Returns whether whatever becomes known of what a contract ran is the same for all its
    /// transactions after `from` and up to `to`: no ledger is missing in between, and no change of
    /// the entries that say it is.
    pub fn is_same_between(
        &self,
        contract: &ContractId,
        from: TransactionPosition,
        to: TransactionPosition,
    ) -> Result<bool, StoreError> {
        let ledgers = LedgerRange { first: from.ledger, last: to.ledger };
        let is_unchanged = |owner: &ContractId, ledger_key: &[u8]| {
            let last = rows::at_or_before(&self.view, &id_of(ledger_key), to)?;
            let is_before = last.is_none_or(|(changed, _)| changed <= from);
            Ok::<_, StoreError>(is_before && self.has_all(owner, ledgers))
        };
        let Some(instance) = instance_key(contract) else { return Ok(true) };
        if !is_unchanged(contract, &instance)? {
            return Ok(false);
        }
        let (at, side) = (to, Side::Before);
        let asked = Asked { owner: contract, key: &instance, at, side, is_there: false };
        let Some(Some(Executable::Reference(key))) = self.held(asked)? else {
            return Ok(true);
        };
        owner_of(&key).map_or(Ok(true), |owner| is_unchanged(&owner, &key))
    }

    /// Returns what an entry held at one side of a transaction, where `Some(None)` means that there
    /// was no such entry; `None` when it is not known.
    fn held(&self, asked: Asked<'_>) -> Result<Option<Option<Executable>>, StoreError> {
        let Asked { owner, key, at, side, .. } = asked;
        let id = id_of(key);
        if let Some(answer) = self.answers.borrow().get(&id).filter(|it| it.steady.has(at)) {
            return Ok(Some(answer.value.clone()));
        }
        let last = rows::at_or_before(&self.view, &id, at)?;
        let here = last.as_ref().filter(|(changed, _)| *changed == at);
        if let Some((_, change)) = here {
            match (side, &change.before) {
                (Side::After, _) => return Ok(Some(change.after.clone())),
                (Side::Before, Before::Absent) => return Ok(Some(None)),
                (Side::Before, Before::Held { executable, .. }) => {
                    return Ok(Some(Some(executable.clone())));
                }
                // The change before it may say it.
                (Side::Before, Before::Unknown) => {}
            }
        }
        let next = match here {
            Some(here) => Some(here.clone()),
            None => rows::after(&self.view, &id, at)?,
        };
        let last = match last.filter(|(changed, _)| *changed < at) {
            None => rows::at_or_before(&self.view, &id, just_before(at))?,
            last => last,
        };
        let is_complete = |first, last| {
            let ledgers = LedgerRange { first, last };
            self.has_all(owner, ledgers).then_some(ledgers)
        };
        let found = from_last(last.as_ref(), at, is_complete)
            .or_else(|| from_next(next.as_ref(), at, is_complete));
        let (after, before) = (last.as_ref().map(|(at, _)| *at), next.as_ref().map(|(at, _)| *at));
        let found = match found {
            Some(found) => Some(found),
            None => answered(self.store, key, (at, after), is_complete)?,
        };
        let Some((ledgers, value)) = found else { return self.told(asked, &Around { last, next }) };
        let steady = Steady { after, before, ledgers };
        self.remember(id, Answer { steady, value: value.clone() });
        Ok(Some(value))
    }

    /// Returns what an entry held, as events say it, where transactions do not.
    fn told(
        &self,
        asked: Asked<'_>,
        around: &Around,
    ) -> Result<Option<Option<Executable>>, StoreError> {
        let Some(events) = &self.events else { return Ok(None) };
        let (store, view, place) = (self.store, &self.view, self.place);
        let found = Told { store, view, place, events }.held(asked, around)?;
        Ok(found.map(|(value, steady)| {
            if let Some(steady) = steady {
                self.remember(id_of(asked.key), Answer { steady, value: Some(value.clone()) });
            }
            Some(value)
        }))
    }

    /// Keeps an answer about an entry.
    fn remember(&self, id: [u8; 32], answer: Answer) {
        let mut answers = self.answers.borrow_mut();
        if answers.len() >= MAX_CACHED {
            answers.clear();
        }
        answers.insert(id, answer);
    }
}

/// Returns what an executable is that is no reference.
pub(super) fn ran(executable: Option<Executable>) -> Ran {
    match executable {
        Some(Executable::Code(hash)) => Ran::Code(hash),
        Some(Executable::Asset) => Ran::Asset,
        // A reference to a reference does not exist.
        Some(Executable::Reference(_) | Executable::Other) | None => Ran::Nothing,
    }
}
