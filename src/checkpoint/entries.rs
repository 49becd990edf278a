//! Merges the buckets of a state: of each key, the newest record counts.
//!
//! Two sorts on disk. The first one is by the hash of the key, so that all records of a key are
//! together with those of its lifetime, whose key is that hash; what holds of each goes into the
//! second one, which is by contract and hash.

use std::io;

use orrery_ledger::decode::{BucketList, BucketRecord};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};

use crate::archive::bucket_file;
use crate::bucket::BucketReader;
use crate::error::{CheckpointError, Result};
use crate::fetch::Fetched;
use crate::found::{Found, FoundCode, FoundData, FoundSetting};
use crate::sort::{Sorted, Sorter};
use crate::wanted::{BY_CONTRACT, BY_HASH, Class, LIFE, Part, TOMBSTONE, Wanted};
use crate::work::{Step, Work};

/// Number of records between two reports.
const REPORT_RECORDS: u64 = 4096;

impl Fetched {
    /// Sorts what the state holds, and returns it. Each bucket is read and hashed once more: what is
    /// yielded is of the bytes that the header names, whatever happened to a file meanwhile.
    ///
    /// # Errors
    /// [`CheckpointError::Refused`] when a bucket has a key twice, or both lists have it.
    pub fn entries(&self, work: &Work<'_>) -> Result<Entries> {
        let disk = |error| CheckpointError::disk(work.directory.display(), &error);
        let mut sorter = Sorter::new(work.directory, work.bounds.memory);
        let (mut records, mut bytes) = (0, 0);
        for bucket in &self.state.buckets {
            let (shown, file) = self.open(bucket, work.directory)?;
            let left = work.bounds.total.saturating_sub(bytes);
            let protocol = self.state.commitment.protocol;
            let mut reader =
                BucketReader::new(shown.clone(), *bucket, protocol, file, &work.bounds, left);
            let mut take =
                |record: BucketRecord<'_>| match Wanted::of(&shown, bucket, &record, work)? {
                    Some(wanted) => wanted.push(bucket.age, &mut sorter).map_err(disk),
                    None => Ok(()),
                };
            while reader.next(&mut take)? {
                records += 1;
                if records % REPORT_RECORDS == 0 {
                    work.tell(Step::Sorting { records, of: self.records })?;
                }
            }
            bytes += reader.inflated();
        }
        let by_hash = sorter.finish().map_err(disk)?;
        let found = Merge::new(self, work).run(by_hash)?;
        Ok(Entries { found, directory: work.directory.display().to_string() })
    }
}

/// Merges the records of the first sort, key by key.
struct Merge<'a> {
    fetched: &'a Fetched,
    work: &'a Work<'a>,
    found: Sorter<BY_CONTRACT>,
    /// Hash of the key whose records are read.
    hash: [u8; 32],
    /// Content of the newest record of the live list, and of the hot archive; empty where there is
    /// none, or where that is a tombstone.
    live: Vec<u8>,
    evicted: Vec<u8>,
    live_until: Option<[u8; 4]>,
}

impl<'a> Merge<'a> {
    fn new(fetched: &'a Fetched, work: &'a Work<'a>) -> Self {
        let found = Sorter::new(work.directory, work.bounds.memory);
        let (live, evicted) = (Vec::new(), Vec::new());
        Self { fetched, work, found, hash: [0; 32], live, evicted, live_until: None }
    }

    fn run(mut self, mut records: Sorted<BY_HASH>) -> Result<Sorted<BY_CONTRACT>> {
        let work = self.work;
        let disk = |error| CheckpointError::disk(work.directory.display(), &error);
        let mut last: Option<[u8; BY_HASH]> = None;
        let mut count = 0;
        while let Some((key, content)) = records.next().map_err(disk)? {
            count += 1_u64;
            if count.is_multiple_of(REPORT_RECORDS) {
                let of = self.fetched.records;
                work.tell(Step::Sorting { records: of, of })?;
            }
            let (hash, part) = (&key[..32], key[32]);
            match last {
                Some(last) if last == key => return Err(self.repeated(&key)),
                // Older than the record that counts.
                Some(last) if last[..33] == key[..33] => {}
                _ => {
                    if *hash != self.hash {
                        self.flush()?;
                        self.hash.copy_from_slice(hash);
                    }
                    self.take(part, content);
                }
            }
            last = Some(key);
        }
        self.flush()?;
        // What the first sort took is given back before the second one is merged.
        drop(records);
        self.found.finish().map_err(disk)
    }

    /// Takes the newest record of a part.
    fn take(&mut self, part: u8, content: &[u8]) {
        let Some((tag, rest)) = content.split_first() else { return };
        if *tag == TOMBSTONE {
            return;
        }
        if part == Part::Lifetime as u8 {
            self.live_until = rest.first_chunk().copied();
        } else if part == Part::Live as u8 {
            self.live.extend_from_slice(content);
        } else {
            self.evicted.extend_from_slice(content);
        }
    }

    /// Adds what was found of the current key.
    fn flush(&mut self) -> Result<()> {
        let live_until = self.live_until.take();
        let (content, is_evicted) = match (&*self.live, &*self.evicted) {
            ([], []) => return Ok(()),
            (live, []) => (live, false),
            ([], evicted) => (evicted, true),
            _ => {
                let hash = Hash32(self.hash);
                return Err(CheckpointError::Refused(format!(
                    "the history archive is refused: the entry {hash} is live and in the hot archive \
                     at the same time"
                )));
            }
        };
        let mut key = [0; BY_CONTRACT];
        let (tag, rest) = content.split_first().unwrap_or((&TOMBSTONE, &[]));
        key[0] = *tag;
        key[33..].copy_from_slice(&self.hash);
        let has_owner = *tag == Class::Code as u8 || *tag == Class::Data as u8;
        let (owner, entry) = rest.split_at(if has_owner { 32 } else { 0 });
        key[1..=owner.len()].copy_from_slice(owner);
        // The lifetime of what is evicted has ended with it.
        let live_until = live_until.filter(|_| !is_evicted);
        let known = [u8::from(is_evicted), u8::from(live_until.is_some())];
        let parts = [&known[..], &live_until.unwrap_or_default(), entry];
        let pushed = self.found.push(&key, &parts);
        self.live.clear();
        self.evicted.clear();
        pushed.map_err(|error| CheckpointError::disk(self.work.directory.display(), &error))
    }

    fn repeated(&self, key: &[u8; BY_HASH]) -> CheckpointError {
        let list = if key[32] == Part::HotArchive as u8 {
            BucketList::HotArchive
        } else {
            BucketList::Live
        };
        let mut buckets = self.fetched.state.buckets.iter();
        let bucket = buckets.find(|bucket| bucket.list == list && bucket.age == key[33]);
        let file = bucket.map(|bucket| bucket_file(&bucket.hash)).unwrap_or_default();
        let hash = Hash32(self.hash);
        let shown = self.fetched.archive.shown(&file);
        CheckpointError::refused(shown, format!("it has the entry {hash} twice"))
    }
}

/// What is found in a state: an iterator, in the order that [`Found`] has. It holds what is left of it
/// on disk until it is dropped.
pub struct Entries {
    found: Sorted<BY_CONTRACT>,
    directory: String,
}

impl Iterator for Entries {
    type Item = Result<Found>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.found.next();
        let read = next.map(|record| record.map(|(key, content)| found(&key, content)));
        match read {
            Ok(found) => found.map(|found| {
                found.ok_or_else(|| {
                    let error = io::Error::other("it was changed by somebody else");
                    CheckpointError::disk(&self.directory, &error)
                })
            }),
            Err(error) => Some(Err(CheckpointError::disk(&self.directory, &error))),
        }
    }
}

/// Reads a record of the second sort; `None` when it is not one that [`Merge`] has written.
fn found(key: &[u8; BY_CONTRACT], content: &[u8]) -> Option<Found> {
    let ([is_evicted, is_known, number @ ..], entry) = content.split_first_chunk::<LIFE>()?;
    let owner: [u8; 32] = key[1..33].try_into().ok()?;
    let hash: [u8; 32] = key[33..].try_into().ok()?;
    let live_until = (*is_known == 1).then(|| LedgerSeq(u32::from_be_bytes(*number)));
    let is_evicted = *is_evicted == 1;
    Some(match Class::of(key[0])? {
        Class::Setting => Found::Setting(FoundSetting { entry: entry.to_vec() }),
        Class::Code => {
            let last_modified = LedgerSeq(u32::from_be_bytes(entry.try_into().ok()?));
            Found::Code(FoundCode { hash: Hash32(owner), last_modified, live_until, is_evicted })
        }
        Class::Data => Found::Data(FoundData {
            contract: ContractId(owner),
            key_hash: Hash32(hash),
            entry: entry.to_vec(),
            live_until,
            is_evicted,
        }),
    })
}
