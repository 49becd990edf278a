//! Results of calls, kept until the store changes: clients poll for the same page, and to look a result up takes a
//! fraction of what it takes to make it.
//!
//! Kept are results that follow from what is stored and from nothing else, neither the clock nor the caller.

use quick_cache::Equivalent;

use super::Json;
use crate::store::{Generation, Kept};

/// Bytes of results that are kept.
const CAPACITY: u64 = 16 << 20;
/// Bytes of a result, with its call, beyond which it is not kept.
const LARGEST: u64 = 512 << 10;
/// What a page of a hundred events takes; only for sizing the table.
const USUAL: u64 = 48 << 10;
/// What an entry takes beside the bytes of its call and its result.
const ENTRY: u64 = 256;

/// A call: its method, and its parameters as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Called<T> {
    pub method: T,
    pub params: T,
}

impl Equivalent<Called<Box<str>>> for Called<&str> {
    fn equivalent(&self, own: &Called<Box<str>>) -> bool {
        self.method == &*own.method && self.params == &*own.params
    }
}

impl From<Called<&str>> for Called<Box<str>> {
    fn from(Called { method, params }: Called<&str>) -> Self {
        Self { method: method.into(), params: params.into() }
    }
}

/// The results that are kept.
pub(super) struct Outcomes(Kept<Called<Box<str>>, Json>);

impl Default for Outcomes {
    fn default() -> Self {
        Self(Kept::new(CAPACITY, USUAL, LARGEST))
    }
}

impl Outcomes {
    /// The result of a call, if it was kept in this generation.
    pub(super) fn get(&self, called: Called<&str>, now: Generation) -> Option<Json> {
        self.0.get(&called, now)
    }

    /// Keeps a result all of which was read after `generation` had been asked for.
    pub(super) fn keep(&self, called: Called<&str>, generation: Generation, of: &Json) {
        let bytes = called.method.len() + called.params.len() + of.get().len();
        self.0.keep(called, generation, ENTRY + bytes as u64, of);
    }
}
