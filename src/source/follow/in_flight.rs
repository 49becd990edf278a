//! Tracks the ledgers in flight from the follower to the store and the source of each, so that a
//! ledger that cannot be stored is traced back to its source.

use std::collections::VecDeque;

use orrery_ledger::domain::LedgerSeq;
use parking_lot::Mutex;

/// Ledgers that were sent and are not stored yet, in sending order. The follower adds to it; the
/// code that stores ledgers removes from it.
#[derive(Debug, Default)]
pub struct InFlight(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sent: VecDeque<Sent>,
    /// For each source, the newest of its ledgers that was stored.
    stored: Vec<Option<LedgerSeq>>,
}

/// A ledger that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub ledger: LedgerSeq,
    /// Index of its source in the follower's list.
    pub source: usize,
    /// Whether the ledger is stored already and was sent only to be compared.
    pub compared: bool,
}

impl InFlight {
    /// Records that the oldest ledger in flight was stored, or equals the stored one.
    pub fn mark_stored(&self) {
        let mut state = self.0.lock();
        let Some(Sent { ledger, source, .. }) = state.sent.pop_front() else { return };
        if state.stored.len() <= source {
            state.stored.resize(source + 1, None);
        }
        state.stored[source] = state.stored[source].max(Some(ledger));
    }

    /// Returns the oldest ledger in flight.
    pub fn oldest(&self) -> Option<LedgerSeq> {
        self.0.lock().sent.front().map(|sent| sent.ledger)
    }

    pub(super) fn add(&self, sent: Sent) {
        self.0.lock().sent.push_back(sent);
    }

    /// Returns the newest ledger of a source that was stored since the last [`Self::abandon`].
    pub(super) fn newest_stored(&self, source: usize) -> Option<LedgerSeq> {
        self.0.lock().stored.get(source).copied().flatten()
    }

    /// Clears the ledgers in flight, because they will not be stored. Returns the ledger `wanted`, or
    /// else the one that was next to be stored, and the first ledger that has to be sent again.
    pub(super) fn abandon(&self, wanted: Option<LedgerSeq>) -> (Option<Sent>, Option<LedgerSeq>) {
        let mut state = self.0.lock();
        let sent = std::mem::take(&mut state.sent);
        state.stored.clear();
        let resend_from = sent.iter().find(|sent| !sent.compared).map(|sent| sent.ledger);
        let found = sent.iter().find(|sent| !sent.compared && Some(sent.ledger) == wanted);
        (found.or(sent.front()).copied(), resend_from)
    }
}
