//! The consumers of the feed: their status, their states, their rows, and what they have gathered from
//! ledgers; and the ledgers of the feed.

use std::sync::Arc;

use orrery_ledger::decode::decode;
use orrery_ledger::domain::{LedgerSeq, LedgerSet};

use crate::db::database::Batch;
use crate::encoding::error::StoreError;
use crate::state::consumers::rows::{ConsumerEffects, ConsumerView, RowBounds};
use crate::state::consumers::spec::{ConsumerStatus, is_second_build};
use crate::state::consumers::states::{ConsumerStates, Update};
use crate::state::extracts::Gathers;
use crate::state::ingest_runs::FedLedger;
use crate::state::store::Store;

impl Store {
    /// Returns the first `most` ledgers after a place.
    pub fn fed_after(&self, place: u64, most: usize) -> Vec<FedLedger> {
        self.coverage.read().fed_after(place).take(most).collect()
    }

    /// Returns the place of the ledger that was ingested last; 0 when there is none.
    pub fn last_place(&self) -> u64 {
        self.coverage.read().last_place()
    }

    /// Returns the stored ledgers that were ingested after a place.
    pub fn ledgers_after(&self, place: u64) -> LedgerSet {
        self.coverage.read().ranges_after(place).collect()
    }

    /// Returns the state of all consumers that were ever registered and not removed, by name.
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        let last = self.last_place();
        let consumers = self.consumers.lock();
        let served = consumers.all().filter(|(name, _)| !is_second_build(name));
        served.map(|(name, state)| consumers.status(name, state, last)).collect()
    }

    /// Returns the state of a consumer; `None` when no consumer has this name.
    pub fn consumer(&self, name: &str) -> Option<ConsumerStatus> {
        let last = self.last_place();
        let consumers = self.consumers.lock();
        consumers.get(name).map(|state| consumers.status(name, state, last))
    }

    /// Returns the place up to which a consumer has processed every ledger; `None` when no consumer
    /// has this name. After a failed write, the stored rows are read first.
    ///
    /// # Errors
    /// Errors of the database, if a write had failed.
    pub fn cursor(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let (consumers, name) = (Arc::clone(&self.consumers), name.to_owned());
        self.writer_thread.run(move |database| consumers.cursor(database, &name))
    }

    /// Sets whether a consumer processes ledgers in this process. Retention does not wait for
    /// inactive consumers.
    pub fn set_active(&self, name: &str, active: bool) {
        if let Some(consumer) = self.consumers.lock().get_mut(name) {
            consumer.active = active;
        }
    }

    /// Returns whether a ledger is lost to a consumer. When it returns false, data of the ledger
    /// that was read before this call was complete.
    pub fn is_lost(&self, name: &str, ledger: LedgerSeq) -> bool {
        self.consumers.lock().get(name).is_some_and(|consumer| consumer.lost.contains(ledger))
    }

    /// Returns the ledgers after a place that are lost to a consumer.
    pub fn lost_after(&self, name: &str, place: u64) -> LedgerSet {
        let lost = self.consumers.lock().get(name).map(|it| it.lost.clone()).unwrap_or_default();
        let mut later = LedgerSet::default();
        if !lost.is_empty() {
            for range in self.coverage.read().ranges_after(place) {
                later.insert_all(&lost.within(range));
            }
        }
        later
    }

    /// Notes in memory that a consumer has nothing to write for the ledgers up to a place, and
    /// which ledgers are lost to it. This is written with the consumer's next write, or before
    /// retention removes anything that depends on it.
    pub fn mark_passed(&self, name: &str, place: u64, lost: &LedgerSet) {
        if let Some(consumer) = self.consumers.lock().get_mut(name) {
            consumer.mark_passed(place, lost);
        }
    }

    /// Writes the progress of all consumers that is in memory only.
    pub fn write_cursors(&self) -> Result<(), StoreError> {
        self.change_consumers(self.database.batch(), |known, _| Ok(Some(known.unwritten())))?;
        Ok(())
    }

    /// Calls `Consumers::change` on a thread of normal priority.
    pub(crate) fn change_consumers(
        &self,
        batch: Batch<'_>,
        decide: impl FnOnce(&ConsumerStates, &mut Batch<'_>) -> Result<Option<Vec<Update>>, StoreError>
        + Send
        + 'static,
    ) -> Result<bool, StoreError> {
        let (consumers, batch) = (Arc::clone(&self.consumers), batch.detach());
        self.writer_thread
            .run(move |database| consumers.change(database, database.attach(batch), decide))
    }

    /// Calls `Consumers::change_in_memory` on a thread of normal priority.
    pub(crate) fn change_consumers_in_memory(
        &self,
        decide: impl FnOnce(&ConsumerStates) -> Result<Option<Vec<Update>>, StoreError> + Send + 'static,
    ) -> Result<bool, StoreError> {
        let consumers = Arc::clone(&self.consumers);
        self.writer_thread.run(move |database| consumers.change_in_memory(database, decide))
    }

    /// Takes a snapshot of a consumer's rows, of which no more is read than `bounds` allow.
    pub fn consumer_view<'a>(
        &'a self,
        name: &str,
        bounds: RowBounds<'a>,
    ) -> Result<ConsumerView<'a>, StoreError> {
        ConsumerView::take(&self.database, name, bounds)
    }

    /// Returns empty changes on top of a snapshot of a consumer's rows.
    pub(crate) fn effects(&self, name: &str) -> Result<ConsumerEffects<'_>, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let families = self.consumers.lock().spec(name).ok_or_else(unknown)?.families;
        Ok(ConsumerEffects::new(
            self.consumer_view(name, RowBounds::none())?,
            families,
            self.database.batch(),
        ))
    }

    /// Takes the value that a consumer has gathered from a ledger out of memory, if it is still
    /// there. Returns it only once.
    pub fn take_gathered(&self, gathers: &Gathers, ledger: LedgerSeq) -> Option<Vec<u8>> {
        self.gathered.take(gathers.consumer, ledger)
    }

    /// Returns what a consumer gathers from a ledger: from memory, or computed from the raw form;
    /// `None` when neither is kept.
    ///
    /// # Errors
    /// Errors of the database or zstd, or that the raw form cannot be decoded.
    pub fn gathered(
        &self,
        gathers: &Gathers,
        ledger: LedgerSeq,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(cached) = self.take_gathered(gathers, ledger) {
            return Ok(Some(cached));
        }
        let Some(raw) = self.raw_ledger(ledger)? else { return Ok(None) };
        let view = decode(&raw, self.network.id())
            .map_err(|error| StoreError::Database(format!("ledger {ledger}: {error}")))?;
        Ok(Some((gathers.from)(&view)))
    }
}
