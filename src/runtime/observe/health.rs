//! State of the components, the network's newest ledger, and the lag behind it. Written by the
//! parts of the service, read by the API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use orrery_ledger::domain::LedgerSeq;
use parking_lot::RwLock;
use serde::Serialize;

use super::history::{History, Lag, Sample};
use crate::supervision::injected::Injected;

/// The state of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Component {
    /// The component works.
    Up {
        /// What some components add.
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// The component works, and takes what is stored elsewhere, where not all of it is yet.
    #[serde(rename = "up")]
    Behind(Behind),
    /// The component does not work.
    Down {
        /// One sentence for the operator.
        reason: String,
    },
}

/// How far a component is that takes what is stored elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Behind {
    /// Stored ledgers that are not there yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ledgers: Option<u32>,
    /// Seconds for which something waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<u64>,
    /// Why, in one sentence, which everybody may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Component {
    /// Whether the component works.
    pub fn works(&self) -> bool {
        !matches!(self, Self::Down { .. })
    }
}

/// What the service says of itself as a whole, as `/rest/health` answers it. Fields after the third are
/// additions to the original interface; absent fields are unknown.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    /// `up` if all components are, otherwise `down`.
    pub service: &'static str,
    /// Newest stored ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_latest_ledger: Option<u32>,
    /// Newest ledger of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_latest_ledger: Option<u32>,
    /// Newest attested ledger. Null while no ledger of the newest range is attested; the component
    /// `attestation` says why.
    pub attested_ledger: Option<u32>,
    /// Whose word that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attested_by: Option<&'static str>,
    /// Oldest stored ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ledger: Option<u32>,
    /// Ledgers that the store is behind the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ledgers: Option<u32>,
    /// Seconds since the newest stored ledger closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<u64>,
    /// The components by their names.
    pub components: BTreeMap<&'static str, Component>,
    /// Version of the service.
    pub version: &'static str,
    /// Name of the network; `custom` for one that is not public.
    pub network: &'static str,
    /// Its passphrase.
    pub network_passphrase: &'a str,
    /// What clients should know now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<&'static str>,
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
        self.components.write().insert(name, Component::Up { detail: None });
    }

    /// Reports a component as working, unless it already has a state.
    pub fn up_by_default(&self, name: &'static str) {
        self.components.write().entry(name).or_insert(Component::Up { detail: None });
    }

    /// Reports a component as working, with a detail.
    pub fn up_with(&self, name: &'static str, detail: impl Into<String>) {
        self.components.write().insert(name, Component::Up { detail: Some(detail.into()) });
    }

    /// Reports a component as working, with how far it is.
    pub fn up_behind(&self, name: &'static str, behind: Behind) {
        self.components.write().insert(name, Component::Behind(behind));
    }

    /// Reports a component as not working, with the reason.
    pub fn down(&self, name: &'static str, reason: impl Into<String>) {
        self.components.write().insert(name, Component::Down { reason: reason.into() });
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
            components.insert(*name, Component::Down { reason: reason.clone() });
        }
        components
    }

    /// Returns the first component that is down, in the order of names, with its reason.
    pub fn first_down(&self) -> Option<(&'static str, String)> {
        self.components().into_iter().find_map(|(name, state)| match state {
            Component::Down { reason } => Some((name, reason)),
            Component::Up { .. } | Component::Behind(_) => None,
        })
    }

    /// Returns whether a component itself reports that it does not work.
    pub fn is_down(&self, name: &str) -> bool {
        matches!(self.components.read().get(name), Some(Component::Down { .. }))
    }
}
