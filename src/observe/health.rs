//! Which components work, where the network's tip is, and how far behind it one is. Written by the pipeline, read by
//! the API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::RwLock;

use super::history::{History, Lag, Sample};
use crate::domain::LedgerSeq;

/// The state of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Component {
    /// It works; for some there is something to say about how.
    Up(Option<String>),
    /// It does not; the reason is one sentence for the operator.
    Down(String),
}

/// Shared by all parts of the process.
#[derive(Debug, Default)]
pub struct Health {
    components: RwLock<BTreeMap<&'static str, Component>>,
    /// 0 while unknown: no network has a ledger 0.
    network_latest: AtomicU32,
    /// Whether a source is followed, so that one can be behind it.
    follows: AtomicBool,
    /// How far behind it was.
    history: History,
}

impl Health {
    /// Reports a component as working.
    pub fn up(&self, name: &'static str) {
        self.components.write().insert(name, Component::Up(None));
    }

    /// Reports a component that has begun to work, unless it has said itself how it is.
    pub fn begins(&self, name: &'static str) {
        self.components.write().entry(name).or_insert(Component::Up(None));
    }

    /// Reports a component as working, and how.
    pub fn up_with(&self, name: &'static str, detail: impl Into<String>) {
        self.components.write().insert(name, Component::Up(Some(detail.into())));
    }

    /// Reports a component as degraded, and why.
    pub fn down(&self, name: &'static str, reason: impl Into<String>) {
        self.components.write().insert(name, Component::Down(reason.into()));
    }

    /// Takes back what was reported about a component that is no longer there.
    pub fn forget(&self, name: &str) {
        self.components.write().remove(name);
    }

    /// Reports the newest ledger that the source knows of.
    pub fn network_latest_is(&self, sequence: LedgerSeq) {
        self.network_latest.store(sequence.0, Ordering::Relaxed);
    }

    /// Newest ledger that the source knows of, when there is one.
    pub fn network_latest(&self) -> Option<LedgerSeq> {
        match self.network_latest.load(Ordering::Relaxed) {
            0 => None,
            sequence => Some(LedgerSeq(sequence)),
        }
    }

    /// Reports that a source is followed.
    pub fn follows_a_source(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Whether a source is followed. Without one there is nothing that what is stored lags behind.
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// How far a store is behind the network at this time (UNIX seconds), when its newest ledger is `latest`, which
    /// was closed at `closed` (UNIX seconds). Without a source nothing is lagged behind: what a backfill learns of the
    /// network is no promise.
    pub fn lag(&self, now: u64, latest: Option<LedgerSeq>, closed: Option<u64>) -> Lag {
        if !self.follows() {
            return Lag::default();
        }
        let behind = |(tip, stored): (LedgerSeq, LedgerSeq)| tip.0.saturating_sub(stored.0);
        Lag {
            ledgers: self.network_latest().zip(latest).map(behind),
            seconds: closed.map(|closed| now.saturating_sub(closed)),
        }
    }

    /// Keeps the lag of this time, with the meanings of [`Self::lag`].
    pub fn record_lag(&self, now: u64, latest: Option<LedgerSeq>, closed: Option<u64>) {
        let lag = self.lag(now, latest, closed);
        self.history.record(Sample { at: now, latest, lag });
    }

    /// How far behind it was.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// All components that have reported.
    pub fn components(&self) -> BTreeMap<&'static str, Component> {
        self.components.read().clone()
    }

    /// The first component that is down, with its reason.
    pub fn first_down(&self) -> Option<(&'static str, String)> {
        self.components.read().iter().find_map(|(name, state)| match state {
            Component::Down(reason) => Some((*name, reason.clone())),
            Component::Up(_) => None,
        })
    }

    /// Whether a component is reported as degraded.
    pub fn is_down(&self, name: &str) -> bool {
        matches!(self.components.read().get(name), Some(Component::Down(_)))
    }
}
