//! What others said of entries of the ledger, kept so that nobody is asked twice. An answer holds for
//! an interval of ledgers; it is not derived from stored ledgers and is never needed to rebuild them. So
//! all of them together have a limit: past it a part of them is forgotten, and asked for again.

use sha2::{Digest, Sha256};

use super::bytes::{Malformed, Reader};
use super::columns::{Family, LedgerKey};
use super::database::{Batch, corrupt};
use super::{Store, StoreError, indexes};
use crate::domain::LedgerSeq;

/// Answers kept for one entry; the oldest goes first.
const MOST_PER_ENTRY: usize = 16;

/// Bytes of all answers. Programs of strangers choose what is asked, so this must not grow for ever.
const MOST_BYTES: u64 = 256 << 20;
/// What is forgotten when there are more. Keys begin with a hash, so this is a part of everybody's.
const FORGOTTEN_AT_ONCE: u64 = MOST_BYTES / 16;

const IS_THERE: u8 = 1;
const HAS_TTL: u8 = 2;
/// Bytes of the hash of an entry's key.
const HASH: usize = 32;

/// What was said of an entry: it was so at the end of each of these ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownEntry {
    /// In which ledger it became so; of an entry that is absent, the first in which that is known.
    pub from: LedgerSeq,
    /// The last ledger for which this is known.
    pub to: LedgerSeq,
    /// XDR `LedgerEntry`; none when it is absent.
    pub entry: Option<Vec<u8>>,
    /// The last ledger in which it is live, as of `to`.
    pub live_until: Option<u32>,
}

impl KnownEntry {
    fn encode(&self) -> Vec<u8> {
        let flags = if self.entry.is_some() { IS_THERE } else { 0 }
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
        if flags > IS_THERE | HAS_TTL || to < from || (flags & IS_THERE == 0) != entry.is_empty() {
            return Err(Malformed);
        }
        Ok(Self {
            from,
            to,
            entry: (flags & IS_THERE != 0).then(|| entry.to_vec()),
            live_until: (flags & HAS_TTL != 0).then_some(live_until),
        })
    }
}

/// Whether a row of `known_entries` is what a writer writes.
pub(super) fn check(key: &[u8], value: &[u8]) -> Result<(), Malformed> {
    parse(key, value).map(|_| ())
}

/// The whole hash stands in the key, because nothing leads to a record to verify it with, and the ledger from
/// which on the answer holds.
fn key(hash: &[u8; HASH], from: LedgerSeq) -> Vec<u8> {
    indexes::key(hash, &LedgerKey(from))
}

fn parse(key: &[u8], value: &[u8]) -> Result<KnownEntry, Malformed> {
    KnownEntry::decode(indexes::at::<LedgerKey>(HASH, key)?.0, value)
}

impl Store {
    /// What is remembered of the entry with this XDR `LedgerKey`, oldest first.
    ///
    /// # Errors
    /// What the database says, or that a row is damaged.
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

    /// Remembers answers, each under its XDR `LedgerKey`. Does nothing while an import has ledgers that
    /// are not durable yet: then they will be asked for again.
    ///
    /// # Errors
    /// What the database says.
    pub fn remember_entries(&self, answers: &[(Vec<u8>, KnownEntry)]) -> Result<(), StoreError> {
        self.remember_within(answers, MOST_BYTES, FORGOTTEN_AT_ONCE)
    }

    fn remember_within(
        &self,
        answers: &[(Vec<u8>, KnownEntry)],
        most: u64,
        forgotten: u64,
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
            if same.is_none() && known.len() >= MOST_PER_ENTRY {
                bytes -= row_bytes(&known[0].encode()).min(bytes);
                batch.delete_raw(Family::KnownEntries, &key(&hash, known[0].from))?;
            }
        }
        if bytes > most {
            let first = answers.first().map(|(key, _)| Sha256::digest(key).into());
            bytes -= self.forget_entries(&mut batch, first.unwrap_or_default(), forgotten)?;
        }
        // Whatever becomes of the write, what is counted anew is right.
        *counted = None;
        let batch = batch.detach();
        self.writer_thread.run(move |database| database.write_logged(database.attach(batch)))?;
        *counted = Some(bytes);
        Ok(())
    }

    /// Forgets so many bytes of answers, of entries whose hashes come after one: which they are is chance.
    /// Says how many it were.
    fn forget_entries(
        &self,
        batch: &mut Batch<'_>,
        after: [u8; 32],
        wanted: u64,
    ) -> Result<u64, StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::KnownEntries)?;
        let mut forgotten = 0;
        let start = key(&after, LedgerSeq(u32::MAX));
        rows.seek(&start);
        // From the hash to the end, and then from the beginning to the hash.
        for from_beginning in [false, true] {
            while forgotten < wanted
                && let Some((key, value)) = rows.item()
            {
                if from_beginning && key > start.as_slice() {
                    break;
                }
                forgotten += row_bytes(value);
                batch.delete_raw(Family::KnownEntries, key)?;
                rows.next();
            }
            rows.status()?;
            if forgotten < wanted && !from_beginning {
                rows.seek_to_first();
            }
        }
        Ok(forgotten)
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

/// Bytes of a row with its key.
fn row_bytes(value: &[u8]) -> u64 {
    (HASH + size_of::<LedgerSeq>() + value.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Network;

    fn answer(from: u32, to: u32, entry: Option<&[u8]>) -> KnownEntry {
        KnownEntry {
            from: LedgerSeq(from),
            to: LedgerSeq(to),
            entry: entry.map(<[u8]>::to_vec),
            live_until: entry.map(|_| to + 100),
        }
    }

    #[test]
    fn answers_are_kept_and_extended() {
        let directory = tempfile::tempdir().unwrap();
        let network = Network::from_name_or_passphrase("local");
        let store = Store::open(directory.path(), Some(&network)).unwrap();
        let key = b"key".to_vec();
        let first = answer(5, 9, Some(b"five"));
        store.remember_entries(&[(key.clone(), first.clone())]).unwrap();
        store.remember_entries(&[(b"other".to_vec(), answer(6, 6, None))]).unwrap();
        assert_eq!(store.known_entries(&key).unwrap(), std::slice::from_ref(&first));
        // The same for longer; an older answer takes nothing back; another value is another row.
        let longer = answer(5, 30, Some(b"five"));
        let second = answer(31, 40, Some(b"thirty-one"));
        for one in [&longer, &first, &second] {
            store.remember_entries(&[(key.clone(), one.clone())]).unwrap();
        }
        drop(store);
        let store = Store::open(directory.path(), None).unwrap();
        assert_eq!(store.known_entries(&key).unwrap(), [longer, second]);
        assert_eq!(store.known_entries(b"nobody").unwrap(), []);
        for from in 100..130 {
            store.remember_entries(&[(key.clone(), answer(from, from, Some(b"x")))]).unwrap();
        }
        let known = store.known_entries(&key).unwrap();
        assert_eq!((known.len(), known[0].from), (MOST_PER_ENTRY, LedgerSeq(114)));
    }

    #[test]
    fn answers_of_all_entries_together_have_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let network = Network::from_name_or_passphrase("local");
        let store = Store::open(directory.path(), Some(&network)).unwrap();
        let (most, forgotten) = (20_000, 2_000);
        let keys: Vec<Vec<u8>> = (0..1000_u32).map(|key| key.to_be_bytes().to_vec()).collect();
        for (number, key) in keys.iter().enumerate() {
            let known = answer(5, 9, Some(&[7; 100]));
            store.remember_within(&[(key.clone(), known.clone())], most, forgotten).unwrap();
            let there = store.known_entry_bytes().unwrap();
            assert!(there <= most + 200, "{there}");
            assert_eq!(*store.known_bytes.lock(), Some(there));
            assert_eq!(store.known_entries(key).unwrap(), [known], "the newest stays: {number}");
        }
        assert!(store.known_entry_bytes().unwrap() > most - 2 * forgotten);
    }

    #[test]
    fn what_no_writer_writes_is_malformed() {
        let row = answer(5, 9, Some(b"five")).encode();
        assert_eq!(KnownEntry::decode(LedgerSeq(5), &row), Ok(answer(5, 9, Some(b"five"))));
        assert_eq!(KnownEntry::decode(LedgerSeq(10), &row), Err(Malformed));
        assert_eq!(KnownEntry::decode(LedgerSeq(5), &row[..8]), Err(Malformed));
        assert_eq!(KnownEntry::decode(LedgerSeq(5), &row[..9]), Err(Malformed));
        assert!(check(&[0; 36], &row).is_ok() && check(&[0; 35], &row).is_err());
    }
}
