//! What retention may remove, with consumers that are not through with it; and what they lose.

use super::super::{Retention, Store, StoreError, first_kept};
use super::Needs;
use super::state::{self, Known, Update};
use crate::domain::{LedgerRange, LedgerSeq, LedgerSet};

/// The first ledgers of which something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Floors {
    pub raw_ledgers: LedgerSeq,
    pub events: LedgerSeq,
    pub transactions: LedgerSeq,
}

impl Floors {
    /// The highest that concerns who needs this.
    pub(super) fn of(&self, needs: Needs) -> LedgerSeq {
        let of = |needed: bool, floor: LedgerSeq| if needed { floor } else { LedgerSeq(0) };
        of(needs.raw_ledgers, self.raw_ledgers)
            .max(of(needs.events, self.events))
            .max(of(needs.transactions, self.transactions))
    }
}

impl Store {
    /// What may be removed now. Retention keeps what active consumers have yet to see, so many ledgers more
    /// than it would at the most. What goes all the same is lost to them, and to those that are not active:
    /// that is written when this returns. To be called by whoever prunes, before anything is removed; nothing
    /// while there are ledgers that are not durable yet.
    pub(in super::super) fn floors(
        &self,
        retention: &Retention,
        latest: LedgerSeq,
    ) -> Result<Option<Floors>, StoreError> {
        if self.database.has_unlogged() {
            return Ok(None);
        }
        loop {
            let mut found = None;
            self.consumers.change(&self.database, self.database.batch(), |known, _| {
                let floor = |kept: Option<u32>, needed: fn(Needs) -> bool| {
                    let floor = first_kept(kept, latest);
                    let lowest = LedgerSeq(floor.0.saturating_sub(retention.wait_for_consumers));
                    let waits = LedgerRange { first: lowest, last: floor };
                    self.first_awaited(known, waits, needed).unwrap_or(floor)
                };
                let floors = Floors {
                    raw_ledgers: floor(retention.raw_ledgers, |needs| needs.raw_ledgers),
                    events: floor(retention.events, |needs| needs.events),
                    transactions: floor(retention.transactions, |needs| needs.transactions),
                };
                let updates = self.losses(known, &floors);
                // Nobody waits any more for what is lost: there may be more to remove of another kind.
                found = updates.is_empty().then_some(floors);
                Ok(Some(updates))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// The first ledger of a range that an active consumer needs something of and has yet to see.
    fn first_awaited(
        &self,
        known: &Known,
        range: LedgerRange,
        needed: fn(Needs) -> bool,
    ) -> Option<LedgerSeq> {
        let coverage = self.coverage.read();
        let waiting = known.all().filter(|(_, it)| it.active && needed(it.needs));
        let firsts = waiting.filter_map(|(_, consumer)| {
            let ranges = coverage.ranges_after(consumer.place);
            let cut = |ledgers: LedgerRange| LedgerRange {
                first: ledgers.first.max(range.first),
                last: ledgers.last.min(range.last),
            };
            let ranges = ranges.map(cut).filter(|ledgers| !ledgers.is_empty());
            let mut left: LedgerSet = ranges.collect();
            left.remove_all(&consumer.lost);
            left.remove_all(&consumer.ahead.done);
            left.ranges().first().map(|ledgers| ledgers.first)
        });
        firsts.min()
    }

    /// What consumers lose with everything below these floors, and how far they have got where that decides
    /// about it and is not written yet.
    fn losses(&self, known: &Known, floors: &Floors) -> Vec<Update> {
        let coverage = self.coverage.read();
        let mut updates = Vec::new();
        for (name, consumer) in known.all() {
            let gone = state::before(floors.of(consumer.needs));
            if gone.is_empty() {
                continue;
            }
            let mut unseen: LedgerSet = coverage.ranges_after(consumer.place).collect();
            unseen.remove_all(&consumer.ahead.done);
            let mut changed = consumer.clone();
            changed.lost.insert_all(&unseen.within(gone));
            if changed.lost != consumer.lost || consumer.dirty {
                updates.push((name.clone(), Some(changed)));
            }
        }
        updates
    }
}
