//! What is refused: each changed byte, and what breaks a rule of the format although all hashes fit.

use std::collections::BTreeMap;

use orrery_checkpoint::{Archive, CheckpointError, Commitment};
use orrery_ledger::domain::{Hash32, LedgerSeq};
use orrery_testkit::archive::{
    RawState, bucket_file, framed, gzip, hot_bucket, live_bucket, made, metadata, write,
};
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;
use orrery_testkit::values::symbol;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use stellar_xdr::{
    AccountId, BucketEntry, BucketListType, ContractDataDurability, ContractId, Hash,
    HotArchiveBucketEntry, LedgerEntry, LedgerEntryExt, LedgerKey, Limits, PublicKey, ScAddress,
    ScVal, Uint256, WriteXdr,
};

use super::world::{commitment, read, small};

/// Reads a state from these files.
fn read_files(
    files: &BTreeMap<String, Vec<u8>>,
    commitment: Commitment,
) -> Result<Vec<orrery_checkpoint::Found>, CheckpointError> {
    let directory = scratch();
    write(directory.path(), files.clone());
    read(&Archive::directory(directory.path()), commitment, None, small())
}

#[track_caller]
fn assert_refused(
    result: Result<Vec<orrery_checkpoint::Found>, CheckpointError>,
    file: &str,
    words: &str,
) {
    match result {
        Err(CheckpointError::Refused(sentence)) => {
            assert!(sentence.contains(file), "{file} is named: {sentence}");
            assert!(sentence.contains(words), "{words}: {sentence}");
            assert!(!sentence.contains('\n') && sentence.len() < 600, "{sentence}");
        }
        other => panic!("{words}: {other:?}"),
    }
}

/// One byte changed anywhere in a file as it is stored. Where the changed bytes mean the same, as the
/// time in the header of gzip does, the same is read.
#[test]
fn one_changed_byte_of_a_stored_file_is_refused() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let raw = made::state(&mut random, 25, 30);
    let files = raw.files();
    let whole = read_files(&files, commitment(&raw)).unwrap();
    let (mut refused, mut same) = (0, 0);
    for _ in 0..size::choose(200, 5000) {
        let mut changed = files.clone();
        let wanted = |name: &&String| !name.starts_with(".well-known");
        let file = files.keys().filter(wanted).choose(&mut random).unwrap();
        let bytes = changed.get_mut(file).unwrap();
        let at = random.random_range(0..bytes.len());
        bytes[at] ^= random.random_range(1..=255_u8);
        match read_files(&changed, commitment(&raw)) {
            Ok(found) => {
                assert_eq!(found, whole, "byte {at} of {file}");
                same += 1;
            }
            Err(CheckpointError::Refused(sentence)) => {
                assert!(sentence.contains(file), "{file}: {sentence}");
                refused += 1;
            }
            Err(other) => panic!("byte {at} of {file}: {other}"),
        }
    }
    println!("{refused} refused, {same} mean the same");
    // Some bytes of each header of gzip, of white space and of members that mean nothing.
    assert!(same * 4 < refused, "{refused} refused, {same} mean the same");
}

/// One byte changed anywhere in what is compressed, and the file compressed again; also with its new
/// name in the state file, and the hash of all in the header as before.
#[test]
fn one_changed_byte_of_a_bucket_is_refused() {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let raw = made::state(&mut random, 25, 30);
    let files = raw.files();
    for round in 0..size::choose(200, 5000) {
        let mut forged = raw.clone();
        let list = if random.random_bool(0.3) {
            forged.hot_archive.as_mut().unwrap()
        } else {
            &mut forged.live
        };
        let bucket = list.iter_mut().filter(|it| !it.is_empty()).choose(&mut random).unwrap();
        let name = bucket_file(bucket);
        let at = random.random_range(0..bucket.len());
        bucket[at] ^= random.random_range(1..=255_u8);
        let mut changed = files.clone();
        changed.insert(name.clone(), gzip(bucket));
        assert_refused(read_files(&changed, commitment(&raw)), &name, "");
        if round % 8 == 0 {
            let state_file = forged.state_file();
            assert_refused(read_files(&forged.files(), commitment(&raw)), &state_file, "the hash");
        }
    }
}

/// A small state of protocol 25 with one live entry and one evicted one.
fn simple() -> (RawState, LedgerEntry) {
    let mut raw = RawState::empty(127, 25);
    let (one, two) = (data_entry(1, "one"), data_entry(2, "two"));
    raw.live[0] = live_bucket(25, [BucketEntry::Liveentry(one.clone())]);
    let archived = HotArchiveBucketEntry::Archived(two);
    raw.hot_archive.as_mut().unwrap()[3] = hot_bucket(25, [archived]);
    (raw, one)
}

fn data_entry(contract: u8, key: &str) -> LedgerEntry {
    let owner = ScAddress::Contract(ContractId(Hash(made::contract(contract))));
    entry_of(owner, symbol(key), ContractDataDurability::Persistent)
}

fn entry_of(owner: ScAddress, key: ScVal, durability: ContractDataDurability) -> LedgerEntry {
    let data = made::data(owner, key, durability, ScVal::Void);
    LedgerEntry { last_modified_ledger_seq: 5, data, ext: LedgerEntryExt::V0 }
}

fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}

/// Buckets whose names and list have the right hashes, and which are refused all the same.
#[test]
fn malformed_buckets_are_refused_although_their_hashes_fit() {
    let (good, entry) = simple();
    assert_eq!(read_files(&good.files(), commitment(&good)).unwrap().len(), 2);
    let live = |list| framed(&xdr(&BucketEntry::Metaentry(metadata(25, list))));
    let begin = live(Some(BucketListType::Live));
    let one = framed(&xdr(&BucketEntry::Liveentry(entry.clone())));
    let mut padded = xdr(&BucketEntry::Liveentry(entry.clone()));
    padded.extend([0; 4]);
    let nonsense = entry_of(
        ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([3; 32])))),
        symbol("x"),
        ContractDataDurability::Persistent,
    );
    let newer = framed(&xdr(&BucketEntry::Metaentry(metadata(26, Some(BucketListType::Live)))));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("does not begin with its METAENTRY", one.clone()),
        ("does not begin with its METAENTRY", [&one[..], &begin].concat()),
        ("a second METAENTRY", [&begin[..], &one, &begin].concat()),
        ("a second METAENTRY", [&begin[..], &begin, &one].concat()),
        ("not of the live list", [&live(Some(BucketListType::HotArchive))[..], &one].concat()),
        ("made with protocol 26", [&newer[..], &one].concat()),
        ("it ends inside the record", [&begin[..], &one, &[0x80, 0]].concat()),
        ("it ends inside the record", [&begin[..], &one[..one.len() - 1]].concat()),
        ("no record begins", [&begin[..], &one[4..]].concat()),
        ("no record begins", [&begin[..], &[0xff; 8]].concat()),
        ("malformed", [&begin[..], &framed(&padded)].concat()),
        ("malformed", [&begin[..], &framed(&[0, 0, 0, 9])].concat()),
        ("malformed", [&begin[..], &framed(&[])].concat()),
        (
            "belongs to no contract",
            [&begin[..], &framed(&xdr(&BucketEntry::Liveentry(nonsense)))].concat(),
        ),
        ("twice", [&begin[..], &one, &one].concat()),
        (
            "twice",
            [&begin[..], &one, &framed(&xdr(&BucketEntry::Deadentry(entry.to_key())))].concat(),
        ),
    ];
    for (words, bucket) in cases {
        let mut raw = good.clone();
        let file = bucket_file(&bucket);
        raw.live[5] = bucket;
        assert_refused(read_files(&raw.files(), commitment(&raw)), &file, words);
    }
}

#[test]
fn malformed_buckets_of_the_hot_archive_are_refused() {
    let (good, live) = simple();
    let begin = |list| framed(&xdr(&HotArchiveBucketEntry::Metaentry(metadata(25, list))));
    let own = begin(Some(BucketListType::HotArchive));
    let archived =
        |entry: &LedgerEntry| framed(&xdr(&HotArchiveBucketEntry::Archived(entry.clone())));
    let one = archived(&data_entry(4, "old"));
    let owner = ScAddress::Contract(ContractId(Hash([4; 32])));
    let temporary = entry_of(owner, symbol("x"), ContractDataDurability::Temporary);
    let key = HotArchiveBucketEntry::Live(LedgerKey::Ttl(stellar_xdr::LedgerKeyTtl {
        key_hash: Hash([1; 32]),
    }));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("not of the hot archive list", [&begin(None)[..], &one].concat()),
        ("not of the hot archive list", [&begin(Some(BucketListType::Live))[..], &one].concat()),
        ("does not begin with its METAENTRY", one.clone()),
        ("never archived", [&own[..], &archived(&temporary)].concat()),
        ("never archived", [&own[..], &framed(&xdr(&key))].concat()),
        ("twice", [&own[..], &one, &one].concat()),
    ];
    for (words, bucket) in cases {
        let mut raw = good.clone();
        let file = bucket_file(&bucket);
        raw.hot_archive.as_mut().unwrap()[5] = bucket;
        assert_refused(read_files(&raw.files(), commitment(&raw)), &file, words);
    }
    // Live, and archived at the same time.
    let mut raw = good.clone();
    raw.hot_archive.as_mut().unwrap()[5] = [own, archived(&live)].concat();
    assert_refused(read_files(&raw.files(), commitment(&raw)), "", "at the same time");
}

/// Hashes say nothing of how a file is compressed.
#[test]
fn files_with_more_than_one_bucket_are_refused() {
    let (raw, _) = simple();
    let file = bucket_file(&raw.live[0]);
    let gz = gzip(&raw.live[0]);
    let cases: [(&str, Vec<u8>); 6] = [
        ("bytes follow the end", [&gz[..], &[0]].concat()),
        ("bytes follow the end", [&gz[..], &gzip(&[])].concat()),
        ("bytes follow the end", [&gz[..], &gz].concat()),
        ("ends too early", gz[..gz.len() - 1].to_vec()),
        ("ends too early", Vec::new()),
        ("not compressed", raw.live[0].clone()),
    ];
    for (words, content) in cases {
        let mut files = raw.files();
        files.insert(file.clone(), content);
        assert_refused(read_files(&files, commitment(&raw)), &file, words);
    }
    let mut files = raw.files();
    files.remove(&file);
    assert_refused(read_files(&files, commitment(&raw)), &file, "does not have it");
    // The bucket of another level in its place.
    let mut files = raw.files();
    let other = raw.hot_archive.as_ref().unwrap()[3].clone();
    files.insert(file.clone(), gzip(&other));
    assert_refused(read_files(&files, commitment(&raw)), &file, "");
}

#[test]
fn state_files_of_something_else_are_refused() {
    let (raw, _) = simple();
    let file = raw.state_file();
    let change = |change: &dyn Fn(&mut Value)| {
        let mut state = raw.state();
        change(&mut state);
        let mut files = raw.files();
        files.insert(file.clone(), serde_json::to_vec(&state).unwrap());
        read_files(&files, commitment(&raw))
    };
    assert_eq!(change(&|_| {}).unwrap().len(), 2);
    // What means nothing for the state may be anything.
    let others = change(&|state| {
        state["server"] = 5.into();
        state["more"] = vec![1].into();
        state["currentBuckets"][0]["next"] = serde_json::json!({"state": 1, "output": "x"});
        state.as_object_mut().unwrap().remove("networkPassphrase");
    });
    assert_eq!(others.unwrap().len(), 2);
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 15] = [
        ("not the state of an archive", |state| {
            state["currentLedger"] = "long\n".repeat(10_000).into();
        }),
        ("version 3", |state| state["version"] = 3.into()),
        ("version 0", |state| state["version"] = 0.into()),
        ("only version 2 has", |state| state["version"] = 1.into()),
        ("lacks a hot archive", |state| {
            state["version"] = 1.into();
            state.as_object_mut().unwrap().remove("hotArchiveBuckets");
        }),
        ("it is of ledger 126", |state| state["currentLedger"] = 126.into()),
        ("it is of the network 'Another'", |state| state["networkPassphrase"] = "Another".into()),
        ("not the state of an archive", |state| state["currentLedger"] = (-1).into()),
        ("not the state of an archive", |state| *state = 5.into()),
        ("10 levels instead of 11", |state| {
            state["currentBuckets"].as_array_mut().unwrap().pop();
        }),
        ("12 levels instead of 11", |state| {
            let level = state["hotArchiveBuckets"][0].clone();
            state["hotArchiveBuckets"].as_array_mut().unwrap().push(level);
        }),
        ("is not the name of a bucket", |state| {
            state["currentBuckets"][2]["curr"] = "../../../etc/passwd".into();
        }),
        ("is not the name of a bucket", |state| {
            let name = state["currentBuckets"][0]["curr"].as_str().unwrap().to_uppercase();
            state["currentBuckets"][0]["curr"] = name.into();
        }),
        ("the hash of its buckets", |state| {
            let empty = state["currentBuckets"][4]["curr"].clone();
            state["currentBuckets"][0]["curr"] = empty;
        }),
        ("the hash of its buckets", |state| {
            let hot = state["hotArchiveBuckets"].clone();
            state["hotArchiveBuckets"] = state["currentBuckets"].clone();
            state["currentBuckets"] = hot;
        }),
    ];
    for (words, case) in cases {
        assert_refused(change(&case), &file, words);
    }
    // A hot archive before there was one.
    let old = Commitment { protocol: 22, ..commitment(&raw) };
    assert_refused(read_files(&raw.files(), old), &file, "has a hot archive");
    let mut files = raw.files();
    files.insert(file.clone(), vec![b' '; (1 << 20) + 1]);
    assert_refused(read_files(&files, commitment(&raw)), &file, "longer than 1048576 bytes");
    files.insert(file.clone(), vec![b'['; 1 << 20]);
    assert_refused(read_files(&files, commitment(&raw)), &file, "not the state of an archive");
}

#[test]
fn a_checkpoint_that_is_not_there_is_absent() {
    let (raw, _) = simple();
    let elsewhere = Commitment { ledger: LedgerSeq(191), ..commitment(&raw) };
    match read_files(&raw.files(), elsewhere) {
        Err(CheckpointError::Absent(sentence)) => {
            assert!(sentence.contains("ledger 191") && sentence.contains("history-000000bf.json"));
        }
        other => panic!("{other:?}"),
    }
    let other = Commitment { bucket_list_hash: Hash32([1; 32]), ..commitment(&raw) };
    assert_refused(read_files(&raw.files(), other), &raw.state_file(), "header of ledger 127");
    let nothing = scratch();
    let archive = Archive::directory(nothing.path());
    assert!(matches!(archive.newest(), Err(CheckpointError::Absent(_))));
}
