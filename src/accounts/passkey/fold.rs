//! Derives the state of a passkey wallet from its events, in any order. For each signer three
//! events count, by their positions on the chain: the first that added it, the last that added or
//! updated it, and the last that removed it. A ledger that arrives late therefore changes only the
//! signers in its own events, however many the wallet has.

use crate::Position;

use super::event::Generation;

/// State of one signer as derived from its events. `Value` holds the signer's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<Value> {
    /// Positions of the first and the last event that put the signer, with its last properties;
    /// `None` when only removals were seen.
    pub put: Option<Put<Value>>,
    /// Position of the last removal.
    pub removed: Option<Position>,
}

/// The events that put a signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put<Value> {
    /// Position of the first one, which determines the signer's order within the wallet.
    pub first: Position,
    /// Position of the last one.
    pub last: Position,
    /// Properties that the last one gave the signer.
    pub value: Value,
}

impl<Value> Default for Entry<Value> {
    fn default() -> Self {
        Self { put: None, removed: None }
    }
}

impl<Value> Entry<Value> {
    /// Applies an event at `at` that adds or updates the signer.
    pub fn put(&mut self, at: Position, value: Value) {
        match &mut self.put {
            None => self.put = Some(Put { first: at, last: at, value }),
            Some(put) => {
                put.first = put.first.min(at);
                if at > put.last {
                    (put.last, put.value) = (at, value);
                }
            }
        }
    }

    /// Applies an event at `at` that removes the signer.
    pub fn remove(&mut self, at: Position) {
        self.removed = self.removed.max(Some(at));
    }

    /// Whether the signer was ever put; one that was only removed is not listed.
    pub fn is_known(&self) -> bool {
        self.put.is_some()
    }

    /// Whether the signer is present, that is, was put after its last removal.
    pub fn is_active(&self) -> bool {
        self.put.as_ref().is_some_and(|put| self.removed < Some(put.last))
    }
}

/// State of a wallet apart from its signers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wallet {
    /// Position of the first signer event.
    pub first: Position,
    /// Position of the last counted event.
    pub last: Position,
    /// Generation of that last event.
    pub generation: Generation,
}

impl Wallet {
    /// Creates a wallet from the first event that was processed for it.
    pub fn begin(at: Position, generation: Generation) -> Self {
        Self { first: at, last: at, generation }
    }

    /// Applies a signer event at `at`.
    pub fn apply_signer_event(&mut self, at: Position, generation: Generation) {
        self.first = self.first.min(at);
        self.record_event(at, generation);
    }

    /// Whether an upgrade at `at` counts. It does only after the wallet's first signer event,
    /// because contracts that are no wallets can emit an upgrade event of the same shape.
    pub fn counts_upgrade(&self, at: Position) -> bool {
        at > self.first
    }

    /// Applies an upgrade that counts.
    pub fn apply_upgrade(&mut self, at: Position) {
        self.record_event(at, Generation::V1);
    }

    fn record_event(&mut self, at: Position, generation: Generation) {
        if at >= self.last {
            (self.last, self.generation) = (at, generation);
        }
    }
}
