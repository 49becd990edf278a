//! State of the components, the network's newest ledger, and the lag behind it. Written by the
//! parts of the service, read by the API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use orrery_ledger::domain::LedgerSeq;
use parking_lot::RwLock;

use super::history::{History, Lag, Sample};
use crate::supervision::injected::Injected;

/// The state of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Component {
    /// The component works; some components add a detail.
    Up(Option<String>),
    /// The component does not work; the reason is one sentence for the operator.
    Down(String),
}

/// Health of the process, shared by all its parts.
#[derive(Debug, Default)]
pub struct Health {
    components: RwLock<BTreeMap<&'static str, Component>>,
    /// Outages by component and number, with the reason.
    outages: RwLock<BTreeMap<(&'static str, u64), String>>,
    last_outage: AtomicU64,
    /// 0 while unknown: no network has a ledger with sequence 0.
    network_latest: AtomicU32,
    /// Whether a source is followed. Without one there is no lag.
    follows: AtomicBool,
    /// Lag in the past.
    history: History,
    /// Panics that a test plans for the parts of this service.
    injected: Injected,
}

/// A component is not working until this is dropped, whatever it reports meanwhile.
#[derive(Debug)]
pub struct Outage {
    health: Arc<Health>,
    key: (&'static str, u64),
}

impl Drop for Outage {
    fn drop(&mut self) {
        self.health.outages.write().remove(&self.key);
    }
}

impl Health {
    /// Reports a component as not working until the returned value is dropped. What it reports
    /// itself is hidden meanwhile; afterwards, a component that has reported nothing does not exist.
    pub fn outage(self: &Arc<Self>, name: &'static str, reason: impl Into<String>) -> Outage {
        let key = (name, self.last_outage.fetch_add(1, Ordering::Relaxed));
        self.outages.write().insert(key, reason.into());
        Outage { health: Arc::clone(self), key }
    }

    /// Reports a component as working.
    pub fn up(&self, name: &'static str) {
        self.components.write().insert(name, Component::Up(None));
    }

    /// Reports a component as working, unless it already has a state.
    pub fn up_by_default(&self, name: &'static str) {
        self.components.write().entry(name).or_insert(Component::Up(None));
    }

    /// Reports a component as working, with a detail.
    pub fn up_with(&self, name: &'static str, detail: impl Into<String>) {
        self.components.write().insert(name, Component::Up(Some(detail.into())));
    }

    /// Reports a component as not working, with the reason.
    pub fn down(&self, name: &'static str, reason: impl Into<String>) {
        self.components.write().insert(name, Component::Down(reason.into()));
    }

    /// Removes the state of a component that no longer exists.
    pub fn forget(&self, name: &str) {
        self.components.write().remove(name);
    }

    /// Reports the newest ledger of the network, as far as the source has announced it.
    pub fn set_network_latest(&self, sequence: LedgerSeq) {
        self.network_latest.store(sequence.0, Ordering::Relaxed);
    }

    /// Returns the newest ledger of the network, or `None` while it is unknown.
    pub fn network_latest(&self) -> Option<LedgerSeq> {
        match self.network_latest.load(Ordering::Relaxed) {
            0 => None,
            sequence => Some(LedgerSeq(sequence)),
        }
    }

    /// Reports that a source is followed.
    pub fn set_follows_source(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Returns whether a source is followed. Without one there is nothing to lag behind.
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Returns the lag of the store behind the network at `now` (UNIX seconds), where `latest` is
    /// the newest stored ledger and `closed` its close time (UNIX seconds). Both parts are `None`
    /// unless a source is followed: the newest ledger that a backfill has learnt of is not a ledger
    /// that the service is going to store.
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

    /// Records the lag at `now` in the history; the parameters are those of [`Self::lag`].
    pub fn record_lag(&self, now: u64, latest: Option<LedgerSeq>, closed: Option<u64>) {
        let lag = self.lag(now, latest, closed);
        self.history.record(Sample { at: now, latest, lag });
    }

    /// Returns the panics that a test plans for the parts of this service.
    #[doc(hidden)]
    pub fn injected(&self) -> &Injected {
        &self.injected
    }

    /// Returns the history of the lag.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the state of every component that has reported one or has an outage.
    pub fn components(&self) -> BTreeMap<&'static str, Component> {
        let mut components = self.components.read().clone();
        for ((name, _), reason) in self.outages.read().iter() {
            components.insert(*name, Component::Down(reason.clone()));
        }
        components
    }

    /// Returns the first component that is down, in the order of names, with its reason.
    pub fn first_down(&self) -> Option<(&'static str, String)> {
        self.components().into_iter().find_map(|(name, state)| match state {
            Component::Down(reason) => Some((name, reason)),
            Component::Up(_) => None,
        })
    }

    /// Returns whether a component itself reports that it does not work.
    pub fn is_down(&self, name: &str) -> bool {
        matches!(self.components.read().get(name), Some(Component::Down(_)))
    }
}
