//! Changes of contract data, the newest first: of a key, of a contract, and of a transaction.

use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{RowFlow, StoreError, TransactionPosition};

use super::changes::Kind;
use super::entry::{DataKey, Durability};
use super::lookup::{Lookup, MOST_VISITED};
use super::rows::{CHANGED, EVICTED, Inverted, Key, KeyTag, LAST_ORDER, end_of};
use super::transactions::{Change, Found, Transaction, WrittenEntry};

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A transaction changed it.
    Changed(Kind),
    /// The ledger evicted it, after all its transactions.
    Evicted,
    /// A checkpoint has it, and nothing before says what it is.
    Found,
}

impl Event {
    /// Returns the name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed(kind) => kind.name(),
            Self::Evicted => "evicted",
            Self::Found => "found",
        }
    }
}

/// A change of a key. Entries are XDR `LedgerEntry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// The key; `None` for an eviction of a key of which nothing else is stored.
    pub key: Option<DataKey<'static>>,
    /// First bytes of the hash of the key.
    pub tag: KeyTag,
    /// What happened.
    pub event: Event,
    /// The transaction; for an eviction and a checkpoint, the position after all transactions of the
    /// ledger.
    pub position: TransactionPosition,
    /// The hash of the transaction; `None` where there is none.
    pub tx: Option<Hash32>,
    /// The entry before; `None` when there was none, or it is not known.
    pub before: Option<Vec<u8>>,
    /// The entry that holds from then on; of an eviction, the one that was evicted. `None` when there is
    /// none, or it is not known.
    pub after: Option<Vec<u8>>,
    /// Last ledger in which the entry is live; `None` when it is not known, or there is no entry.
    pub live_until: Option<LedgerSeq>,
}

/// A part of a history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PastPage {
    /// The changes, the newest first.
    pub changes: Vec<Past>,
    /// The position and key after which the history goes on; `None` at its end.
    pub next: Option<(TransactionPosition, KeyTag)>,
}

/// Maximum number of transactions that are read for one page.
const MOST_READ: usize = 2_048;

impl Lookup<'_> {
    /// Returns changes of a key up to this ledger, in the ledgers around it that are known, the newest
    /// first, after a position. The changes of removed transactions are gone. Where no more may be read
    /// ([`Self::is_cut`]), the page is not to be used.
    ///
    /// # Errors
    /// Errors of the database, or that stored bytes are damaged.
    pub fn history(
        &self,
        of: Key,
        after: Option<TransactionPosition>,
        limit: usize,
    ) -> Result<PastPage, StoreError> {
        let Some(range) = self.range(&of.0)? else { return Ok(PastPage::default()) };
        let end = TransactionPosition { ledger: self.ledger, application_order: LAST_ORDER };
        let from = after.unwrap_or(end);
        let ends = self.ends(of, range, from)?.into_iter();
        let mut ends = ends.filter(|(end, _)| Some(*end) != after).peekable();
        let (candidates, is_cut) = self.candidates(of, range, from)?;
        let (mut page, mut last) = (PastPage::default(), after);
        for at in candidates.iter().copied().filter(|at| Some(*at) != after) {
            while let Some((end, event)) = ends.next_if(|(end, _)| *end >= at) {
                page.changes.push(self.entry_at_end(of, range, end, event)?);
                last = Some(end);
            }
            if page.changes.len() >= limit {
                page.next = last.map(|last| (last, of.1));
                return Ok(page);
            }
            if let Some(transaction) = self.transaction(at)?
                && let Some(change) = transaction.changes.get(&of)
            {
                page.changes.extend(self.past_of(of, range, &transaction, change)?);
            }
            if self.is_cut() {
                return Ok(page);
            }
            last = Some(at);
        }
        if is_cut {
            page.next = candidates.last().map(|last| (*last, of.1));
            return Ok(page);
        }
        for (end, event) in ends {
            page.changes.push(self.entry_at_end(of, range, end, event)?);
        }
        Ok(page)
    }

    /// Returns the transactions of a range, from a position back, that may have changed a key; and whether
    /// there may be more.
    fn candidates(
        &self,
        of: Key,
        range: LedgerRange,
        from: TransactionPosition,
    ) -> Result<(Vec<TransactionPosition>, bool), StoreError> {
        let (mut found, mut visited, mut is_cut) = (Vec::new(), 0, false);
        self.walk(&of.1.0, from, Direction::NewestFirst, |at, changed| {
            if at.ledger < range.first {
                return Ok(ControlFlow::Break(()));
            }
            visited += 1;
            is_cut = found.len() == MOST_READ || visited > MOST_VISITED;
            if is_cut {
                // The walk goes on from the last one, whether it changed something or not.
                return Ok(ControlFlow::Break(()));
            }
            if changed.entry_differs || changed.ttl_differs || visited == MOST_VISITED {
                found.push(at);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((found, is_cut))
    }

    /// Returns changes of the data of a contract in these ledgers, the newest first, after a position. The
    /// changes of one transaction or of one ledger's evictions are on one page.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub fn changes(
        &self,
        contract: &ContractId,
        ledgers: LedgerRange,
        after: Option<TransactionPosition>,
        limit: usize,
    ) -> Result<PastPage, StoreError> {
        let Some(range) = self.range(contract)? else { return Ok(PastPage::default()) };
        let end = TransactionPosition { ledger: ledgers.last, application_order: LAST_ORDER };
        let from = after.map_or(end, |after| after.min(end));
        let (mut page, mut read, mut last) = (PastPage::default(), 0, after);
        let visit = |(_, at): (ContractId, TransactionPosition), ()| -> RowFlow {
            if at.ledger < ledgers.first.max(range.first) {
                return Ok(ControlFlow::Break(()));
            }
            if Some(at) == after || at.ledger > range.last {
                return Ok(ControlFlow::Continue(()));
            }
            if page.changes.len() >= limit || read >= MOST_READ {
                page.next = last.map(|at| (at, KeyTag::of(&Hash32([0; 32]))));
                return Ok(ControlFlow::Break(()));
            }
            read += 1;
            page.changes.extend(self.all_at(contract, range, at)?);
            last = Some(at);
            Ok(ControlFlow::Continue(()))
        };
        CHANGED.scan_back(&self.view, contract, &(*contract, from), visit)?;
        Ok(page)
    }

    /// Returns what a transaction did to contract data. Where no more may be read ([`Self::is_cut`]), some
    /// may be missing.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub fn changes_of_transaction(
        &self,
        at: TransactionPosition,
    ) -> Result<Vec<(ContractId, Past)>, StoreError> {
        let Some(transaction) = self.transaction(at)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (of, change) in &transaction.changes {
            let range = self.range(&of.0)?.unwrap_or(LedgerRange::only(at.ledger));
            let past = self.past_of(*of, range, &transaction, change)?;
            all.extend(past.map(|past| (of.0, past)));
            if self.is_cut() {
                break;
            }
        }
        Ok(all)
    }

    /// Returns all changes of a contract at one position.
    pub(super) fn all_at(
        &self,
        contract: &ContractId,
        range: LedgerRange,
        at: TransactionPosition,
    ) -> Result<Vec<Past>, StoreError> {
        let mut all = Vec::new();
        if at.application_order == LAST_ORDER {
            let evicted = self.store.evicted(at.ledger)?.unwrap_or_default();
            for evicted in evicted.iter().filter(|evicted| evicted.contract == *contract) {
                let of = (*contract, KeyTag::of(&evicted.key_hash));
                all.push(self.entry_at_end(of, range, at, Event::Evicted)?);
            }
        } else if let Some(transaction) = self.transaction(at)? {
            let first = (*contract, KeyTag([0; KeyTag::LEN]));
            let of_contract = transaction.changes.range(first..);
            for (of, change) in of_contract.take_while(|((of, _), _)| of == contract) {
                all.extend(self.past_of(*of, range, &transaction, change)?);
                if self.is_cut() {
                    break;
                }
            }
        }
        all.sort_by_key(|past| past.tag);
        Ok(all)
    }

    /// Returns the change of a key by a transaction; `None` when value and time to live stayed as they
    /// were.
    fn past_of(
        &self,
        of: Key,
        range: LedgerRange,
        transaction: &Transaction,
        change: &Change,
    ) -> Result<Option<Past>, StoreError> {
        let Some(kind) = change.kind else { return Ok(None) };
        let position = transaction.position;
        let said = change.ttl.and_then(|ttl| ttl.after).map(LedgerSeq);
        let (mut before, mut after) = match &change.written {
            Some(WrittenEntry { before: Found::Entry(before), after }) => {
                (Some(before.clone()), after.clone())
            }
            Some(WrittenEntry { after, .. }) => (None, after.clone()),
            None => (None, None),
        };
        let mut live_until = said;
        if kind != Kind::Removed {
            let is_last = change.written.is_none() && kind == Kind::Extended;
            if is_last && self.was_given(of, range, position)? >= said {
                // Another transaction of the ledger had extended it as far.
                return Ok(None);
            }
            let lacks_value = change.written.is_none();
            if lacks_value || said.is_none() {
                let state = self.state(of, range, position)?;
                live_until = said.or(state.live_until);
                if lacks_value {
                    after = state.value.into_entry();
                    before = after.clone();
                }
            }
        }
        // A dead temporary entry did not exist any more.
        if kind == Kind::Created {
            before = None;
        }
        Ok(Some(Past {
            key: Some(change.key.clone()),
            tag: of.1,
            event: Event::Changed(kind),
            position,
            tx: Some(transaction.hash),
            before,
            after,
            live_until,
        }))
    }

    /// Returns the time to live that a key had just before a position.
    fn was_given(
        &self,
        of: Key,
        range: LedgerRange,
        at: TransactionPosition,
    ) -> Result<Option<LedgerSeq>, StoreError> {
        let Some(application_order) = at.application_order.checked_sub(1) else { return Ok(None) };
        Ok(self.past(of, range, TransactionPosition { application_order, ..at })?.live_until())
    }

    /// Returns what happened to a key at the end of a ledger.
    fn entry_at_end(
        &self,
        of: Key,
        range: LedgerRange,
        position: TransactionPosition,
        event: Event,
    ) -> Result<Past, StoreError> {
        let state = self.state(of, range, position)?;
        // What was temporary is gone, and was dead before.
        let after = state.value.into_entry();
        let before = after.clone().filter(|_| event == Event::Evicted);
        let live_until = state.live_until;
        Ok(Past { key: state.key, tag: of.1, event, position, tx: None, before, after, live_until })
    }

    /// Returns what happened to a key at the ends of ledgers of a range, from a position on, the newest
    /// first.
    fn ends(
        &self,
        of: Key,
        range: LedgerRange,
        from: TransactionPosition,
    ) -> Result<Vec<(TransactionPosition, Event)>, StoreError> {
        let evictions = self.evictions(of, range, from)?;
        let mut ends: Vec<_> = evictions.into_iter().map(|at| (at, Event::Evicted)).collect();
        if let Some((ledger, _)) = self.first_found(of, range)? {
            let found = end_of(ledger);
            // It comes after the evictions of its ledger.
            if found <= from {
                ends.insert(ends.partition_point(|(at, _)| *at > found), (found, Event::Found));
            }
        }
        Ok(ends)
    }

    /// Returns the positions of the evictions of a key in a range, from one on, the newest first.
    fn evictions(
        &self,
        of: Key,
        range: LedgerRange,
        from: TransactionPosition,
    ) -> Result<Vec<TransactionPosition>, StoreError> {
        let mut found = Vec::new();
        let visit = |(_, at): (Key, Inverted), _: Durability| -> RowFlow {
            if at.0 < range.first {
                return Ok(ControlFlow::Break(()));
            }
            found.push(TransactionPosition { ledger: at.0, application_order: LAST_ORDER });
            Ok(ControlFlow::Continue(()))
        };
        EVICTED.scan(&self.view, &of, Some(&(of, Inverted(from.ledger))), visit)?;
        found.retain(|eviction| *eviction <= from);
        Ok(found)
    }
}
