//! Answers from the rows.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, Hash32};
use orrery_store::{ConsumerView, RowBounds, RowFlow, Store, StoreError};

use super::creation::Creator;
use super::learnt::Learnt;
use super::named::Named;
use super::progress::place;
use super::rows::{CONSUMER, CREATED, Creation, LEARNT, MADE, RUNNERS, TAGS, UNREAD, Unread};

/// A snapshot of the facts.
pub struct Facts<'s> {
    view: ConsumerView<'s>,
    place: u64,
}

impl<'s> Facts<'s> {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// [`StoreError`] when the index does not exist here, or the database fails.
    pub fn new(store: &'s Store) -> Result<Self, StoreError> {
        let unknown = || StoreError::UnknownConsumer(CONSUMER.to_owned());
        // Read before the snapshot, which then has the rows of all ledgers up to this place.
        let place = place(store).ok_or_else(unknown)?;
        Ok(Self { view: store.consumer_view(CONSUMER, RowBounds::none())?, place })
    }

    /// Returns the place in the feed up to which the snapshot has the facts of all ledgers.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Returns what could not be read.
    pub fn unread(&self) -> Result<Unread, StoreError> {
        Ok(UNREAD.get(&self.view, &())?.unwrap_or_default())
    }

    /// Returns the number of the last thing that was learnt: see [`Self::learnt_after`].
    pub fn newest(&self) -> Result<u64, StoreError> {
        Ok(self.unread()?.learnt)
    }

    /// Returns by which transaction a contract was created; `None` where no stored one did.
    pub fn creation(&self, contract: &ContractId) -> Result<Option<Creation>, StoreError> {
        CREATED.get(&self.view, contract)
    }

    /// Visits the contracts that a creator made, by id, after one of them, until `visit` breaks.
    pub fn made_by(
        &self,
        creator: &Creator,
        after: Option<ContractId>,
        mut visit: impl FnMut(ContractId) -> RowFlow,
    ) -> Result<(), StoreError> {
        let from = after.map(|contract| (*creator, contract));
        MADE.scan(&self.view, creator, from.as_ref(), |(_, contract), ()| {
            if Some(contract) == after { Ok(ControlFlow::Continue(())) } else { visit(contract) }
        })?;
        Ok(())
    }

    /// Returns the entries through which contracts may run a code.
    pub fn tags_of(&self, code: &Hash32) -> Result<BTreeSet<[u8; 32]>, StoreError> {
        let mut tags = BTreeSet::new();
        TAGS.scan(&self.view, code, None, |(_, tag), ()| {
            tags.insert(tag);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(tags)
    }

    /// Whether an instance of a contract, or an event of it, has ever named this.
    pub fn has_named(&self, named: Named, contract: &ContractId) -> Result<bool, StoreError> {
        RUNNERS.has(&self.view, &(named, *contract))
    }

    /// Whether what names this may run a code, or may have run it at some time. One lookup.
    pub fn may_mean(&self, named: Named, code: &Hash32) -> Result<bool, StoreError> {
        match named {
            Named::Code(other) => Ok(other == *code),
            Named::Tag(tag) => TAGS.has(&self.view, &(*code, tag)),
        }
    }

    /// Visits the contracts that have named this, by id, until `visit` breaks.
    fn visit_runners(
        &self,
        named: Named,
        visit: &mut impl FnMut(ContractId) -> RowFlow,
    ) -> Result<bool, StoreError> {
        RUNNERS.scan(&self.view, &named, None, |(_, contract), ()| visit(contract))
    }

    /// Visits the contracts that may have run a code at some time, some of them repeatedly, until `visit` breaks.
    pub fn runners(
        &self,
        code: &Hash32,
        mut visit: impl FnMut(ContractId) -> RowFlow,
    ) -> Result<(), StoreError> {
        if self.visit_runners(Named::Code(*code), &mut visit)? {
            return Ok(());
        }
        for tag in self.tags_of(code)? {
            if self.visit_runners(Named::Tag(tag), &mut visit)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Visits the contracts that have referred to an entry (CAP-85), by id, until `visit` breaks.
    pub fn referring(
        &self,
        tag: [u8; 32],
        mut visit: impl FnMut(ContractId) -> RowFlow,
    ) -> Result<(), StoreError> {
        self.visit_runners(Named::Tag(tag), &mut visit)?;
        Ok(())
    }

    /// Visits what was learnt after a number, in the order in which it was, with its numbers, until `visit`
    /// breaks.
    pub fn learnt_after(
        &self,
        number: u64,
        visit: impl FnMut(u64, Learnt) -> RowFlow,
    ) -> Result<(), StoreError> {
        LEARNT.scan_all(&self.view, Some(&number.saturating_add(1)), visit)?;
        Ok(())
    }
}
