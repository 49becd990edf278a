//! Storing ledgers: each completely or not at all, alone or several with one write.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::columns::Family;
use super::coverage::{Added, Coverage};
use super::database::Batch;
use super::index_rows::IndexRows;
use super::prepare::PreparedLedger;
use super::{Store, StoreError, TOTALS_ROW, Totals, Writer, ledger_batch, listings, load_coverage};
use crate::domain::LedgerSeq;
use crate::verify::{Link, verify_link, verify_repeat};

/// When a ledger counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk when the call returns.
    Synced,
    /// On disk after the next [`Store::flush`]; a crash before it loses whole ledgers, newest
    /// first. For imports, which can be repeated.
    Deferred,
}

/// What came of storing a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It is new.
    New,
    /// The same ledger was there already; nothing changed.
    AlreadyStored,
}

/// Ledgers that are about to be written, and the store as it will be then.
struct Staged<'a> {
    batch: Batch<'a>,
    index: IndexRows,
    coverage: Coverage,
    /// What was added to `coverage`.
    added: Vec<Added>,
    totals: Totals,
    links: BTreeMap<LedgerSeq, Link>,
}

impl Store {
    /// Stores a ledger completely or not at all. It may stand apart from the ledgers stored
    /// before; where a neighbour is stored, their hashes must link.
    ///
    /// # Errors
    /// [`StoreError::Chain`] when another ledger of this sequence is stored or a neighbour does not
    /// link, and what the database says.
    pub fn commit(
        &self,
        ledger: PreparedLedger,
        durability: Durability,
    ) -> Result<Committed, StoreError> {
        let (outcomes, done) = self.commit_all(vec![ledger], durability);
        done.map(|()| outcomes.first().copied().unwrap_or(Committed::AlreadyStored))
    }

    /// Stores ledgers as [`Self::commit`] does one after the other, but with one write, which takes less
    /// time. Returns what came of those before the first one that failed, and why that failed.
    pub fn commit_all(
        &self,
        ledgers: Vec<PreparedLedger>,
        durability: Durability,
    ) -> (Vec<Committed>, Result<(), StoreError>) {
        let mut writer = self.writer.lock();
        if let Err(error) = self.settle(&mut writer) {
            return (Vec::new(), Err(error));
        }
        let durable = self.last_durable_event();
        let bytes = ledgers.iter().map(PreparedLedger::bytes).sum();
        let mut staged = Staged {
            batch: self.database.batch_with_room(bytes),
            index: IndexRows::default(),
            coverage: writer.coverage.take().unwrap_or_else(|| self.coverage.read().clone()),
            added: Vec::with_capacity(ledgers.len()),
            totals: *self.totals.read(),
            links: BTreeMap::new(),
        };
        let mut outcomes = Vec::with_capacity(ledgers.len());
        let mut refused = Ok(());
        let mut written = Ok(());
        for ledger in &ledgers {
            match self.check(&staged, ledger) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    refused = Err(error);
                    break;
                }
            }
            if outcomes.last() == Some(&Committed::New) {
                written = self.stage(&mut staged, ledger);
                if written.is_err() {
                    break;
                }
            }
        }
        match written.and_then(|()| self.write(staged, durability, &mut writer)) {
            Ok(()) => {
                if durability == Durability::Synced {
                    writer.newest_synced = Some(Instant::now());
                }
                drop(writer);
                // Before those who take it are told that there are new ledgers.
                for (ledger, outcome) in ledgers.into_iter().zip(&outcomes) {
                    if *outcome == Committed::New {
                        self.gathered.keep(ledger.sequence, ledger.gathered);
                    }
                }
                if outcomes.contains(&Committed::New) || self.last_durable_event() > durable {
                    self.tell_listeners();
                }
                (outcomes, refused)
            }
            Err(error) => {
                let stored = outcomes.iter().take_while(|it| **it == Committed::AlreadyStored);
                let durable = durability == Durability::Deferred || !self.database.has_pending();
                outcomes.truncate(if durable { stored.count() } else { 0 });
                (outcomes, Err(error))
            }
        }
    }

    /// How long ago ledgers were stored last that had to be durable at once; none when none were.
    pub fn since_synced(&self) -> Option<Duration> {
        self.writer.lock().newest_synced.map(|at| at.elapsed())
    }

    /// Whether a ledger is new; an error when it does not fit to those that are stored or staged.
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

    /// A stored or staged ledger's place in the chain.
    fn link(&self, staged: &Staged<'_>, sequence: LedgerSeq) -> Result<Option<Link>, StoreError> {
        if let Some(link) = staged.links.get(&sequence) {
            return Ok(Some(*link));
        }
        let row = self.ledger(sequence)?;
        Ok(row.map(|row| Link { sequence, hash: row.hash, previous_hash: row.previous_hash }))
    }

    fn stage(&self, staged: &mut Staged<'_>, ledger: &PreparedLedger) -> Result<(), StoreError> {
        let Staged { batch, index, coverage, added, totals, links } = staged;
        if !ledger.rows.are_of(&self.indexes) {
            return Err(StoreError::OtherIndexes);
        }
        let newest = coverage.latest().is_none_or(|latest| latest < ledger.sequence);
        let change = coverage.change(ledger.sequence, ledger.sums());
        ledger_batch::compose(batch, index, ledger, coverage.next_event(), &change)?;
        let listed = coverage.listings.is_new(&ledger.listed).then(|| ledger.listed.clone());
        let one = Added { change, listed };
        coverage.add(&one);
        if let Some(listed) = &one.listed {
            let place = coverage.places().to_be_bytes();
            batch.put_raw(Family::Listings, &place, &listings::encode(listed))?;
        }
        added.push(one);
        *totals = totals.with(ledger, newest);
        links.insert(ledger.sequence, ledger.link());
        Ok(())
    }

    fn write(
        &self,
        staged: Staged<'_>,
        durability: Durability,
        writer: &mut Writer,
    ) -> Result<(), StoreError> {
        let Staged { mut batch, index, coverage, added, totals, links } = staged;
        if links.is_empty() {
            writer.coverage = Some(coverage);
            // They are stored already, but perhaps by an import that has not flushed yet.
            return match durability {
                Durability::Synced => self.settle_events().map(drop),
                Durability::Deferred => Ok(()),
            };
        }
        index.write(&mut batch)?;
        batch.put_raw(Family::Meta, TOTALS_ROW, &totals.encode())?;
        batch.stores(last_ingested(&coverage));
        let change = self.generations.change();
        let written = match durability {
            Durability::Synced => self.database.write_synced(batch),
            Durability::Deferred => self.database.write_deferred(batch),
        };
        if let Err(error) = written {
            drop(change);
            self.doubt(writer);
            return Err(error);
        }
        let mut published = self.coverage.write();
        added.iter().for_each(|one| published.add(one));
        drop(published);
        *self.totals.write() = totals;
        if durability == Durability::Synced {
            self.durable_events.are_now(coverage.last_event());
        }
        writer.coverage = Some(coverage);
        Ok(())
    }

    /// To be called when a write of ledgers or totals failed: reads back which ledgers are stored, now
    /// or, when that fails too, before the next write.
    pub(super) fn doubt(&self, writer: &mut Writer) {
        writer.in_doubt = true;
        if let Err(error) = self.settle(writer) {
            tracing::warn!("what is stored cannot be read back after a failed write: {error}");
        }
    }

    /// Makes what is in memory agree with the database, if a write failed since it last did.
    pub(super) fn settle(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.in_doubt {
            let (coverage, totals) =
                (load_coverage(&self.database)?, Totals::load(&self.database)?);
            let _change = self.generations.change();
            *self.coverage.write() = coverage;
            *self.totals.write() = totals;
            writer.coverage = None;
            writer.in_doubt = false;
        }
        Ok(())
    }

    /// Makes all ledgers stored so far durable.
    ///
    /// # Errors
    /// What the database says.
    pub fn flush(&self) -> Result<(), StoreError> {
        if self.settle_events()? {
            self.tell_listeners();
        }
        Ok(())
    }

    /// The same; says whether there are durable events that were not before.
    fn settle_events(&self) -> Result<bool, StoreError> {
        let last = self.coverage.read().last_event();
        self.database.settle()?;
        Ok(self.durable_events.are_now(last))
    }
}

/// The ledger that was stored last; 0 when there is none.
pub(super) fn last_ingested(coverage: &Coverage) -> LedgerSeq {
    coverage.runs().last().map(|run| run.ledgers.last).unwrap_or_default()
}
