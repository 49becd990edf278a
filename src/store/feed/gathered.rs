//! What consumers gather from whole ledgers, beside what the store has records of. Whoever stores a ledger has it
//! decoded at hand; to come to the same later takes each consumer an unpacking of the raw form and a walk through all
//! of it. So it is gathered when a ledger is prepared, and kept in memory until the consumer takes it. A consumer that
//! comes too late for it, or after a restart, gathers it from the raw form, or reads records instead.

use std::fmt;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::super::{Store, StoreError};
use crate::decode::{LedgerView, decode};
use crate::domain::LedgerSeq;

/// Bytes that are kept together at the most: what some thousand ledgers of the public network come to.
const CAPACITY: u64 = 8 << 20;
/// What is usual for a ledger, in bytes. It only sizes the table.
const USUAL: u64 = 2 << 10;
/// Bytes of memory that a value takes beside its own.
const OVERHEAD: u64 = 64;

/// What a consumer gathers.
#[derive(Clone, Copy)]
pub struct Gathers {
    /// The consumer's name.
    pub consumer: &'static str,
    /// What it gathers from a ledger, which must follow from the ledger alone.
    pub from: fn(&LedgerView<'_>) -> Vec<u8>,
}

impl fmt::Debug for Gathers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gathers").field(&self.consumer).finish()
    }
}

type Key = (&'static str, LedgerSeq);

/// What was gathered from one ledger, with the name of the consumer that it is for.
pub(in super::super) type OfLedger = Vec<(&'static str, Box<[u8]>)>;

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Box<[u8]>> for Weight {
    fn weight(&self, _: &Key, value: &Box<[u8]>) -> u64 {
        OVERHEAD + value.len() as u64
    }
}

/// What was gathered and not taken yet.
pub(in super::super) struct Gathered {
    gatherers: Vec<Gathers>,
    kept: Cache<Key, Box<[u8]>, Weight>,
}

impl Gathered {
    pub(in super::super) fn by(gatherers: Vec<Gathers>) -> Self {
        let kept = Cache::with_weighter((CAPACITY / USUAL) as usize, CAPACITY, Weight);
        Self { gatherers, kept }
    }

    /// What all consumers gather from a ledger.
    pub(in super::super) fn from(&self, ledger: &LedgerView<'_>) -> OfLedger {
        let of = |it: &Gathers| (it.consumer, (it.from)(ledger).into_boxed_slice());
        self.gatherers.iter().map(of).collect()
    }

    /// Keeps what was gathered from a ledger whose raw form is stored now.
    pub(in super::super) fn keep(&self, ledger: LedgerSeq, gathered: OfLedger) {
        for (consumer, value) in gathered {
            self.kept.insert((consumer, ledger), value);
        }
    }

    fn take(&self, consumer: &'static str, ledger: LedgerSeq) -> Option<Vec<u8>> {
        self.kept.remove(&(consumer, ledger)).map(|(_, value)| value.into_vec())
    }
}

impl Store {
    /// What a consumer has gathered from a ledger, if that is still in memory. It is given once.
    pub fn still_gathered(&self, gathers: &Gathers, ledger: LedgerSeq) -> Option<Vec<u8>> {
        self.gathered.take(gathers.consumer, ledger)
    }

    /// What a consumer gathers from a ledger; none when the ledger's raw form is not kept.
    ///
    /// # Errors
    /// What the database or zstd says, or that the raw form does not decode.
    pub fn gathered(
        &self,
        gathers: &Gathers,
        ledger: LedgerSeq,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(kept) = self.still_gathered(gathers, ledger) {
            return Ok(Some(kept));
        }
        let Some(raw) = self.raw_ledger(ledger)? else { return Ok(None) };
        let view = decode(&raw, self.network.id())
            .map_err(|error| StoreError::Database(format!("ledger {ledger}: {error}")))?;
        Ok(Some((gathers.from)(&view)))
    }
}
