//! Records of buckets, also damaged ones, are read as `stellar-xdr` reads them.

use orrery_ledger::decode::{BucketList, BucketRecord, StateKey, last_modified, live_until};
use orrery_ledger::domain::Hash32;
use orrery_testkit::archive::made;
use orrery_testkit::archive::naive::key_hash;
use orrery_testkit::size;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{
    BucketEntry, BucketListType, BucketMetadata, BucketMetadataExt, HotArchiveBucketEntry,
    LedgerEntry, LedgerEntryData, LedgerKey, Limits, ReadXdr, ScVal, WriteXdr,
};

/// A record as `stellar-xdr` has it, whichever list it is of.
enum Decoded {
    Metadata(BucketMetadata),
    Entry(LedgerEntry),
    Tombstone(LedgerKey),
}

/// Decodes a value; `None` also for bytes that are not those which it is written as, such as a bool of
/// 2.
fn exactly<T: ReadXdr + WriteXdr>(xdr: &[u8]) -> Option<T> {
    let value = T::from_xdr(xdr, Limits { depth: 500, len: xdr.len() }).ok()?;
    let is_exact = value.to_xdr(Limits::none()).unwrap() == xdr;
    is_exact.then_some(value)
}

fn decoded(list: BucketList, xdr: &[u8]) -> Option<Decoded> {
    Some(match list {
        BucketList::Live => match exactly(xdr)? {
            BucketEntry::Metaentry(metadata) => Decoded::Metadata(metadata),
            BucketEntry::Liveentry(entry) | BucketEntry::Initentry(entry) => Decoded::Entry(entry),
            BucketEntry::Deadentry(key) => Decoded::Tombstone(key),
        },
        BucketList::HotArchive => match exactly(xdr)? {
            HotArchiveBucketEntry::Metaentry(metadata) => Decoded::Metadata(metadata),
            HotArchiveBucketEntry::Archived(entry) => Decoded::Entry(entry),
            HotArchiveBucketEntry::Live(key) => Decoded::Tombstone(key),
        },
    })
}

fn assert_key(found: &StateKey<'_>, key: &LedgerKey) {
    let is_nonce = matches!(key, LedgerKey::ContractData(data) if matches!(data.key, ScVal::LedgerKeyNonce(_)));
    assert_eq!(found.is_nonce(), is_nonce, "{key:?}");
    let hash = match key {
        LedgerKey::Ttl(ttl) => Some(Hash32(ttl.key_hash.0)),
        LedgerKey::Offer(_)
        | LedgerKey::Data(_)
        | LedgerKey::ClaimableBalance(_)
        | LedgerKey::LiquidityPool(_) => None,
        key => Some(Hash32(key_hash(key))),
    };
    assert_eq!(found.hash(), hash, "{key:?}");
}

/// Returns whether the bytes are a record.
fn check(list: BucketList, xdr: &[u8]) -> bool {
    match (BucketRecord::read(list, xdr), decoded(list, xdr)) {
        (Err(_), None) => return false,
        (Ok(BucketRecord::Metadata { protocol, list }), Some(Decoded::Metadata(metadata))) => {
            assert_eq!(protocol, metadata.ledger_version);
            let expected = match metadata.ext {
                BucketMetadataExt::V0 => None,
                BucketMetadataExt::V1(BucketListType::Live) => Some(BucketList::Live),
                BucketMetadataExt::V1(BucketListType::HotArchive) => Some(BucketList::HotArchive),
            };
            assert_eq!(list, expected);
        }
        (Ok(BucketRecord::Entry { key, entry }), Some(Decoded::Entry(expected))) => {
            assert_eq!(entry, expected.to_xdr(Limits::none()).unwrap());
            assert_key(&key, &expected.to_key());
            assert_eq!(last_modified(entry), Ok(expected.last_modified_ledger_seq));
            let until = match expected.data {
                LedgerEntryData::Ttl(ttl) => Some(ttl.live_until_ledger_seq),
                _ => None,
            };
            assert_eq!(live_until(entry).ok(), until);
        }
        (Ok(BucketRecord::Tombstone(key)), Some(Decoded::Tombstone(expected))) => {
            assert_key(&key, &expected);
        }
        (found, expected) => {
            panic!("{found:?}, and stellar-xdr reads it: {}: {xdr:02x?}", expected.is_some())
        }
    }
    true
}

#[test]
fn records_are_read_as_stellar_xdr_reads_them() {
    let mut random = ChaCha8Rng::seed_from_u64(21);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..size::choose(20, 500) {
        let raw = made::state(&mut random, 25, 60);
        let lists = [
            (BucketList::Live, &raw.live),
            (BucketList::HotArchive, raw.hot_archive.as_ref().unwrap()),
        ];
        for (list, buckets) in lists {
            for mut bucket in buckets.iter().map(Vec::as_slice) {
                while let Some((mark, rest)) = bucket.split_first_chunk() {
                    let length = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
                    let (record, others) = rest.split_at(length);
                    bucket = others;
                    assert!(check(list, record));
                    for _ in 0..4 {
                        let changed = damaged(record, &mut random);
                        if check(list, &changed) { good += 1 } else { bad += 1 }
                    }
                }
            }
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} damaged records are still records, {bad} are not");
}

/// Changes, cuts off or adds some bytes.
fn damaged(record: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut changed = record.to_vec();
    match random.random_range(0..8) {
        0 => changed.truncate(random.random_range(0..record.len())),
        1 => changed.extend([0; 4]),
        // The beginning has most of what decides on the rest.
        2..=4 => changed[random.random_range(0..record.len().min(16))] = random.random_range(0..24),
        _ => changed[random.random_range(0..record.len())] ^= 1 << random.random_range(0..8),
    }
    changed
}
