//! The net change of one key in one transaction.

use std::collections::BTreeMap;

use stellar_xdr::LedgerKey;

use super::answers::{Kind, TransactionId, Value};
use super::{KeyHash, is_temporary};

/// One record of an entry, or of its TTL, in the metadata. The numbers are `lastModifiedLedgerSeq`.
#[derive(Debug, Clone, PartialEq)]
pub enum Record<T> {
    State(T, u32),
    Created(T, u32),
    Updated(T, u32),
    Restored(T, u32),
    Removed,
}

/// The records of one key in one transaction, in the order of the metadata.
#[derive(Debug, Clone, Default)]
pub struct Records {
    pub entry: Vec<Record<Value>>,
    pub ttl: Vec<Record<u32>>,
}

/// The entry before a change, as far as the metadata names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    NotNamed,
    Absent,
    /// The value, and its `lastModifiedLedgerSeq`: the STATE of S2. A RESTORED record names the
    /// value before, too; where the restoring rewrote the entry its number is the ledger itself, so
    /// that it says nothing about earlier ledgers (CAP-66: the restored entry is as it was archived).
    Value(Value, u32),
}

/// The entry after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// Only its TTL changed, or it was archived: it is as it was before.
    Same,
    Gone,
    /// The value, and its `lastModifiedLedgerSeq`.
    Value(Value, u32),
}

/// The TTL before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtlBefore {
    NotNamed,
    Absent,
    /// `liveUntilLedgerSeq`, and the `lastModifiedLedgerSeq` of the TTL entry.
    Until(u32, u32),
}

/// The TTL after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtlAfter {
    /// It is as it was before.
    Same,
    Gone,
    Until(u32),
    /// The entry is another one than before, and no TTL of it is named.
    Lost,
}

/// What became of a key in one transaction, one upgrade or by eviction. S1: "At most **one change
/// per key and transaction**".
#[derive(Debug, Clone, PartialEq)]
pub struct NetChange {
    pub key: LedgerKey,
    pub key_hash: KeyHash,
    pub tx: Option<TransactionId>,
    /// `None`: S1: "Equal before and after: no row in history or SQL, but the key's
    /// `modified_ledger` moves"; and dead temporary data that is erased.
    pub kind: Option<Kind>,
    pub before: Before,
    /// The value before was that of temporary data whose TTL had passed: S2 calls it absent.
    pub dead_before: bool,
    pub after: After,
    pub ttl_before: TtlBefore,
    pub ttl_after: TtlAfter,
}

/// The greatest TTL that the ledger's transactions gave each key so far (S1).
pub type Running = BTreeMap<KeyHash, u32>;

/// Where a change is made.
pub struct Place<'a> {
    pub ledger: u32,
    pub tx: Option<TransactionId>,
    /// Whether the transaction's footprint has the key as one that is only read.
    pub only_read: bool,
    pub running: &'a mut Running,
}

impl NetChange {
    /// Combines the records of a key in one transaction; `None` if they are no change.
    pub fn of(key: LedgerKey, key_hash: KeyHash, records: &Records, place: Place) -> Option<Self> {
        let before = before(&records.entry);
        let ttl_before = ttl_before(&records.ttl);
        let temporary = is_temporary(&key);
        // S2: "At `live_until = N` it is live".
        let expired = matches!(ttl_before, TtlBefore::Until(until, _) if until < place.ledger);
        let dead_before = temporary && expired;
        let is_restored = is_restored(records) || (expired && !temporary);
        let after = after(&records.entry);
        let is_new = before == Before::Absent || is_restored;
        let ttl_after = ttl_after(&records.ttl, &after, is_new);
        let change = Self {
            key,
            key_hash,
            tx: place.tx,
            kind: None,
            before,
            dead_before,
            after,
            ttl_before,
            ttl_after,
        };
        if change.after == After::Same && !is_restored {
            return change.of_ttl(place);
        }
        match ttl_after {
            TtlAfter::Until(until) => place.running.insert(change.key_hash, until),
            TtlAfter::Same => None,
            TtlAfter::Gone | TtlAfter::Lost => place.running.remove(&change.key_hash),
        };
        Some(change.of_entry(is_restored))
    }

    /// A change of the entry, or a restoring.
    fn of_entry(self, is_restored: bool) -> Self {
        let was_absent = self.before == Before::Absent;
        let kind = match &self.after {
            // S1: "A temporary entry whose TTL before was below the ledger […]; erased: no change".
            // Choice: no row, but remembered, with the STATE before it. Else a `created` that follows
            // would say "absent, back to the first" of ledgers in which the data lived.
            After::Gone if self.dead_before || was_absent => None,
            // S1: "restored and removed: `removed`".
            After::Gone => Some(Kind::Removed),
            // S1: "A temporary entry whose TTL before was below the ledger and that is written:
            // `created`".
            After::Value(..) if was_absent || self.dead_before => Some(Kind::Created),
            // S1: "Restored and then updated: `restored` with the last value"; "Protocols 20–22 name
            // no restoring: a persistent entry whose TTL before was below the ledger is `restored`".
            _ if is_restored => Some(Kind::Restored),
            After::Value(after, _) => match &self.before {
                // Choice: with a new TTL, an equal value is a change of the TTL alone.
                Before::Value(before, _) if before == after => {
                    self.changes_ttl().then_some(Kind::Extended)
                }
                _ => Some(Kind::Updated),
            },
            After::Same => None,
        };
        Self { kind, ..self }
    }

    fn changes_ttl(&self) -> bool {
        match (self.ttl_before, self.ttl_after) {
            (TtlBefore::Until(before, _), TtlAfter::Until(after)) => before != after,
            (TtlBefore::NotNamed | TtlBefore::Absent, TtlAfter::Until(_)) => true,
            _ => false,
        }
    }

    /// A change of the TTL alone. S1: "bumps are deferred, and the greatest wins: the live-until
    /// after a ledger is the greatest TTL that the ledger's transactions gave the key since its last
    /// write. A bump that raises nothing is no change." (CAP-63.) Choice: a write that names no TTL
    /// does not end the bumps before it, because it leaves the TTL as they made it.
    fn of_ttl(self, place: Place) -> Option<Self> {
        let TtlAfter::Until(after) = self.ttl_after else { return None };
        let given = place.running.get(&self.key_hash).copied();
        let before = match self.ttl_before {
            TtlBefore::Until(before, _) => Some(before),
            _ => None,
        };
        let current = given.max(before);
        let raises = if place.only_read {
            current.is_none_or(|current| after > current)
        } else {
            given.or(before) != Some(after)
        };
        if !raises {
            return None;
        }
        place.running.insert(self.key_hash, after);
        Some(Self { kind: Some(Kind::Extended), ..self })
    }

    /// An eviction (CAP-62): temporary data is deleted, persistent entries move into the hot archive.
    pub fn evicted(key: LedgerKey, key_hash: KeyHash) -> Self {
        let temporary = is_temporary(&key);
        Self {
            key,
            key_hash,
            tx: None,
            kind: Some(Kind::Evicted),
            before: Before::NotNamed,
            dead_before: temporary,
            after: if temporary { After::Gone } else { After::Same },
            ttl_before: TtlBefore::NotNamed,
            ttl_after: if temporary { TtlAfter::Gone } else { TtlAfter::Same },
        }
    }

    /// Whether the change says what the entry is after it.
    pub fn names_entry(&self) -> bool {
        self.after != After::Same
    }

    /// Whether the change says what the TTL is after it.
    pub fn names_ttl(&self) -> bool {
        self.ttl_after != TtlAfter::Same
    }
}

fn is_restored(records: &Records) -> bool {
    records.entry.iter().any(|one| matches!(one, Record::Restored(..)))
        || records.ttl.iter().any(|one| matches!(one, Record::Restored(..)))
}

fn before(records: &[Record<Value>]) -> Before {
    match records.first() {
        Some(Record::State(value, modified) | Record::Restored(value, modified)) => {
            Before::Value(value.clone(), *modified)
        }
        Some(Record::Created(..)) => Before::Absent,
        _ => Before::NotNamed,
    }
}

fn after(records: &[Record<Value>]) -> After {
    match records.last() {
        Some(
            Record::Created(value, modified)
            | Record::Updated(value, modified)
            | Record::Restored(value, modified),
        ) => After::Value(value.clone(), *modified),
        Some(Record::Removed) => After::Gone,
        Some(Record::State(..)) | None => After::Same,
    }
}

/// A RESTORED record names the new TTL, and none that was before.
fn ttl_before(records: &[Record<u32>]) -> TtlBefore {
    match records.first() {
        Some(Record::State(until, modified)) => TtlBefore::Until(*until, *modified),
        Some(Record::Created(..)) => TtlBefore::Absent,
        _ => TtlBefore::NotNamed,
    }
}

/// `is_new`: the entry's TTL is not the one that it had before.
fn ttl_after(records: &[Record<u32>], after: &After, is_new: bool) -> TtlAfter {
    match (records.last(), after) {
        (_, After::Gone) => TtlAfter::Gone,
        (
            Some(
                Record::Created(until, _) | Record::Updated(until, _) | Record::Restored(until, _),
            ),
            _,
        ) => TtlAfter::Until(*until),
        (Some(Record::Removed), _) => TtlAfter::Lost,
        _ if is_new => TtlAfter::Lost,
        _ => TtlAfter::Same,
    }
}
