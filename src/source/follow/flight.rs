//! Ledgers on their way from the follower to the store: which source each came from, so that one that
//! cannot be stored is traced back.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::domain::LedgerSeq;

/// Ledgers that were sent and are not stored yet, in their order. The follower adds to it, whoever
/// stores them takes away.
#[derive(Debug, Default)]
pub struct Flight(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sent: VecDeque<Sent>,
    /// For each source the newest of its ledgers that was stored.
    stored: Vec<Option<LedgerSeq>>,
}

/// A ledger that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub ledger: LedgerSeq,
    /// Number of its source in the follower's list.
    pub source: usize,
    /// Whether it is stored already and was sent to be compared.
    pub compared: bool,
}

impl Flight {
    /// The oldest ledger on its way was stored, or is the same as the one that is stored.
    pub fn arrived(&self) {
        let mut state = self.0.lock();
        let Some(Sent { ledger, source, .. }) = state.sent.pop_front() else { return };
        if state.stored.len() <= source {
            state.stored.resize(source + 1, None);
        }
        state.stored[source] = state.stored[source].max(Some(ledger));
    }

    /// The oldest ledger on its way.
    pub fn oldest(&self) -> Option<LedgerSeq> {
        self.0.lock().sent.front().map(|sent| sent.ledger)
    }

    pub(super) fn sent(&self, sent: Sent) {
        self.0.lock().sent.push_back(sent);
    }

    /// The newest ledger of a source that was stored since the last [`Self::abandon`].
    pub(super) fn newest_stored(&self, source: usize) -> Option<LedgerSeq> {
        self.0.lock().stored.get(source).copied().flatten()
    }

    /// Forgets what is on its way, because it will not be stored. Yields the ledger that was next to be
    /// stored, and the first that has to be sent again.
    pub(super) fn abandon(&self) -> (Option<Sent>, Option<LedgerSeq>) {
        let mut state = self.0.lock();
        let sent = std::mem::take(&mut state.sent);
        state.stored.clear();
        let again = sent.iter().find(|sent| !sent.compared).map(|sent| sent.ledger);
        (sent.front().copied(), again)
    }
}
