//! What a history archive adds to the model: the whole state of contracts at the end of a ledger.

use std::collections::{BTreeMap, BTreeSet};

use stellar_xdr::LedgerKey;

use super::answers::{Kind, Row, Value};
use super::net::NetChange;
use super::timeline::{Moment, Timeline};
use super::{KeyHash, contract_of, is_temporary};

/// An entry in the state at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldThere {
    pub key: LedgerKey,
    pub value: Value,
    /// `lastModifiedLedgerSeq`.
    pub modified: u32,
    /// `None` of what is evicted.
    pub live_until: Option<u32>,
    /// Whether it is in the hot archive.
    pub is_evicted: bool,
}

/// The state at the end of a ledger. S7: "Records `found` where no change at or before C is stored,
/// compares where one is": so what a checkpoint holds at C is exact for all its contracts, and what it
/// does not hold does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointState {
    /// The contracts whose state it is; `None` for all.
    pub contracts: Option<BTreeSet<[u8; 32]>>,
    pub entries: BTreeMap<KeyHash, HeldThere>,
}

impl CheckpointState {
    /// Whether it is the state of a key's contract.
    pub fn covers(&self, key: &LedgerKey) -> bool {
        let Some(contract) = contract_of(key) else { return false };
        self.contracts.as_ref().is_none_or(|contracts| contracts.contains(&contract))
    }

    /// Adds the state of other contracts at the same ledger.
    pub fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
        match (&mut self.contracts, other.contracts) {
            (Some(known), Some(more)) => known.extend(more),
            (known, _) => *known = None,
        }
    }
}

impl<'a> Timeline<'a> {
    /// The newest checkpoint at or before a moment, if no change that `is` says something after it.
    pub(super) fn seen(
        &self,
        at: Moment,
        is: impl Fn(&NetChange) -> bool,
    ) -> Option<Option<&'a HeldThere>> {
        let is_past = |(ledger, _): &&(u32, _)| Moment::end_of(*ledger) <= at;
        let (ledger, held) = self.checkpoints.iter().rev().find(is_past)?;
        let last = self.last(at, is);
        last.is_none_or(|step| step.at <= Moment::end_of(*ledger)).then_some(*held)
    }

    /// The TTL in the newest checkpoint at or before a moment that has one, if no change says one after it:
    /// the state of what is evicted has none.
    pub(super) fn seen_life(&self, at: Moment) -> Option<u32> {
        let last = self.last(at, NetChange::names_ttl).map(|step| step.at);
        let mut counted = self.checkpoints.iter().rev().filter(|(ledger, _)| {
            let end = Moment::end_of(*ledger);
            end <= at && last.is_none_or(|last| last <= end)
        });
        counted.find_map(|(_, held)| (*held)?.live_until)
    }

    /// The first checkpoint after a moment that has the entry as it was at the moment. S7: "backward from
    /// C as the state before a later change does".
    pub(super) fn ahead(&self, at: Moment) -> Option<(u32, &'a HeldThere)> {
        let is_ahead = |(ledger, _): &&(u32, Option<&'a HeldThere>)| Moment::end_of(*ledger) > at;
        let mut ahead = self.checkpoints.iter().filter(is_ahead);
        let (ledger, held) = ahead.find_map(|(ledger, held)| Some((*ledger, (*held)?)))?;
        self.holds(held.modified, at).then_some((ledger, held))
    }

    /// The row with which a key's history begins, where a checkpoint is the first to say what the entry
    /// is. What is dead is no entry.
    pub(super) fn found(&self) -> Option<(Moment, Row)> {
        let mut held = self.checkpoints.iter().filter_map(|(at, held)| Some((*at, (*held)?)));
        let (ledger, held) = held.next()?;
        let at = Moment::end_of(ledger);
        let is_dead = is_temporary(self.key) && held.live_until.is_some_and(|it| it < ledger);
        if is_dead || self.last(at, NetChange::names_entry).is_some() {
            return None;
        }
        let row = Row {
            key_hash: super::key_hash(self.key),
            key: self.key.clone(),
            kind: Kind::Found,
            value: Some(held.value.clone()),
            previous: None,
            live_until: self.live_until(at),
            tx: None,
            ledger,
        };
        Some((at, row))
    }
}
