//! Reads made states, and those of a sandbox, as the naive reader does.

use std::collections::BTreeSet;

use orrery_checkpoint::{Archive, Bounds, Commitment, checkpoint_at_or_before};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_testkit::archive::{made, naive, write};
use orrery_testkit::sandbox::{local, sandbox};
use orrery_testkit::scratch::scratch;
use orrery_testkit::{histories, size};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{LedgerCloseMeta, LedgerEntryData, LedgerKey, Limits, ReadXdr, WriteXdr};

use super::world::{archive, collected, commitment, network, read, read_with, small};

#[test]
fn made_states_are_read_as_the_naive_reader_reads_them() {
    histories::run(60, 4000, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let protocol = random.random_range(20..28);
        let raw = made::state(&mut random, protocol, 60);
        let directory = archive(&raw);
        let expected = naive::read(directory.path(), raw.ledger);
        let archive = Archive::directory(directory.path());
        let bounds = if seed % 4 == 0 { Bounds { spare: 0, ..Bounds::default() } } else { small() };
        let found = read(&archive, commitment(&raw), None, bounds).unwrap();
        assert_eq!(collected(found), expected);
        assert!(seed > 0 || expected.data.len() > 50, "{}", expected.data.len());

        // Some contracts only.
        let wanted: BTreeSet<_> = [0, 3].map(|it| ContractId(made::contract(it))).into();
        let found = read(&archive, commitment(&raw), Some(&wanted), bounds).unwrap();
        let mut of_some = expected;
        of_some.data.retain(|(contract, _), _| wanted.contains(&ContractId(*contract)));
        assert_eq!(collected(found), of_some);
    });
}

#[test]
fn all_kinds_of_what_is_found_occur_in_made_states() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let raw = made::state(&mut random, 25, 200);
    let directory = archive(&raw);
    let found = naive::read(directory.path(), raw.ledger);
    let data = || found.data.values();
    assert!(data().any(|held| held.is_evicted) && data().any(|held| held.live_until.is_some()));
    assert!(!found.settings.is_empty() && found.code.values().any(|held| held.is_evicted));
    let naive_of_newest = raw.live.iter().filter(|bucket| !bucket.is_empty()).count();
    assert!(naive_of_newest > 12, "{naive_of_newest} buckets");
}

#[test]
fn an_empty_state_has_nothing() {
    for protocol in [20, 23] {
        let raw = orrery_testkit::archive::RawState::empty(127, protocol);
        let directory = archive(&raw);
        let archive = Archive::directory(directory.path());
        assert_eq!(archive.newest().unwrap(), LedgerSeq(127));
        assert_eq!(read(&archive, commitment(&raw), None, small()).unwrap(), []);
    }
}

/// A sandbox with buckets closes the same ledgers but for the hash in their headers, and its
/// checkpoints hold its state.
#[test]
fn checkpoints_of_a_sandbox_hold_its_state() {
    let last = size::choose(300, 900) as u32;
    let (mut evicted, mut is_restored) = (BTreeSet::new(), false);
    let mut plain = sandbox(5, 0..=6);
    let mut kept = sandbox(5, 0..=6).with_buckets().unwrap();
    assert!(kept.checkpoint().unwrap_err().to_string().contains("with_buckets"));
    while kept.latest_ledger() < LedgerSeq(last) {
        let ledger = kept.next_ledger().unwrap();
        if kept.latest_ledger() < LedgerSeq(20) {
            assert_eq!(changes_of(&ledger), changes_of(&plain.next_ledger().unwrap()));
        }
        let sequence = kept.latest_ledger();
        // The first entries expire in ledger 124.
        let is_late = sequence.0 >= 120 && sequence.0.is_multiple_of(5);
        if !is_late && ![2, 3, 8, 63, 64].contains(&sequence.0) {
            continue;
        }
        let checkpoint = kept.checkpoint().unwrap();
        assert_eq!(checkpoint.header, header_of(&ledger), "the header is the ledger's");
        let directory = scratch();
        write(directory.path(), checkpoint.files);
        let expected = naive::read(directory.path(), sequence.0);
        let commitment = Commitment::of_header(&checkpoint.header).unwrap();
        let archive = Archive::directory(directory.path());
        let work_directory = scratch();
        let work = orrery_checkpoint::Work {
            directory: work_directory.path(),
            contracts: None,
            bounds: small(),
            observe: &|_| true,
        };
        let state = archive.state(commitment, &local()).unwrap();
        let found = state.fetch(&archive, &work).unwrap().entries(&work).unwrap();
        let found = collected(found.collect::<Result<_, _>>().unwrap());
        assert_eq!(found, expected);
        assert_eq!(found.settings.len(), 10);
        let count = found.data.values().filter(|held| {
            let key = held.value.to_key();
            let entry = kept.entry(&key).unwrap();
            // An expired temporary entry is not answered before its eviction.
            entry.is_none_or(|live| live.entry == held.value)
        });
        assert_eq!(count.count(), found.data.len());
        assert!(sequence.0 < 60 || found.data.len() >= 8, "{}", found.data.len());
        let of_evicted = found.data.iter().filter(|(_, held)| held.is_evicted);
        evicted.extend(of_evicted.map(|(key, _)| *key));
        is_restored |=
            evicted.iter().any(|key| found.data.get(key).is_some_and(|it| !it.is_evicted));
    }
    assert!(!evicted.is_empty() && is_restored, "{} evicted", evicted.len());
}

/// The header's XDR.
fn header_of(ledger: &[u8]) -> Vec<u8> {
    let LedgerCloseMeta::V2(meta) = LedgerCloseMeta::from_xdr(ledger, Limits::none()).unwrap()
    else {
        panic!("version 2")
    };
    meta.ledger_header.header.to_xdr(Limits::none()).unwrap()
}

/// What a ledger changes, without the hashes of its predecessors that are in its transactions.
fn changes_of(ledger: &[u8]) -> usize {
    let LedgerCloseMeta::V2(meta) = LedgerCloseMeta::from_xdr(ledger, Limits::none()).unwrap()
    else {
        panic!("version 2")
    };
    meta.tx_processing.len()
}

#[test]
fn data_of_a_code_entry_is_found_by_its_hash() {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let raw = made::state(&mut random, 24, 120);
    let directory = archive(&raw);
    let found = naive::read(directory.path(), raw.ledger);
    for held in found.data.values() {
        let LedgerEntryData::ContractData(_) = held.value.data else { panic!("{held:?}") };
        assert!(matches!(held.value.to_key(), LedgerKey::ContractData(_)));
    }
    let archive = Archive::directory(directory.path());
    let work_directory = scratch();
    let work = orrery_checkpoint::Work {
        directory: work_directory.path(),
        contracts: None,
        bounds: small(),
        observe: &|_| true,
    };
    // A state that was fetched once can be read twice.
    let state = archive.state(commitment(&raw), &network()).unwrap();
    let fetched = state.fetch(&archive, &work).unwrap();
    let [once, twice] = [(), ()]
        .map(|()| collected(fetched.entries(&work).unwrap().collect::<Result<_, _>>().unwrap()));
    assert_eq!((&once, &twice), (&found, &found));
    assert_eq!(collected(read_with(&archive, commitment(&raw), &work).unwrap()), found);
    assert_eq!(checkpoint_at_or_before(LedgerSeq(raw.ledger)), Some(LedgerSeq(raw.ledger)));
}
