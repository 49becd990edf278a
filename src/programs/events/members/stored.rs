//! Stored form of the members of a project, and how far they were looked for.

use serde::{Deserialize, Serialize};

use super::index::Flags;
use super::rank::Rank;
use crate::events::Unsure;
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, Hash32, ProgramId};
use orrery_store::{RowCodec, Store, StoreError, TransactionPosition};

/// A member, or what would be one if the project had not as many as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredMember {
    /// Why it is one.
    pub flags: Flags,
    /// Whether its earlier events have yet to be read.
    pub pending: bool,
    /// Whether its changes have yet to be recorded.
    pub unrecorded: bool,
    /// Whether it is none, because others became members before.
    pub is_out: bool,
    /// When it became one, once its changes are recorded.
    pub rank: Rank,
    /// Whether only the first of the times are recorded in which it ran the codes of the project.
    pub is_cut: bool,
}

impl StoredMember {
    /// Returns why it is one, as it is in memory: nothing of what is none.
    pub fn in_memory(&self) -> Flags {
        if self.is_out { Flags::default() } else { self.flags.without(Flags::BY_NAME) }
    }
}

impl RowCodec for StoredMember {
    fn write(&self, to: &mut Vec<u8>) {
        ((self.flags.byte(), self.pending), self.unrecorded).write(to);
        (self.is_out, self.rank).write(to);
        self.is_cut.write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let ((flags, pending), unrecorded) = <((u8, bool), bool)>::read(bytes)?;
        let flags = Flags::from_byte(flags);
        if bytes.is_empty() {
            // Of an earlier version, which did not find out when it became one.
            return Some(Self { flags, pending, unrecorded: true, ..Self::default() });
        }
        let (is_out, rank) = RowCodec::read(bytes)?;
        // An earlier version did not say it.
        let is_cut = !bytes.is_empty() && bool::read(bytes)?;
        Some(Self { flags, pending, unrecorded, is_out, rank, is_cut })
    }
}

/// Where a factory announced a contract first: a place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Announcement {
    /// The transaction.
    pub at: TransactionPosition,
    /// Index of the event in it.
    pub index: u32,
    /// Hash of the transaction.
    pub transaction: Hash32,
}

impl Announcement {
    /// Returns when the contract became a member by it.
    pub fn rank(&self) -> Rank {
        Rank::at_event(self.at, self.index)
    }
}

impl RowCodec for Announcement {
    fn write(&self, to: &mut Vec<u8>) {
        ((self.at, self.index), self.transaction).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let ((at, index), transaction) = RowCodec::read(bytes)?;
        Some(Self { at, index, transaction })
    }
}

/// How far the members of a project were looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// Number of the last thing that was learnt of creations and codes.
    pub learnt: u64,
    /// Number of the contracts that the project names when it was looked last.
    #[serde(default)]
    pub named: usize,
    /// The ranges of stored ledgers with which the changes of members were recorded, without the end of the newest.
    #[serde(default)]
    pub recorded_with: Vec<(u32, u32)>,
    /// Number of entries of the row log with changes of members.
    #[serde(default)]
    pub entries: u32,
    /// Id of the last event of a factory that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// Transactions with events of factories whose code at the time is not known.
    #[serde(default, skip_serializing_if = "Unsure::is_empty")]
    pub unsure: Unsure,
}

/// Reads the cursor of a project; `None` before its members were looked for.
pub fn cursor(store: &Store, program: ProgramId) -> Result<Option<Cursor>, ProgramError> {
    let Some(stored) = store.shared_row(&storage::member_cursor(program))? else { return Ok(None) };
    let cursor = serde_json::from_slice(&stored);
    cursor.map(Some).map_err(|_| ProgramError::Damaged("how far members were looked for"))
}

/// Reads a member of a project; `None` where it is none.
pub fn member(
    store: &Store,
    program: ProgramId,
    contract: &ContractId,
) -> Result<Option<StoredMember>, ProgramError> {
    let row = storage::member(program, contract);
    let Some(stored) = store.shared_row(&row)? else { return Ok(None) };
    let member = StoredMember::decode(&stored).ok_or_else(|| row.damaged())?;
    Ok(Some(member))
}

/// Reads the members of a project, by id.
pub fn members(
    store: &Store,
    program: ProgramId,
) -> Result<Vec<(ContractId, StoredMember)>, StoreError> {
    let mut found = Vec::new();
    storage::members_after(store, program, None, |contract, row| {
        let damaged = || storage::member(program, &contract).damaged();
        found.push((contract, StoredMember::decode(row).ok_or_else(damaged)?));
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(found)
}
