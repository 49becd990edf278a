//! What counts for smart contracts in the records of buckets, in the form in which it is sorted, and
//! how much disk that takes.

use std::io;

use orrery_ledger::decode::{
    BucketList, BucketRecord, EntryKey, EntryKind, StateKey, XdrError, last_modified, live_until,
};

use crate::error::{CheckpointError, Result};
use crate::sort::{NOT_YET_GIVEN_BACK, Sorter, disk, record_size};
use crate::state::Bucket;
use crate::work::Work;

/// Length of the keys of the first sort: hash of the key, what is said of it ([`Part`]), age.
pub(crate) const BY_HASH: usize = 32 + 1 + 1;
/// Length of the keys of the second sort: [`Class`], contract or hash of the code, hash of the key.
pub(crate) const BY_CONTRACT: usize = 1 + 32 + 32;
/// Length of what stands before the entry in the second sort: whether it was evicted, whether its
/// lifetime is known, and its lifetime.
pub(crate) const LIFE: usize = 1 + 1 + 4;

/// What a record says something of. The parts of one key are sorted in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Part {
    Live = 0,
    Lifetime = 1,
    HotArchive = 2,
}

/// Kinds of what is found, in the order in which they are yielded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    Setting = 0,
    Code = 1,
    Data = 2,
}

impl Class {
    /// Returns the class of a number.
    pub fn of(number: u8) -> Option<Self> {
        [Self::Setting, Self::Code, Self::Data].into_iter().find(|class| *class as u8 == number)
    }
}

/// First byte of a record's content in the first sort: of an entry its [`Class`].
pub(crate) const TOMBSTONE: u8 = 255;
const LIFETIME: u8 = 254;

/// A record of a bucket that counts for smart contracts.
pub(crate) struct Wanted<'a> {
    part: Part,
    key: StateKey<'a>,
    /// First byte of the content, which consists of this and of the other fields.
    tag: u8,
    /// Contract, or hash of the code.
    owner: &'a [u8],
    /// Last modification of code, or the end of a lifetime.
    number: Option<[u8; 4]>,
    /// XDR `LedgerEntry` of data and settings.
    entry: &'a [u8],
}

impl<'a> Wanted<'a> {
    /// Returns what counts in a record of `bucket`, a file that is named `shown`; `None` when nothing
    /// does.
    pub fn of(
        shown: &str,
        bucket: &Bucket,
        record: &BucketRecord<'a>,
        work: &Work<'_>,
    ) -> Result<Option<Self>> {
        let (key, entry) = match *record {
            BucketRecord::Metadata { .. } => return Ok(None),
            BucketRecord::Entry { key, entry } => (key, Some(entry)),
            BucketRecord::Tombstone(key) => (key, None),
        };
        let part = match (bucket.list, key) {
            (BucketList::HotArchive, key) if !may_be_evicted(&key) => {
                let reason = "it has an entry that is never archived";
                return Err(CheckpointError::refused(shown, reason));
            }
            (BucketList::HotArchive, _) => Part::HotArchive,
            (_, StateKey::Entry(EntryKey { kind: EntryKind::Ttl, .. })) => Part::Lifetime,
            _ => Part::Live,
        };
        if !counts(shown, &key, work)? {
            return Ok(None);
        }
        let tombstone = Self { part, key, tag: TOMBSTONE, owner: &[], number: None, entry: &[] };
        let Some(entry) = entry else { return Ok(Some(tombstone)) };
        let number = |number: Result<u32, XdrError>| match number {
            Ok(number) => Ok(Some(number.to_be_bytes())),
            Err(reason) => Err(CheckpointError::refused(shown, reason)),
        };
        Ok(Some(match key {
            StateKey::Entry(EntryKey { kind: EntryKind::Ttl, .. }) => {
                Self { tag: LIFETIME, number: number(live_until(entry))?, ..tombstone }
            }
            StateKey::Entry(EntryKey { kind: EntryKind::ContractCode, body }) => {
                let number = number(last_modified(entry))?;
                Self { tag: Class::Code as u8, owner: body, number, ..tombstone }
            }
            StateKey::Entry(EntryKey { body, .. }) => {
                // The contract follows the kind of the address.
                let owner = body.get(4..36).unwrap_or_default();
                Self { tag: Class::Data as u8, owner, entry, ..tombstone }
            }
            StateKey::Setting(_) | StateKey::Other => {
                Self { tag: Class::Setting as u8, entry, ..tombstone }
            }
        }))
    }

    fn size(&self) -> u64 {
        record_size(BY_HASH, 1 + self.owner.len() + self.number().len() + self.entry.len())
    }

    /// Size of the record in the second sort, if this one counts there.
    fn size_of_found(&self) -> u64 {
        match self.tag {
            TOMBSTONE | LIFETIME => 0,
            _ => record_size(BY_CONTRACT, LIFE + self.number().len() + self.entry.len()),
        }
    }

    fn number(&self) -> &[u8] {
        self.number.as_ref().map_or(&[], |number| number)
    }

    /// Adds the record to the first sort.
    pub fn push(&self, age: u8, sorter: &mut Sorter<BY_HASH>) -> io::Result<()> {
        let Some(hash) = self.key.hash() else { return Ok(()) };
        let mut key = [0; BY_HASH];
        key[..32].copy_from_slice(hash.as_bytes());
        key[32] = self.part as u8;
        key[33] = age;
        sorter.push(&key, &[&[self.tag], self.owner, self.number(), self.entry])
    }
}

/// Whether what is said of a key is wanted.
///
/// # Errors
/// For data that belongs to no contract, which only nonces do.
fn counts(shown: &str, key: &StateKey<'_>, work: &Work<'_>) -> Result<bool> {
    let StateKey::Entry(own) = key else { return Ok(matches!(key, StateKey::Setting(_))) };
    match own.kind {
        EntryKind::Account | EntryKind::Trustline => Ok(false),
        EntryKind::ContractCode | EntryKind::Ttl => Ok(true),
        EntryKind::ContractData if key.is_nonce() => Ok(false),
        EntryKind::ContractData => match own.contract() {
            Some(contract) => Ok(work.wants(&contract)),
            None => {
                let reason = "it has contract data that belongs to no contract";
                Err(CheckpointError::refused(shown, reason))
            }
        },
    }
}

/// Whether an entry can be in the hot archive: code, or persistent data.
fn may_be_evicted(key: &StateKey<'_>) -> bool {
    // `PERSISTENT`, the end of a key of data.
    const PERSISTENT: [u8; 4] = [0, 0, 0, 1];
    match key {
        StateKey::Entry(EntryKey { kind: EntryKind::ContractData, body }) => {
            body.ends_with(&PERSISTENT)
        }
        StateKey::Entry(EntryKey { kind, .. }) => *kind == EntryKind::ContractCode,
        StateKey::Setting(_) | StateKey::Other => false,
    }
}

/// Counts how much disk both sorts take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    by_hash: u64,
    by_contract: u64,
    /// By how much records of the second sort are larger than those of the first one from which they
    /// are made.
    growth: u64,
}

impl Tally {
    /// Counts a record of a bucket.
    pub fn add(
        &mut self,
        shown: &str,
        bucket: &Bucket,
        record: &BucketRecord<'_>,
        work: &Work<'_>,
    ) -> Result<()> {
        if let Some(wanted) = Wanted::of(shown, bucket, record, work)? {
            self.by_hash += wanted.size();
            self.by_contract += wanted.size_of_found();
            self.growth += wanted.size_of_found().saturating_sub(wanted.size());
        }
        Ok(())
    }

    /// Returns how much disk both sorts take at most, if they have `memory`: what the first one gives
    /// back, the second one takes, if the file system `gives_back`.
    pub fn disk(&self, memory: usize, gives_back: bool) -> u64 {
        let at_once = disk(self.by_hash, memory).saturating_add(disk(self.by_contract, memory));
        let one_by_one =
            self.by_hash.saturating_add(self.growth).saturating_add(NOT_YET_GIVEN_BACK);
        if gives_back { at_once.min(one_by_one) } else { at_once }
    }
}
