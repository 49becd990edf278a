//! Determines what retention may remove while consumers still need it, and records what they lose.

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};

use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::StoreError;
use crate::state::consumers::spec::{Needs, is_second_build};
use crate::state::consumers::states::{ConsumerStates, Update};
use crate::state::removed::ledgers_below;
use crate::state::store::Store;

/// First ledgers that retention keeps, for each kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Floors {
    pub raw_ledgers: LedgerSeq,
    pub events: LedgerSeq,
    pub transactions: LedgerSeq,
}

impl Floors {
    /// Returns the highest floor among the kinds of data in `needs`.
    pub(crate) fn of(&self, needs: Needs) -> LedgerSeq {
        let of = |needed: bool, floor: LedgerSeq| if needed { floor } else { LedgerSeq(0) };
        of(needs.raw_ledgers, self.raw_ledgers)
            .max(of(needs.events, self.events))
            .max(of(needs.transactions, self.transactions))
    }
}

impl Store {
    /// Returns what may be removed now. Retention keeps ledgers that active consumers have not
    /// processed yet, up to [`Retention::wait_for_consumers`] ledgers beyond its limits; for a rebuild it
    /// waits until that is over, because the rows that are replaced have these ledgers. Ledgers
    /// below the floors that a consumer, active or not, has not processed are lost to it, if they are
    /// among the `covered` ones; that is durable when this returns. A prune must call this before it
    /// removes anything, and remove nothing of other ledgers. Returns `None` while there are ledgers
    /// that are not durable yet.
    pub(crate) fn floors(
        &self,
        retention: &Retention,
        latest: LedgerSeq,
        covered: &LedgerSet,
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
                let updates = self.losses(known, &floors, covered);
                // Consumers no longer wait for ledgers that were just lost, which may raise the
                // floor of another kind: compute again.
                found = updates.is_empty().then_some(floors);
                Ok(Some(updates))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Returns the first ledger of a range that an active consumer has not processed and of which
    /// it needs something. For a rebuild the range begins with the first ledger.
    fn first_awaited(
        &self,
        known: &ConsumerStates,
        range: LedgerRange,
        needed: fn(Needs) -> bool,
    ) -> Option<LedgerSeq> {
        let coverage = self.coverage.read();
        let waiting = known.all().filter(|(_, it)| it.active && needed(it.needs));
        let firsts = waiting.filter_map(|(name, consumer)| {
            let ranges = coverage.ranges_after(consumer.place);
            let first = if is_second_build(name) { LedgerSeq(0) } else { range.first };
            let cut = |ledgers: LedgerRange| LedgerRange {
                first: ledgers.first.max(first),
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

    /// Returns updates that record what consumers lose below these floors. They include progress
    /// that is not written yet and on which the losses depend.
    fn losses(&self, known: &ConsumerStates, floors: &Floors, covered: &LedgerSet) -> Vec<Update> {
        let coverage = self.coverage.read();
        let mut updates = Vec::new();
        for (name, consumer) in known.all() {
            let pruned = covered.within(ledgers_below(floors.of(consumer.needs)));
            if pruned.is_empty() {
                continue;
            }
            let mut seen = pruned.clone();
            coverage.ranges_after(consumer.place).for_each(|unseen| seen.remove(unseen));
            seen.insert_all(&consumer.ahead.done);
            let mut unseen = pruned;
            unseen.remove_all(&seen);
            let mut changed = consumer.clone();
            changed.lost.insert_all(&unseen);
            if changed.lost != consumer.lost || consumer.dirty {
                updates.push((name.clone(), Some(changed)));
            }
        }
        updates
    }

    /// Returns the first ledger whose raw form is stored, if any.
    pub fn first_raw(&self) -> Result<Option<LedgerSeq>, StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::LedgerXdr)?;
        rows.seek_to_first();
        let first = rows.key().and_then(LedgerKey::decode).map(|key| key.0);
        rows.status()?;
        Ok(first)
    }
}

/// Number of the newest ledgers that are kept; `None` keeps all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Number of ledgers whose raw form is kept.
    pub raw_ledgers: Option<u32>,
    /// Number of ledgers whose events are kept.
    pub events: Option<u32>,
    /// Number of ledgers whose smart-contract transactions are kept.
    pub transactions: Option<u32>,
    /// Number of further ledgers that are kept while an active consumer of the feed has yet to see
    /// them.
    pub wait_for_consumers: u32,
}

/// Returns the first ledger that is kept when the newest `kept` ledgers up to `latest` are; `None`
/// keeps all.
pub fn first_kept(kept: Option<u32>, latest: LedgerSeq) -> LedgerSeq {
    // The last possible sequence has no successor: that ledger is kept even when `kept` is 0.
    let beyond = u64::from(latest.0) + 1;
    let first = kept.map_or(0, |kept| beyond.saturating_sub(u64::from(kept)));
    LedgerSeq(u32::try_from(first).unwrap_or(u32::MAX))
}
