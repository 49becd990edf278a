//! Which components work, and where the network's tip is. Written by the pipeline, read by the API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::RwLock;

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
