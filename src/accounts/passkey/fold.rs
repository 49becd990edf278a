//! What follows from the events of one passkey wallet, in whatever order they are taken: of a signer count the first
//! event that put it there, the last one that did, and the last one that removed it, by their places on the chain.
//! So ledgers that come late change nothing but what they say themselves, however much there is of the wallet.

use crate::accounts::Position;

use super::event::Generation;

/// What the events of a signer come to. `Value` is how the signer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<Value> {
    /// Where it was put first, and where it was put last and how; none for one that was only removed.
    pub put: Option<Put<Value>>,
    /// Where it was removed last.
    pub removed: Option<Position>,
}

/// When a signer was put there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put<Value> {
    /// For the first time: its place among the wallet's signers.
    pub first: Position,
    /// For the last time.
    pub last: Position,
    /// How it was then.
    pub value: Value,
}

impl<Value> Default for Entry<Value> {
    fn default() -> Self {
        Self { put: None, removed: None }
    }
}

impl<Value> Entry<Value> {
    /// An event put the signer there.
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

    /// An event removed the signer.
    pub fn remove(&mut self, at: Position) {
        self.removed = self.removed.max(Some(at));
    }

    /// Whether the signer was there once: one that was not is not shown, although it was removed.
    pub fn is_known(&self) -> bool {
        self.put.is_some()
    }

    /// Whether it is there.
    pub fn is_active(&self) -> bool {
        self.put.as_ref().is_some_and(|put| self.removed < Some(put.last))
    }
}

/// What the events of a wallet come to, apart from its signers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wallet {
    /// The first event of a signer.
    pub first: Position,
    /// The last event that counts.
    pub last: Position,
    /// Of which generation that is.
    pub generation: Generation,
}

impl Wallet {
    /// One of which this is the first event that was taken.
    pub fn begin(at: Position, generation: Generation) -> Self {
        Self { first: at, last: at, generation }
    }

    /// An event of a signer.
    pub fn signer_event(&mut self, at: Position, generation: Generation) {
        self.first = self.first.min(at);
        self.counts(at, generation);
    }

    /// Whether an upgrade counts, which it does once the wallet has had a signer's event: the shape of an upgrade
    /// is easily met by contracts that are no wallets.
    pub fn is_upgrade_of_it(&self, at: Position) -> bool {
        at > self.first
    }

    /// An upgrade that counts.
    pub fn upgraded(&mut self, at: Position) {
        self.counts(at, Generation::V1);
    }

    fn counts(&mut self, at: Position, generation: Generation) {
        if at >= self.last {
            (self.last, self.generation) = (at, generation);
        }
    }
}
