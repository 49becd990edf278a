//! Stored form of changes of contract data in the row log, with what is known of each: those of a
//! transaction, or the evictions of a ledger.
//!
//! Layout of a change, integers big-endian: contract (32 bytes), SHA-256 of the XDR `LedgerKey` (32), what
//! happened (1: the number of a [`DataChangeKind`]), what is known (1: [`TEMPORARY`], [`LIVE_UNTIL`],
//! [`KEY`], [`VALUE`], [`SURE`], [`APART`]), number of interfaces (1) and each of them, the last ledger in which the
//! entry is live (4), the XDR `ScVal` of the key and that of the value, each after its length (4); the last
//! three only if they are known.

use std::iter;

use super::declared_by::DeclaredBy;
use crate::rows::{Damaged, Reader, length};
use orrery_contract_data::{Durability, Event, Kind};
use orrery_ledger::domain::{ContractId, Hash32};

const TEMPORARY: u8 = 1;
const LIVE_UNTIL: u8 = 2;
const KEY: u8 = 4;
const VALUE: u8 = 8;
const SURE: u8 = 16;
const APART: u8 = 32;

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DataChangeKind {
    /// There was no entry, or a temporary one that was dead.
    Created,
    /// The entry has another value.
    Updated,
    /// The entry is gone.
    Removed,
    /// The entry was archived, and is live again.
    Restored,
    /// The entry lives longer.
    Extended,
    /// The ledger evicted the entry, after all its transactions.
    Evicted,
    /// The entry was there before the first ledger of the project, or nothing before a checkpoint says what it
    /// was.
    Found,
}

impl DataChangeKind {
    const ALL: [Self; 7] = [
        Self::Created,
        Self::Updated,
        Self::Removed,
        Self::Restored,
        Self::Extended,
        Self::Evicted,
        Self::Found,
    ];

    /// Returns the name in the column `change`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => Kind::Created.name(),
            Self::Updated => Kind::Updated.name(),
            Self::Removed => Kind::Removed.name(),
            Self::Restored => Kind::Restored.name(),
            Self::Extended => Kind::Extended.name(),
            Self::Evicted => Event::Evicted.name(),
            Self::Found => Event::Found.name(),
        }
    }
}

impl From<Event> for DataChangeKind {
    fn from(event: Event) -> Self {
        match event {
            Event::Changed(Kind::Created) => Self::Created,
            Event::Changed(Kind::Updated) => Self::Updated,
            Event::Changed(Kind::Removed) => Self::Removed,
            Event::Changed(Kind::Restored) => Self::Restored,
            Event::Changed(Kind::Extended) => Self::Extended,
            Event::Evicted => Self::Evicted,
            Event::Found => Self::Found,
        }
    }
}

/// A change of an entry, as it is stored for a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedChange<'a> {
    /// The contract.
    pub contract: ContractId,
    /// The SHA-256 of the XDR `LedgerKey`.
    pub key_hash: Hash32,
    /// What happened.
    pub kind: DataChangeKind,
    /// How long the entry can live.
    pub durability: Durability,
    /// Last ledger in which the entry is live; `None` when it is not known, or there is no entry.
    pub live_until: Option<u32>,
    /// XDR `ScVal` of the contract's own key; `None` when it is not known.
    pub key: Option<&'a [u8]>,
    /// XDR `ScVal` that holds from then on; `None` when there is none, or it is not known.
    pub value: Option<&'a [u8]>,
    /// The interfaces by which key and value are written.
    pub interfaces: Vec<DeclaredBy>,
    /// Whether these are all that the contract had.
    pub is_sure: bool,
    /// Whether it is not known if it belongs to the project: then it is no row.
    pub is_apart: bool,
}

impl LoggedChange<'_> {
    /// Whether more may become known of it than what is in the ledgers up to its own. Nothing is looked for that
    /// is no row.
    pub fn is_open(&self) -> bool {
        let has_entry = match self.kind {
            DataChangeKind::Removed => false,
            DataChangeKind::Evicted => self.durability == Durability::Persistent,
            _ => true,
        };
        let lacks_entry = has_entry && (self.value.is_none() || self.live_until.is_none());
        !self.is_apart && (self.key.is_none() || lacks_entry)
    }
}

/// The changes of a transaction, in stored form.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoggedChanges<'a>(pub(super) &'a [u8]);

impl<'a> LoggedChanges<'a> {
    /// As [`Self::iter`], those that are rows.
    pub fn rows(&self) -> impl Iterator<Item = Result<LoggedChange<'a>, Damaged>> + use<'a> {
        self.iter().filter(|change| !change.as_ref().is_ok_and(|change| change.is_apart))
    }

    /// The changes in stored order; ends with the first that is damaged.
    pub fn iter(&self) -> impl Iterator<Item = Result<LoggedChange<'a>, Damaged>> + use<'a> {
        let mut rest = Reader(self.0);
        iter::from_fn(move || {
            if rest.0.is_empty() {
                return None;
            }
            let change = change(&mut rest);
            if change.is_err() {
                rest = Reader(&[]);
            }
            Some(change)
        })
    }
}

/// Writes the stored form of changes.
#[derive(Debug, Clone, Default)]
pub struct ChangesWriter(Vec<u8>);

impl ChangesWriter {
    /// Adds a change.
    ///
    /// # Errors
    /// [`Damaged`] when a part is longer than the form allows, which none is.
    pub fn push(&mut self, change: &LoggedChange<'_>) -> Result<(), Damaged> {
        let LoggedChange { contract, key_hash, kind, durability, .. } = change;
        let out = &mut self.0;
        out.extend_from_slice(contract.as_bytes());
        out.extend_from_slice(key_hash.as_bytes());
        out.push(*kind as u8);
        let known = [
            (TEMPORARY, *durability == Durability::Temporary),
            (LIVE_UNTIL, change.live_until.is_some()),
            (KEY, change.key.is_some()),
            (VALUE, change.value.is_some()),
            (SURE, change.is_sure),
            (APART, change.is_apart),
        ];
        out.push(known.iter().filter(|(_, is)| *is).map(|(mark, _)| mark).sum());
        out.push(u8::try_from(change.interfaces.len()).map_err(|_| Damaged)?);
        change.interfaces.iter().for_each(|by| by.write(out));
        if let Some(live_until) = change.live_until {
            out.extend_from_slice(&live_until.to_be_bytes());
        }
        for part in [change.key, change.value].into_iter().flatten() {
            out.extend_from_slice(&length(part.len())?);
            out.extend_from_slice(part);
        }
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the stored form.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The changes so far.
    pub fn changes(&self) -> LoggedChanges<'_> {
        LoggedChanges(&self.0)
    }
}

fn change<'a>(from: &mut Reader<'a>) -> Result<LoggedChange<'a>, Damaged> {
    let contract = ContractId(from.array()?);
    let key_hash = Hash32(from.array()?);
    let [kind] = from.array()?;
    let kind = DataChangeKind::ALL.get(usize::from(kind)).copied().ok_or(Damaged)?;
    let [known] = from.array()?;
    let has = |mark: u8| known & mark != 0;
    let durability = if has(TEMPORARY) { Durability::Temporary } else { Durability::Persistent };
    let [count] = from.array()?;
    let interfaces = (0..count).map(|_| DeclaredBy::read(from)).collect::<Result<_, _>>()?;
    let live_until = match has(LIVE_UNTIL) {
        true => Some(u32::from_be_bytes(from.array()?)),
        false => None,
    };
    let key = if has(KEY) { Some(from.part()?) } else { None };
    let value = if has(VALUE) { Some(from.part()?) } else { None };
    Ok(LoggedChange {
        contract,
        key_hash,
        kind,
        durability,
        live_until,
        key,
        value,
        interfaces,
        is_sure: has(SURE),
        is_apart: has(APART),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<LoggedChange<'static>> {
        let whole = LoggedChange {
            contract: ContractId([1; 32]),
            key_hash: Hash32([2; 32]),
            kind: DataChangeKind::Created,
            durability: Durability::Temporary,
            live_until: Some(7),
            key: Some(&[1, 2, 3, 4]),
            value: Some(&[]),
            interfaces: vec![DeclaredBy::Asset, DeclaredBy::Code(Hash32([3; 32]))],
            is_sure: true,
            is_apart: false,
        };
        let bare = LoggedChange {
            kind: DataChangeKind::Evicted,
            durability: Durability::Persistent,
            live_until: None,
            key: None,
            value: None,
            interfaces: Vec::new(),
            is_sure: false,
            ..whole.clone()
        };
        vec![whole, bare]
    }

    #[test]
    fn a_change_that_may_not_belong_to_the_project_is_no_row_and_not_looked_at() {
        let [whole, bare] = &changes()[..] else { panic!("two") };
        let apart = LoggedChange { is_apart: true, ..bare.clone() };
        assert!(!apart.is_open());
        let mut writer = ChangesWriter::default();
        [whole, &apart, bare].iter().for_each(|change| writer.push(change).unwrap());
        let read: Vec<_> = writer.changes().iter().map(Result::unwrap).collect();
        assert_eq!(read, [whole.clone(), apart, bare.clone()]);
        let rows: Vec<_> = writer.changes().rows().map(Result::unwrap).collect();
        assert_eq!(rows, [whole.clone(), bare.clone()]);
    }

    #[test]
    fn changes_round_trip() {
        let mut writer = ChangesWriter::default();
        changes().iter().for_each(|change| writer.push(change).unwrap());
        let read: Vec<_> = writer.changes().iter().map(Result::unwrap).collect();
        assert_eq!(read, changes());
        for end in 1..writer.0.len() {
            let mut read = LoggedChanges(&writer.0[..end]).iter();
            let is_whole = read.by_ref().all(|change| change.is_ok());
            let mut first = ChangesWriter::default();
            first.push(&changes()[0]).unwrap();
            assert_eq!(is_whole, end == first.0.len(), "{end}");
        }
    }

    #[test]
    fn a_change_of_which_something_is_missing_is_open() {
        let [whole, bare] = &changes()[..] else { panic!("two") };
        assert!(!whole.is_open() && bare.is_open());
        for (change, is_open) in [
            (LoggedChange { live_until: None, ..whole.clone() }, true),
            (LoggedChange { value: None, ..whole.clone() }, true),
            (LoggedChange { key: Some(&[1]), ..bare.clone() }, true),
        ] {
            assert_eq!(change.is_open(), is_open);
        }
        let removed = LoggedChange {
            kind: DataChangeKind::Removed,
            value: None,
            live_until: None,
            ..whole.clone()
        };
        let deleted = LoggedChange { kind: DataChangeKind::Evicted, ..removed.clone() };
        assert!(!removed.is_open() && !deleted.is_open());
    }
}
