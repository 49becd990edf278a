//! What subscriptions are told of beside events: what single transactions do ([`transactions`]), entries that
//! are about to expire ([`ttl`]), and silence ([`silence`]).
//!
//! What is told, and the number that it has, follow from the stored ledgers alone. So a restart, a replay and
//! another machine tell the same.

pub(super) mod body;
pub(super) mod data_fields;
mod failed_call;
pub(super) mod silence;
mod silence_search;
mod storage;
pub(super) mod transactions;
pub(super) mod ttl;
mod ttl_entries;
mod ttl_members;
pub(super) mod ttl_memory;
pub(super) mod ttl_notes;
pub(super) mod ttl_preview;
pub(super) mod ttl_replay;
mod upgrade;
mod watching;

use std::sync::Arc;

use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::followed::Followed;
use super::number::Number;
use super::subscription::Subscription;
use orrery_executables::InterfaceReader;
use orrery_ledger::decode::DEEPEST;
use orrery_ledger::domain::{CloseTime, LedgerSeq, NetworkId};
use orrery_store::{Store, StoreError};

/// Limits for reading stored values: their depth, and 16 MiB.
const LIMITS: Limits = Limits { depth: DEEPEST + 20, len: 16 << 20 };
/// Stack for decoding and writing transactions and values of that depth, in bytes.
const STACK: usize = 32 << 20;

/// From what is told.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    /// The stored ledgers.
    pub store: &'a Store,
    /// The network.
    pub network: &'a NetworkId,
    /// Interfaces by which things are named.
    pub names: Option<&'a InterfaceReader<'a>>,
    /// Projects, whose members subscriptions are told of.
    pub followed: &'a Followed,
}

/// Something to tell a subscription.
pub(super) struct Told {
    /// Which one.
    pub subscription: Arc<Subscription>,
    /// The number of the delivery.
    pub number: Number,
    /// The ledger in which it happened.
    pub ledger: LedgerSeq,
    /// What is sent.
    pub body: Vec<u8>,
    /// Whether the contract belongs to the subscription's project, if it has one; else that is not known, and
    /// nothing is sent.
    pub is_sure: bool,
}

impl Sources<'_> {
    /// Returns when a stored ledger closed.
    fn closed_at(&self, ledger: LedgerSeq) -> Result<Option<CloseTime>, StoreError> {
        Ok(self.store.ledger(ledger)?.map(|row| row.close_time))
    }
}

/// Runs `work` with a stack on which transactions and values of any depth are decoded.
fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK / 2, STACK, work)
}

/// Decodes XDR `ScVal`; `None` when that is not possible.
fn decoded(xdr: &[u8]) -> Option<ScVal> {
    ScVal::from_xdr(xdr, LIMITS).ok()
}
