//! One step of a consumer: the next ledgers, what its work leaves of them, and one write with its cursor.

use super::super::{Store, StoreError};
use super::rows::ConsumerEffects;
use super::state::{Consumer, Known, Update};
use super::{FedLedger, rebuild};
use crate::domain::LedgerSeq;

/// Bytes that a step has left after which it takes no further ledger.
const MOST_AT_ONCE: usize = 4 << 20;

/// Places after which a cursor is written although there is nothing else to write: how many ledgers are looked
/// at again after a crash.
const PLACES_UNWRITTEN: u64 = 1024;

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumed {
    /// There is no ledger after the consumer's cursor.
    Nothing,
    /// Its cursor was moved past so many ledgers, those that are lost to it among them; past none when there
    /// is more to do with the first of them ([`ConsumerEffects::go_on_later`]).
    Ledgers(u64),
    /// Some of them were lost to it meanwhile, or it has moved: nothing was written. To be tried again.
    Again,
}

impl Store {
    /// Hands a consumer the ledgers after its cursor, `most` places at a time, and writes what `work` leaves
    /// together with the cursor: all of it or nothing. Ledgers that are lost to it are passed over. When
    /// nothing is left of them, the cursor is not written at once either: that is done with the next write,
    /// by [`Self::write_cursors`], or after some ledgers.
    ///
    /// No row of the consumer is changed by others meanwhile ([`Self::change_consumer_rows`]).
    ///
    /// # Errors
    /// What `work` says; [`StoreError::UnknownConsumer`] when none of this name is registered; what the
    /// database says. Then nothing was written, or nobody knows, and the next call begins where the cursor
    /// is.
    pub fn consume<E: From<StoreError>>(
        &self,
        name: &str,
        most: usize,
        mut work: impl FnMut(&FedLedger, &mut ConsumerEffects<'_>) -> Result<(), E>,
    ) -> Result<Consumed, E> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        // A failed write is settled: what is known of consumers decides about what is read for them.
        self.cursor(name)?;
        let _turn = match rebuild::is_second(name) {
            // Its rows are nobody else's.
            true => None,
            false => Some(self.consumers.turn(name).ok_or_else(unknown)?.take()),
        };
        let begun = self.consumers.lock().get(name).ok_or_else(unknown)?.clone();
        let from = begun.place;
        let fed = self.fed_after(from, most);
        let Some(last) = fed.last() else { return Ok(Consumed::Nothing) };
        let mut place = last.place;
        let mut handed: Vec<LedgerSeq> = Vec::with_capacity(fed.len());
        let mut effects = self.effects(name)?;
        for ledger in fed.iter().filter(|it| !begun.lost.contains(it.ledger)) {
            work(ledger, &mut effects)?;
            handed.push(ledger.ledger);
            if effects.is_unfinished() {
                place = ledger.place - 1;
                break;
            }
            if effects.bytes() >= MOST_AT_ONCE {
                place = ledger.place;
                break;
            }
        }
        let is_passed_over = handed.len() as u64 != place - from;
        let is_far = place / PLACES_UNWRITTEN != from / PLACES_UNWRITTEN;
        let has_left = !effects.is_empty() || is_passed_over || is_far;
        let name = name.to_owned();
        let moved = move |known: &Known| -> Result<Option<Vec<Update>>, StoreError> {
            let now = known.get(&name).ok_or_else(|| StoreError::UnknownConsumer(name.clone()))?;
            let is_same = now.place == begun.place && now.generation == begun.generation;
            if !is_same || handed.iter().any(|ledger| now.lost.contains(*ledger)) {
                return Ok(None);
            }
            let moved = Consumer { place, ..now.clone() };
            Ok(Some(vec![(name.clone(), Some(moved))]))
        };
        let is_moved = match has_left {
            true => self.change_consumers(effects.into_batch()?, move |known, _| moved(known))?,
            false => self.pass_consumers(moved)?,
        };
        Ok(match is_moved {
            true => {
                self.tell_of_step();
                Consumed::Ledgers(place - from)
            }
            false => Consumed::Again,
        })
    }
}
