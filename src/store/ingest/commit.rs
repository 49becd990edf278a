//! Stores ledgers atomically, one or several with one write.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq, LedgerSet, NodeId};
use orrery_ledger::verify::{Link, verify_link, verify_repeat};

use super::index_rows::IndexRows;
use super::ledger_batch;
use super::prepare::PreparedLedger;
use crate::db::database::Batch;
use crate::db::writes::BatchEnds;
use crate::encoding::columns::{Family, LedgerKey};
use crate::encoding::error::StoreError;
use crate::state::contract_filters;
use crate::state::coverage::{Added, Coverage};
use crate::state::marks::Marks;
use crate::state::removed::Removed;
use crate::state::store::{Store, Writer};
use crate::state::totals::{TOTALS_ROW, Totals};

/// When a stored ledger is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Durable when the call returns.
    Synced,
    /// Durable after the next [`Store::flush`]; a crash before that loses whole ledgers, newest
    /// first. For imports, which can be repeated.
    Deferred,
}

/// Outcome of storing a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// The ledger was not stored before.
    New,
    /// The same ledger was stored already; nothing changed, except that its signature may have been
    /// recorded.
    AlreadyStored,
}

/// Ledgers about to be written, and the state of the store after that write.
struct Staged<'a> {
    batch: Batch<'a>,
    index: IndexRows,
    coverage: Coverage,
    /// Changes that were applied to `coverage`.
    added: Vec<Added>,
    /// Signatures of ledgers that were stored already, which were added to `coverage`.
    signed: Vec<(LedgerSeq, NodeId)>,
    totals: Totals,
    /// Ledgers whose raw form is not kept.
    without_raw: LedgerSet,
    /// Marks of the ledgers in `added`.
    marks: Marks,
    links: BTreeMap<LedgerSeq, Link>,
    /// Id of the first event of each ledger in `added`, or of the next one if it has none.
    first_events: Vec<EventId>,
}

/// Why the ledgers that are not staged are not.
struct Checked {
    /// The ledger is refused; those before it are to be written.
    refused: Result<(), StoreError>,
    /// Nothing can be written.
    written: Result<(), StoreError>,
}

impl Store {
    /// Stores a ledger atomically. It need not be adjacent to the ledgers stored before; if a
    /// neighbour is stored, their hashes must link.
    ///
    /// # Errors
    /// [`StoreError::Chain`] when another ledger with this sequence is stored or a neighbour does
    /// not link, and errors of the database.
    pub fn commit(
        &self,
        ledger: PreparedLedger,
        durability: Durability,
    ) -> Result<Committed, StoreError> {
        let (outcomes, done) = self.commit_all(vec![ledger], durability);
        done.map(|()| outcomes.first().copied().unwrap_or(Committed::AlreadyStored))
    }

    /// Stores ledgers as consecutive calls of [`Self::commit`] would, but with one write, which is
    /// faster. Returns the outcomes of the ledgers before the first one that failed, and the error
    /// of that one.
    pub fn commit_all(
        &self,
        ledgers: Vec<PreparedLedger>,
        durability: Durability,
    ) -> (Vec<Committed>, Result<(), StoreError>) {
        let mut writer = self.writer.lock();
        if let Err(error) = self.reload_if_in_doubt(&mut writer) {
            return (Vec::new(), Err(error));
        }
        let durable = self.last_durable_event();
        let mut staged = self.nothing_staged(&ledgers, &mut writer);
        let mut outcomes = Vec::with_capacity(ledgers.len());
        let Checked { refused, written } = self.stage_all(&mut staged, &ledgers, &mut outcomes);
        let first_events = std::mem::take(&mut staged.first_events);
        let removals = self.database.event_block_removals();
        if let Err(error) = written.and_then(|()| self.write(staged, durability, &mut writer)) {
            let stored = outcomes.iter().take_while(|it| **it == Committed::AlreadyStored);
            let durable = durability == Durability::Deferred || !self.database.has_pending();
            outcomes.truncate(if durable { stored.count() } else { 0 });
            return (outcomes, Err(error));
        }
        if durability == Durability::Synced {
            writer.newest_synced = Some(Instant::now());
        }
        drop(writer);
        let new = ledgers.into_iter().zip(&outcomes);
        let new = new.filter(|(_, outcome)| **outcome == Committed::New).map(|(ledger, _)| ledger);
        // Before listeners, which use it, are notified of the new ledgers.
        for (ledger, first_event) in new.zip(first_events) {
            self.gathered.insert(ledger.sequence, ledger.gathered);
            // The events of an import are mostly not read soon.
            if durability == Durability::Synced {
                self.database.cache_event_blocks(first_event, ledger.blocks, removals);
            }
        }
        if outcomes.contains(&Committed::New) || self.last_durable_event() > durable {
            self.notify_listeners();
        }
        (outcomes, refused)
    }

    /// Begins a write of these ledgers.
    fn nothing_staged(&self, ledgers: &[PreparedLedger], writer: &mut Writer) -> Staged<'_> {
        let bytes = ledgers.iter().map(PreparedLedger::bytes).sum();
        Staged {
            batch: self.database.batch_with_capacity(bytes),
            index: IndexRows::default(),
            coverage: writer.coverage.take().unwrap_or_else(|| self.coverage.read().clone()),
            added: Vec::with_capacity(ledgers.len()),
            signed: Vec::new(),
            totals: *self.totals.read(),
            without_raw: LedgerSet::default(),
            marks: Marks::default(),
            links: BTreeMap::new(),
            first_events: Vec::with_capacity(ledgers.len()),
        }
    }

    /// Checks and stages ledgers up to the first one for which that fails, and adds the outcomes of those that
    /// are not refused.
    fn stage_all(
        &self,
        staged: &mut Staged<'_>,
        ledgers: &[PreparedLedger],
        outcomes: &mut Vec<Committed>,
    ) -> Checked {
        for ledger in ledgers {
            let outcome = match self.check(staged, ledger) {
                Ok(outcome) => outcome,
                Err(error) => return Checked { refused: Err(error), written: Ok(()) },
            };
            outcomes.push(outcome);
            let written = match outcome {
                Committed::New => self.stage(staged, ledger),
                Committed::AlreadyStored => stage_signature(staged, ledger.sequence, ledger.signer),
            };
            if written.is_err() {
                return Checked { refused: Ok(()), written };
            }
        }
        Checked { refused: Ok(()), written: Ok(()) }
    }

    /// Time since ledgers were last stored with [`Durability::Synced`]; `None` when none were.
    pub fn time_since_synced(&self) -> Option<Duration> {
        self.writer.lock().newest_synced.map(|at| at.elapsed())
    }

    /// Returns whether a ledger is new, or an error when it contradicts stored or staged ledgers.
    fn check(&self, staged: &Staged<'_>, ledger: &PreparedLedger) -> Result<Committed, StoreError> {
        let link = ledger.link();
        if let Some(stored) = self.link(staged, link.sequence)? {
            verify_repeat(stored.hash, &link)?;
            return Ok(Committed::AlreadyStored);
        }
        if let Some(previous) = link.sequence.previous()
            && let Some(previous) = self.link(staged, previous)?
        {
            verify_link(&previous, &link)?;
        }
        if let Some(next) = link.sequence.next()
            && let Some(next) = self.link(staged, next)?
        {
            verify_link(&link, &next)?;
        }
        Ok(Committed::New)
    }

    /// Returns the hash chain link of a stored or staged ledger.
    fn link(&self, staged: &Staged<'_>, sequence: LedgerSeq) -> Result<Option<Link>, StoreError> {
        if let Some(link) = staged.links.get(&sequence) {
            return Ok(Some(*link));
        }
        let row = self.ledger(sequence)?;
        Ok(row.map(|row| Link { sequence, hash: row.hash, previous_hash: row.previous_hash }))
    }

    fn stage(&self, staged: &mut Staged<'_>, ledger: &PreparedLedger) -> Result<(), StoreError> {
        let Staged {
            batch,
            index,
            coverage,
            added,
            totals,
            without_raw,
            marks,
            links,
            first_events,
            ..
        } = staged;
        if !ledger.rows.are_for(&self.indexes) {
            let sentence = "the ledger was prepared for other indexes than this store has";
            return Err(StoreError::Other(sentence.to_owned()));
        }
        let newest = coverage.latest().is_none_or(|latest| latest < ledger.sequence);
        let change = coverage.change(ledger.sequence, ledger.sums(), ledger.signer);
        let first_event = coverage.next_event();
        ledger_batch::compose(batch, index, ledger, first_event, &change)?;
        first_events.push(first_event);
        let filter = coverage.filters.is_new(&ledger.filter).then(|| ledger.filter.clone());
        let one = Added { change, filter };
        coverage.add(&one);
        if let Some(filter) = &one.filter {
            let place = coverage.last_place().to_be_bytes();
            batch.put_raw(Family::Listings, &place, &contract_filters::encode(filter))?;
        }
        added.push(one);
        *totals = totals.with(&ledger.row, newest);
        if ledger.raw.is_none() {
            without_raw.insert(LedgerRange::only(ledger.sequence));
        }
        marks.insert_all(&ledger.marks());
        links.insert(ledger.sequence, ledger.link());
        Ok(())
    }

    fn write(
        &self,
        staged: Staged<'_>,
        durability: Durability,
        writer: &mut Writer,
    ) -> Result<(), StoreError> {
        let Staged {
            mut batch, index, coverage, added, signed, totals, without_raw, marks, ..
        } = staged;
        if added.is_empty() && signed.is_empty() {
            writer.coverage = Some(coverage);
            // All are stored already, but perhaps by an import that has not flushed yet.
            return match durability {
                Durability::Synced => self.make_events_durable().map(drop),
                Durability::Deferred => Ok(()),
            };
        }
        index.write(&mut batch)?;
        batch.put_raw(Family::Meta, TOTALS_ROW, &totals.encode())?;
        let removed = self.removed_with(&without_raw, &mut batch)?;
        let marks = self.marks_with(&marks, &mut batch)?;
        let (last, next_event) = (last_ingested(&coverage), coverage.next_event());
        batch.set_stored(BatchEnds { last, next_event });
        let change = self.generations.change();
        let written = match durability {
            Durability::Synced => self.database.write_synced(batch),
            Durability::Deferred => self.database.write_deferred(batch),
        };
        if let Err(error) = written {
            drop(change);
            self.mark_in_doubt(writer);
            return Err(error);
        }
        self.publish(&added, signed);
        *self.totals.write() = totals;
        if let Some(removed) = removed {
            *self.removed.write() = removed;
        }
        if let Some(marks) = marks {
            *self.marks.write() = marks;
        }
        if durability == Durability::Synced {
            self.durable_events.advance_to(coverage.last_event());
        }
        writer.coverage = Some(coverage);
        Ok(())
    }

    /// Lets readers see ledgers that were written, and signatures.
    fn publish(&self, added: &[Added], signed: Vec<(LedgerSeq, NodeId)>) {
        let mut published = self.coverage.write();
        added.iter().for_each(|one| published.add(one));
        for (ledger, signer) in signed {
            published.sign(ledger, signer);
        }
    }

    /// Adds the change for ledgers whose raw form is not kept to a batch, and returns the sets to
    /// keep in memory once it is written; `None` when nothing changes.
    fn removed_with(
        &self,
        without_raw: &LedgerSet,
        batch: &mut Batch<'_>,
    ) -> Result<Option<Removed>, StoreError> {
        if without_raw.is_empty() {
            return Ok(None);
        }
        let before = self.removed.read();
        let mut removed = before.clone();
        removed.raw_ledgers.insert_all(without_raw);
        removed.put_changes(&before, batch)?;
        Ok(Some(removed))
    }

    /// Adds the change for ledgers with marks to a batch, and returns the marks to keep in memory once it
    /// is written; `None` when nothing changes.
    pub(crate) fn marks_with(
        &self,
        added: &Marks,
        batch: &mut Batch<'_>,
    ) -> Result<Option<Marks>, StoreError> {
        if added.is_empty() {
            return Ok(None);
        }
        let before = self.marks.read();
        let mut marks = before.clone();
        marks.insert_all(added);
        marks.put_additions(&before, batch)?;
        Ok(Some(marks))
    }

    /// Must be called after a write of ledgers or totals failed: reads back which ledgers are
    /// stored. If that fails too, the next write repeats it.
    pub(crate) fn mark_in_doubt(&self, writer: &mut Writer) {
        writer.in_doubt = true;
        if let Err(error) = self.reload_if_in_doubt(writer) {
            tracing::warn!("what is stored cannot be read back after a failed write: {error}");
        }
    }

    /// Reloads the state in memory from the database if a write has failed since the last reload.
    pub(crate) fn reload_if_in_doubt(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.in_doubt {
            let (coverage, totals) =
                (Coverage::load(&self.database)?, Totals::load(&self.database)?);
            let removed = Removed::load(&self.database)?;
            let marks = Marks::load(&self.database)?;
            let _change = self.generations.change();
            *self.coverage.write() = coverage;
            *self.totals.write() = totals;
            *self.removed.write() = removed;
            *self.marks.write() = marks;
            writer.coverage = None;
            writer.in_doubt = false;
        }
        Ok(())
    }

    /// Makes all ledgers stored so far durable.
    pub fn flush(&self) -> Result<(), StoreError> {
        if self.make_events_durable()? {
            self.notify_listeners();
        }
        Ok(())
    }

    /// Does the same without notifying listeners, and returns whether more events are durable than
    /// before.
    fn make_events_durable(&self) -> Result<bool, StoreError> {
        let last = self.coverage.read().last_event();
        self.database.sync_pending()?;
        Ok(self.durable_events.advance_to(last))
    }
}

/// Adds the signature of a covered ledger to a write, unless it is recorded or the same validator
/// has signed a newer ledger of the range.
fn stage_signature(
    staged: &mut Staged<'_>,
    ledger: LedgerSeq,
    signer: Option<NodeId>,
) -> Result<(), StoreError> {
    let Some(signer) = signer else { return Ok(()) };
    let Some(range) = staged.coverage.sign(ledger, signer) else { return Ok(()) };
    staged.batch.put(Family::Ranges, &LedgerKey(range.ledgers.first), range.encode())?;
    staged.signed.push((ledger, signer));
    Ok(())
}

/// Returns the ledger that was ingested last; 0 when there is none.
pub(crate) fn last_ingested(coverage: &Coverage) -> LedgerSeq {
    coverage.runs().last().map(|run| run.ledgers.last).unwrap_or_default()
}
