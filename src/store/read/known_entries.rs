//! Answers of other servers about ledger entries, stored so that no question is sent twice. An
//! answer holds for an interval of ledgers; it is not derived from stored ledgers and is not needed
//! to rebuild them. The total size is limited: beyond the limit a part of the answers is evicted,
//! and requested again when needed.

use orrery_ledger::domain::LedgerSeq;
use sha2::{Digest, Sha256};

use crate::db::database::Batch;
use crate::encoding::bytes::{Malformed, Reader};
use crate::encoding::columns::{Family, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::indexes::index;
use crate::state::store::Store;

/// Maximum number of answers per entry; the oldest is evicted.
const MAX_ANSWERS_PER_ENTRY: usize = 16;

/// Maximum size of all answers in bytes. Users choose which entries are requested, so the size must
/// be bounded.
const MAX_BYTES: u64 = 256 << 20;
/// Bytes evicted when the maximum is exceeded. Keys begin with a hash, so the evicted answers are
/// spread over all users' entries.
const EVICTION_BYTES: u64 = MAX_BYTES / 16;

const IS_PRESENT: u8 = 1;
const HAS_TTL: u8 = 2;
/// Length of the hash of an entry's key.
const HASH: usize = 32;

/// State of an entry that another server returned: it holds at the end of each ledger from `from`
/// to `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownEntry {
    /// Ledger in which the entry took this state; for an absent entry, the first ledger for which
    /// its absence is known.
    pub from: LedgerSeq,
    /// Last ledger for which the state is known.
    pub to: LedgerSeq,
    /// XDR `LedgerEntry`; `None` when the entry is absent.
    pub entry: Option<Vec<u8>>,
    /// Last ledger in which the entry is live, as of `to`; `None` when it has no TTL or is absent.
    pub live_until: Option<u32>,
}

impl KnownEntry {
    fn encode(&self) -> Vec<u8> {
        let flags = if self.entry.is_some() { IS_PRESENT } else { 0 }
            | if self.live_until.is_some() { HAS_TTL } else { 0 };
        let mut out = vec![flags];
        out.extend_from_slice(&self.to.0.to_be_bytes());
        out.extend_from_slice(&self.live_until.unwrap_or(0).to_be_bytes());
        out.extend_from_slice(self.entry.as_deref().unwrap_or_default());
        out
    }

    fn decode(from: LedgerSeq, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        let to = LedgerSeq(reader.u32()?);
        let live_until = reader.u32()?;
        let entry = reader.rest();
        if flags > IS_PRESENT | HAS_TTL
            || to < from
            || (flags & IS_PRESENT == 0) != entry.is_empty()
        {
            return Err(Malformed);
        }
        Ok(Self {
            from,
            to,
            entry: (flags & IS_PRESENT != 0).then(|| entry.to_vec()),
            live_until: (flags & HAS_TTL != 0).then_some(live_until),
        })
    }
}

/// Checks that a row of `known_entries` is well-formed.
pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<(), Malformed> {
    parse(key, value).map(|_| ())
}

/// Returns the key of an answer: the whole hash of the entry's key, because there is no record to
/// verify a shorter tag against, then the ledger from which the answer holds.
fn key(hash: &[u8; HASH], from: LedgerSeq) -> Vec<u8> {
    index::key(hash, &LedgerKey(from))
}

fn parse(key: &[u8], value: &[u8]) -> Result<KnownEntry, Malformed> {
    KnownEntry::decode(index::record_key::<LedgerKey>(HASH, key)?.0, value)
}

impl Store {
    /// Returns the stored answers about the entry with this XDR `LedgerKey`, oldest first.
    pub fn known_entries(&self, ledger_key: &[u8]) -> Result<Vec<KnownEntry>, StoreError> {
        let hash: [u8; 32] = Sha256::digest(ledger_key).into();
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::KnownEntries)?;
        let mut known = Vec::new();
        rows.seek(hash);
        while let Some((key, value)) = rows.item().filter(|(key, _)| key.starts_with(&hash)) {
            known.push(parse(key, value).map_err(corrupt(Family::KnownEntries, key))?);
            rows.next();
        }
        rows.status()?;
        Ok(known)
    }

    /// Stores answers, each under its XDR `LedgerKey`. Does nothing while an import has ledgers
    /// that are not durable yet; those answers will be requested again.
    pub fn put_known_entries(&self, answers: &[(Vec<u8>, KnownEntry)]) -> Result<(), StoreError> {
        self.put_known_entries_within(answers, MAX_BYTES, EVICTION_BYTES)
    }

    fn put_known_entries_within(
        &self,
        answers: &[(Vec<u8>, KnownEntry)],
        most: u64,
        eviction_bytes: u64,
    ) -> Result<(), StoreError> {
        if self.database.has_unlogged() {
            return Ok(());
        }
        let mut counted = self.known_bytes.lock();
        let mut bytes = match *counted {
            Some(bytes) => bytes,
            None => self.known_entry_bytes()?,
        };
        let mut batch = self.database.batch();
        for (ledger_key, answer) in answers {
            let hash: [u8; 32] = Sha256::digest(ledger_key).into();
            let known = self.known_entries(ledger_key)?;
            let same = known.iter().find(|known| known.from == answer.from);
            if same.is_some_and(|same| same.to >= answer.to) {
                continue;
            }
            let row = answer.encode();
            bytes += row_bytes(&row);
            bytes -= same.map_or(0, |same| row_bytes(&same.encode())).min(bytes);
            batch.put_raw(Family::KnownEntries, &key(&hash, answer.from), &row)?;
            if same.is_none() && known.len() >= MAX_ANSWERS_PER_ENTRY {
                bytes -= row_bytes(&known[0].encode()).min(bytes);
                batch.delete_raw(Family::KnownEntries, &key(&hash, known[0].from))?;
            }
        }
        if bytes > most {
            let first = answers.first().map(|(key, _)| Sha256::digest(key).into());
            bytes -= self.evict_entries(&mut batch, first.unwrap_or_default(), eviction_bytes)?;
        }
        // If the write fails, the size is counted again, because the write may have taken effect.
        *counted = None;
        let batch = batch.detach();
        self.writer_thread.run(move |database| database.write_logged(database.attach(batch)))?;
        *counted = Some(bytes);
        Ok(())
    }

    /// Deletes `wanted` bytes of answers or slightly more, beginning with the entries whose hashes
    /// follow `after`, which makes the choice arbitrary. Returns the number of bytes deleted.
    fn evict_entries(
        &self,
        batch: &mut Batch<'_>,
        after: [u8; 32],
        wanted: u64,
    ) -> Result<u64, StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::KnownEntries)?;
        let mut evicted = 0;
        let start = key(&after, LedgerSeq(u32::MAX));
        rows.seek(&start);
        // From `after` to the end, then from the beginning to `after`.
        for from_beginning in [false, true] {
            while evicted < wanted
                && let Some((key, value)) = rows.item()
            {
                if from_beginning && key > start.as_slice() {
                    break;
                }
                evicted += row_bytes(value);
                batch.delete_raw(Family::KnownEntries, key)?;
                rows.next();
            }
            rows.status()?;
            if evicted < wanted && !from_beginning {
                rows.seek_to_first();
            }
        }
        Ok(evicted)
    }

    fn known_entry_bytes(&self) -> Result<u64, StoreError> {
        let mut bytes = 0;
        self.database.scan(Family::KnownEntries, |_, value| {
            bytes += row_bytes(value);
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// Returns the size of a row with its key in bytes.
fn row_bytes(value: &[u8]) -> u64 {
    (HASH + size_of::<LedgerSeq>() + value.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::domain::Network;

    fn answer(from: u32, to: u32, entry: Option<&[u8]>) -> KnownEntry {
        KnownEntry {
            from: LedgerSeq(from),
            to: LedgerSeq(to),
            entry: entry.map(<[u8]>::to_vec),
            live_until: entry.map(|_| to + 100),
        }
    }

    #[test]
    fn known_entries_are_stored_and_extended() {
        let directory = tempfile::tempdir().unwrap();
        let network = Network::from_name_or_passphrase("local");
        let store = Store::open(directory.path(), Some(&network)).unwrap();
        let key = b"key".to_vec();
        let first = answer(5, 9, Some(b"five"));
        store.put_known_entries(&[(key.clone(), first.clone())]).unwrap();
        store.put_known_entries(&[(b"other".to_vec(), answer(6, 6, None))]).unwrap();
        assert_eq!(store.known_entries(&key).unwrap(), std::slice::from_ref(&first));
        // The first extends the answer, the second is shorter and changes nothing, the third is a
        // new row.
        let longer = answer(5, 30, Some(b"five"));
        let second = answer(31, 40, Some(b"thirty-one"));
        for one in [&longer, &first, &second] {
            store.put_known_entries(&[(key.clone(), one.clone())]).unwrap();
        }
        drop(store);
        let store = Store::open(directory.path(), None).unwrap();
        assert_eq!(store.known_entries(&key).unwrap(), [longer, second]);
        assert_eq!(store.known_entries(b"nobody").unwrap(), []);
        for from in 100..130 {
            store.put_known_entries(&[(key.clone(), answer(from, from, Some(b"x")))]).unwrap();
        }
        let known = store.known_entries(&key).unwrap();
        assert_eq!((known.len(), known[0].from), (MAX_ANSWERS_PER_ENTRY, LedgerSeq(114)));
    }

    #[test]
    fn the_total_size_of_known_entries_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        let network = Network::from_name_or_passphrase("local");
        let store = Store::open(directory.path(), Some(&network)).unwrap();
        let (most, evicted) = (20_000, 2_000);
        let keys: Vec<Vec<u8>> = (0..1000_u32).map(|key| key.to_be_bytes().to_vec()).collect();
        for (number, key) in keys.iter().enumerate() {
            let known = answer(5, 9, Some(&[7; 100]));
            store.put_known_entries_within(&[(key.clone(), known.clone())], most, evicted).unwrap();
            let there = store.known_entry_bytes().unwrap();
            assert!(there <= most + 200, "{there}");
            assert_eq!(*store.known_bytes.lock(), Some(there));
            assert_eq!(store.known_entries(key).unwrap(), [known], "the newest stays: {number}");
        }
        assert!(store.known_entry_bytes().unwrap() > most - 2 * evicted);
    }

    #[test]
    fn rows_that_no_writer_produces_are_malformed() {
        let row = answer(5, 9, Some(b"five")).encode();
        assert_eq!(KnownEntry::decode(LedgerSeq(5), &row), Ok(answer(5, 9, Some(b"five"))));
        assert_eq!(KnownEntry::decode(LedgerSeq(10), &row), Err(Malformed));
        assert_eq!(KnownEntry::decode(LedgerSeq(5), &row[..8]), Err(Malformed));
        assert_eq!(KnownEntry::decode(LedgerSeq(5), &row[..9]), Err(Malformed));
        assert!(check(&[0; 36], &row).is_ok() && check(&[0; 35], &row).is_err());
    }
}
