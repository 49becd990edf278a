//! What checkpoints have: the state of contracts at the end of a ledger, as a history archive has it and
//! as the ledger's header proves it. An entry has a row if no stored change says what it is; what has
//! neither does not exist.
//!
//! Rows count only once the state of their checkpoint is recorded whole, and as long as no stored ledger
//! contradicts it. Which rows there are depends on what was stored when they were recorded, answers do
//! not: where a change says something, a row says the same.

use std::borrow::Cow;
use std::ops::ControlFlow;

use orrery_ledger::decode::{EntryKey, EntryKind};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{RowCodec, Rows, StoreError, Table, TransactionPosition, row_codec};

use super::entry::{DataKey, Durability, modified};
use super::rows::{Given, Key, end_of};

/// Checkpoints whose state is recorded.
pub(super) const CHECKPOINTS: Table<LedgerSeq, CheckpointRow> = Table::new("checkpoints");
/// Contracts whose state at a checkpoint is recorded, where it is not that of all contracts.
pub(super) const CHECKED: Table<(ContractId, LedgerSeq), ()> = Table::new("checked");
/// Checkpoints that are not as the stored ledgers say: they count for nothing.
pub(super) const REFUSED: Table<LedgerSeq, Difference> = Table::new("refused");
/// Entries that a checkpoint has.
pub(super) const FOUND: Table<(LedgerSeq, Key), FoundRow> = Table::new("found");

/// A checkpoint whose state is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckpointRow {
    /// Whether trusted validators attested the header that proves it.
    pub is_attested: bool,
    /// Whether it is recorded for all contracts.
    pub is_whole: bool,
}

row_codec!(CheckpointRow { is_attested, is_whole });

/// Where a checkpoint is not as the stored ledgers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The contract.
    pub contract: ContractId,
    /// The SHA-256 of the key's XDR `LedgerKey`.
    pub key_hash: Hash32,
    /// The stored ledger that says something else.
    pub ledger: LedgerSeq,
}

row_codec!(Difference { contract, key_hash, ledger });

/// An entry that a checkpoint has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundRow {
    /// Last ledger in which it is live; 0 when the state does not say it, as for all that is evicted.
    pub live_until: LedgerSeq,
    /// Whether it is evicted.
    pub is_evicted: bool,
    /// XDR `LedgerEntry`.
    pub entry: Vec<u8>,
}

row_codec!(FoundRow { live_until, is_evicted, entry });

impl FoundRow {
    /// Returns the key.
    pub fn key(&self) -> Option<DataKey<'_>> {
        key_of(&self.entry)
    }

    /// Whether it is temporary, and its time was over at a ledger.
    pub fn is_dead(&self, ledger: LedgerSeq) -> bool {
        self.live_until.0 > 0
            && self.live_until < ledger
            && self.key().is_some_and(|key| key.durability() == Durability::Temporary)
    }
}

/// Returns the key of an XDR `LedgerEntry` of contract data; `None` for others, and for nonces.
pub(super) fn key_of(entry: &[u8]) -> Option<DataKey<'_>> {
    let key = EntryKey::of_entry(entry).ok()??;
    let body = Some(key.body).filter(|_| key.kind == EntryKind::ContractData)?;
    DataKey::of(Cow::Borrowed(body))
}

/// Checkpoints that count.
#[derive(Debug, Default)]
pub(super) struct Checkpoints(Vec<(LedgerSeq, CheckpointRow)>);

impl Checkpoints {
    /// Reads them.
    pub fn load(rows: &dyn Rows) -> Result<Self, StoreError> {
        let mut all = Vec::new();
        CHECKPOINTS.scan_all(rows, None, |ledger, row| {
            all.push((ledger, row));
            Ok(ControlFlow::Continue(()))
        })?;
        let mut usable = Vec::new();
        for (ledger, row) in all {
            if !REFUSED.has(rows, &ledger)? {
                usable.push((ledger, row));
            }
        }
        Ok(Self(usable))
    }

    /// Leaves out the one of a ledger and all later ones. Returns whether the former counted.
    pub fn leave_out_from(&mut self, ledger: LedgerSeq) -> bool {
        let counted = self.0.iter().any(|(known, _)| *known == ledger);
        self.0.retain(|(known, _)| *known < ledger);
        counted
    }

    /// Returns those of a range that have the state of a contract, ascending.
    pub fn of(
        &self,
        rows: &dyn Rows,
        contract: &ContractId,
        range: LedgerRange,
    ) -> Result<Vec<LedgerSeq>, StoreError> {
        let mut found = Vec::new();
        for (ledger, row) in self.0.iter().filter(|(ledger, _)| range.contains(*ledger)) {
            if row.is_whole || CHECKED.has(rows, &(*contract, *ledger))? {
                found.push(*ledger);
            }
        }
        Ok(found)
    }

    /// Returns what those of a range have of a key around a position.
    pub fn around(
        &self,
        rows: &dyn Rows,
        of: Key,
        range: LedgerRange,
        at: TransactionPosition,
    ) -> Result<Around, StoreError> {
        let mut around = Around::default();
        for ledger in self.of(rows, &of.0, range)? {
            let row = FOUND.get(rows, &(ledger, of))?.map(|row| (ledger, row));
            if end_of(ledger) <= at {
                around.newest = Some(ledger);
                let given =
                    row.as_ref().map(|(at, row)| Given { live_until: row.live_until, at: *at });
                around.life = given.filter(|it| it.live_until.0 > 0).or(around.life);
                around.before = row.or(around.before);
            } else if row.is_some() {
                around.after = row;
                break;
            }
        }
        Ok(around)
    }
}

/// What checkpoints have of a key around a position.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// The newest checkpoint at or before the position that has the contract's state.
    pub newest: Option<LedgerSeq>,
    /// The newest row of those, and its checkpoint.
    pub before: Option<(LedgerSeq, FoundRow)>,
    /// The time to live in the newest of them that has one: once an entry is evicted, the state does not say
    /// it.
    pub life: Option<Given>,
    /// The first row after the position, and its checkpoint.
    after: Option<(LedgerSeq, FoundRow)>,
}

impl Around {
    /// Returns the entry of the first checkpoint after a ledger that had not been written since that
    /// ledger.
    pub fn later(&self, ledger: LedgerSeq) -> Option<(LedgerSeq, &FoundRow)> {
        let (at, row) = self.after.as_ref()?;
        modified(&row.entry).is_some_and(|since| since <= ledger.0).then_some((*at, row))
    }
}
