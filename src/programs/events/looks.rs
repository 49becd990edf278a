//! What is remembered of the looks for one project (see `looking`).

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::derivation::Derivation;
use orrery_ledger::domain::{ContractId, Hash32};
use orrery_store::TransactionPosition;

/// Time from a look to the next, in multiples of what it took. Unit tests, which give turns themselves,
/// would wait in vain.
const PAUSE: u32 = if cfg!(test) { 0 } else { 20 };

/// What is remembered of the looks for one project.
#[derive(Debug, Default)]
pub struct Looks {
    /// When the last one ended, and how long it took.
    pub(super) last: Option<(Instant, Duration)>,
    /// The walk over the ends of spans that is in progress.
    pub(super) ends: Option<Walk>,
    /// The walk through the middles of joined spans that is in progress.
    pub(super) walk: Option<Walk>,
    /// What was stored when the last such walk began that found nothing.
    pub(super) walked: Option<u64>,
    /// What is remembered of the looks for what the contracts declare.
    pub(super) declared: DeclaredLooks,
    /// The derivation of rows that is in progress.
    pub(super) derivation: Option<Derivation>,
}

/// What is remembered of the looks for what the contracts of a project declare (see `declaring`).
#[derive(Debug, Default)]
pub(super) struct DeclaredLooks {
    /// When the last one ended, and how long it took.
    pub(super) last: Option<(Instant, Duration)>,
    /// Whether the look in progress, or the last one, has found something unknown.
    pub(super) lacks: bool,
    /// Number of looks in a row that have found something unknown.
    pub(super) unknown: u32,
    /// Number of contracts that the look in progress has passed.
    pub(super) passed: usize,
    /// Modules whose declarations are in the project's summary: zeros stand for the asset contract.
    pub(super) consulted: HashSet<Hash32>,
}

/// A walk over the ends of spans, or through the transactions in the middle of joined ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    /// What was stored when it began: see `Interfaces::generation`.
    pub generation: u64,
    /// The last transaction that was looked at, or the first one of the last span.
    pub at: Option<(ContractId, TransactionPosition)>,
}

impl Looks {
    /// Forgets which declarations are in the project's summary, because it is another one.
    pub(super) fn forget_consulted(&mut self) {
        self.declared.consulted.clear();
    }

    /// Returns how long to wait before the next look.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        pause_after(self.last, now)
    }
}

/// Returns how long to wait after a look, of which it is known when it ended and how long it took.
pub(super) fn pause_after(last: Option<(Instant, Duration)>, now: Instant) -> Duration {
    let next = last.map(|(ended, took)| ended + PAUSE * took);
    next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
}
