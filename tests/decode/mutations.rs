//! Damaged ledgers: both implementations give the same verdict and the same values on recorded
//! ledgers that were changed at random. Each case depends on its number alone.

use std::ops::Range;

use orrery_ledger::decode::{DEEPEST, decode};
use orrery_ledger::domain::{Hash32, Network};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::*;

use crate::newest::NEWEST;
use crate::{Verdict, compare};
use orrery_testkit::fixtures;
use orrery_testkit::full;

/// One case in this many starts from a ledger of the public network, which is large and slow.
const LARGE_SHARE: u64 = 100;

/// A ledger to damage.
struct Original {
    network: Network,
    raw: Vec<u8>,
    /// Positions of the topics and data of events, whose values may nest.
    values: Vec<Range<usize>>,
}

#[derive(Debug, Default)]
struct Tally {
    accepted: u64,
    inconsistent: u64,
    malformed: u64,
}

impl Tally {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Ledger(_) => self.accepted += 1,
            Verdict::Inconsistent(_) => self.inconsistent += 1,
            Verdict::Malformed(_) => self.malformed += 1,
        }
    }
}

#[test]
fn both_implementations_agree_on_damaged_ledgers() {
    let Some(folder) = fixtures::folder() else { return };
    let cases = if fixtures::full_size() { 250_000 } else { 5_000 };
    let mut small = originals(&folder, &["testnet/", "core-tests/"]);
    small.extend(NEWEST.ledgers.iter().map(|raw| original(raw.clone(), &NEWEST.network)));
    let large = originals(&folder, &["pubnet/"]);
    let mut tally = Tally::default();
    let mut repaired_tally = Tally::default();
    for case in 0..cases {
        let mut rng = ChaCha8Rng::seed_from_u64(case);
        let from = if case % LARGE_SHARE == 0 { &large } else { &small };
        let original = from.choose(&mut rng).unwrap();
        let donor = small.choose(&mut rng).unwrap();
        let raw = damaged(original, donor, &mut rng);
        let verdict = compare(&raw, &original.network, &format!("case {case}"));
        tally.count(&verdict);
        // A damaged envelope no longer matches its hash. With the new hash in the result, its
        // content is compared.
        if let Verdict::Inconsistent(_) = verdict
            && let Some(raw) = repaired(&raw, &original.network)
        {
            let case = format!("case {case}, repaired");
            repaired_tally.count(&compare(&raw, &original.network, &case));
        }
    }
    println!("{cases} damaged ledgers: {tally:?}; with hashes repaired: {repaired_tally:?}");
    let enough = cases / 20;
    assert!(tally.accepted > enough && tally.malformed > enough, "{tally:?}");
    assert!(tally.inconsistent > enough && repaired_tally.accepted > enough, "{repaired_tally:?}");
}

/// All ledgers with transactions in these folders, and up to 20 without.
fn originals(folder: &std::path::Path, of: &[&str]) -> Vec<Original> {
    let mut originals = Vec::new();
    let mut empty = 0;
    let names = fixtures::files(folder);
    for name in names.iter().filter(|name| of.iter().any(|start| name.starts_with(start))) {
        let fixture = fixtures::load(folder, name);
        for raw in fixture.ledgers {
            if decode(&raw, fixture.network.id()).unwrap().transactions.is_empty() {
                empty += 1;
                if empty > 20 {
                    continue;
                }
            }
            originals.push(original(raw, &fixture.network));
        }
    }
    originals
}

fn original(raw: Vec<u8>, network: &Network) -> Original {
    let view = decode(&raw, network.id()).unwrap();
    let start = raw.as_ptr() as usize;
    let place = |value: &[u8]| {
        let offset = value.as_ptr() as usize - start;
        offset..offset + value.len()
    };
    let topics = view.topics.iter().map(|topic| place(topic));
    let values = topics.chain(view.events.iter().map(|event| place(event.data))).collect();
    Original { network: network.clone(), raw, values }
}

/// A copy of `original` with one to four changes.
fn damaged(original: &Original, donor: &Original, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut raw = original.raw.clone();
    if !original.values.is_empty() && rng.random_bool(0.05) {
        let value = original.values.choose(rng).unwrap().clone();
        raw.splice(value, nested_value(rng));
    }
    let changes = if rng.random_bool(0.6) { 1 } else { rng.random_range(2..=4) };
    for _ in 0..changes {
        damage(&mut raw, &donor.raw, rng);
        if raw.is_empty() {
            break;
        }
    }
    raw
}

fn damage(raw: &mut Vec<u8>, donor: &[u8], rng: &mut ChaCha8Rng) {
    let length = raw.len();
    let position = rng.random_range(0..length);
    let word = position / 4 * 4;
    match rng.random_range(0..12) {
        0 | 1 => raw[position] ^= 1 << rng.random_range(0..8),
        2 => raw[position] = rng.random(),
        3..=6 => set_word(raw, word, boundary_value(length - word, rng)),
        7 => {
            let other = rng.random_range(0..length) / 4 * 4;
            if word.max(other) + 4 <= length && word != other {
                let (one, two) = (word.min(other), word.max(other));
                let (front, back) = raw.split_at_mut(two);
                front[one..one + 4].swap_with_slice(&mut back[..4]);
            }
        }
        8 if rng.random_bool(0.3) => raw.truncate(position),
        8 => drop(raw.drain(word..(word + 4 * rng.random_range(1..12)).min(length))),
        9 => {
            let words = rng.random_range(1..12);
            let value = [0, 0, 0, rng.random_range(0..3)];
            raw.splice(word..word, value.repeat(words));
        }
        10 => {
            // Inserts bytes from anywhere in another ledger, or replaces as many with them.
            let start = rng.random_range(0..donor.len()) / 4 * 4;
            let end = (start + 4 * rng.random_range(1..60)).min(donor.len());
            let replaced = if rng.random_bool(0.7) { end - start } else { 0 };
            raw.splice(word..(word + replaced).min(length), donor[start..end].iter().copied());
        }
        _ => {
            // Selects another arm of a union, with another size.
            set_word(raw, word, rng.random_range(0..30));
            let after = (word + 4).min(length);
            let removed = (after + 4 * rng.random_range(0..12)).min(length);
            let added = vec![0; 4 * rng.random_range(0..12)];
            raw.splice(after..removed, added);
        }
    }
}

fn set_word(raw: &mut [u8], position: usize, value: u32) {
    if let Some(word) = raw.get_mut(position..position + 4) {
        word.copy_from_slice(&value.to_be_bytes());
    }
}

fn boundary_value(rest: usize, rng: &mut ChaCha8Rng) -> u32 {
    match rng.random_range(0..8) {
        0..=3 => rng.random_range(0..34),
        4 => 0u32.wrapping_sub(rng.random_range(1..20)),
        5 => *[64, 65, 100, 101, 128, 129, 255, 256, 257, 1024, 1025].choose(rng).unwrap(),
        6 => *[i32::MAX as u32, i32::MIN as u32, u32::MAX, 1 << 30].choose(rng).unwrap(),
        _ => (rest as u32).wrapping_sub(rng.random_range(0..9)),
    }
}

/// A value that nests about as deeply as is allowed, or far deeper.
fn nested_value(rng: &mut ChaCha8Rng) -> Vec<u8> {
    const VECTOR: [u8; 12] = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1];
    const MAP: [u8; 16] = [0, 0, 0, 17, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    let levels = if rng.random_bool(0.9) { rng.random_range(300..600) } else { 20_000 };
    let mut bytes = Vec::new();
    for _ in 0..levels {
        if rng.random_bool(0.8) {
            bytes.extend(VECTOR);
        } else {
            bytes.extend(MAP);
        }
    }
    bytes.extend([0, 0, 0, 1]);
    bytes
}

/// The ledger with each transaction hash that matches no envelope replaced by the hash of an
/// unmatched envelope.
fn repaired(raw: &[u8], network: &Network) -> Option<Vec<u8>> {
    let limits = Limits { depth: DEEPEST, len: raw.len() };
    let meta = full::with_stack(|| LedgerCloseMeta::from_xdr(raw, limits)).ok()?;
    let (envelopes, results) = envelopes_and_results(meta);
    if envelopes.len() != results.len() {
        return None;
    }
    let id = network.id().0;
    let hashes: Vec<[u8; 32]> = envelopes.iter().map(|e| e.hash(id).unwrap()).collect();
    let mut unused = envelopes
        .iter()
        .zip(&hashes)
        .filter(|(_, hash)| results.iter().all(|pair| pair.transaction_hash.0 != **hash));
    let mut repaired = raw.to_vec();
    for pair in results.iter().filter(|pair| !hashes.contains(&pair.transaction_hash.0)) {
        let (envelope, hash) = unused.next()?;
        replace(&mut repaired, pair.transaction_hash.0, *hash)?;
        if let TransactionResultResult::TxFeeBumpInnerSuccess(inner)
        | TransactionResultResult::TxFeeBumpInnerFailed(inner) = &pair.result.result
            && let TransactionEnvelope::TxFeeBump(bump) = envelope
        {
            let FeeBumpTransactionInnerTx::Tx(tx) = &bump.tx.inner_tx;
            replace(&mut repaired, inner.transaction_hash.0, tx.hash(id).unwrap())?;
        }
    }
    Some(repaired)
}

fn replace(raw: &mut [u8], old: [u8; 32], new: [u8; 32]) -> Option<()> {
    let position = raw.windows(32).position(|window| window == old)?;
    raw[position..position + 32].copy_from_slice(&new);
    Some(())
}

fn envelopes_and_results(
    meta: LedgerCloseMeta,
) -> (Vec<TransactionEnvelope>, Vec<TransactionResultPair>) {
    let (set, results) = match meta {
        LedgerCloseMeta::V0(v0) => {
            let results = v0.tx_processing.iter().map(|one| one.result.clone()).collect();
            return (v0.tx_set.txs.into_vec(), results);
        }
        LedgerCloseMeta::V1(v1) => {
            let results = v1.tx_processing.iter().map(|one| one.result.clone()).collect();
            (v1.tx_set, results)
        }
        LedgerCloseMeta::V2(v2) => {
            let results = v2.tx_processing.iter().map(|one| one.result.clone()).collect();
            (v2.tx_set, results)
        }
    };
    let GeneralizedTransactionSet::V1(set) = set;
    let mut envelopes = Vec::new();
    for phase in set.phases.into_vec() {
        match phase {
            TransactionPhase::V0(components) => {
                for component in components.into_vec() {
                    let TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) = component;
                    envelopes.extend(component.txs.into_vec());
                }
            }
            TransactionPhase::V1(parallel) => {
                let clusters = parallel.execution_stages.iter().flat_map(|stage| stage.0.iter());
                envelopes.extend(clusters.flat_map(|cluster| cluster.0.iter().cloned()));
            }
        }
    }
    (envelopes, results)
}

#[test]
fn repairing_an_intact_ledger_changes_nothing() {
    let Some(folder) = fixtures::folder() else { return };
    let fixture = fixtures::load(&folder, "testnet/ledger-172627.xdr.zst");
    let raw = &fixture.ledgers[0];
    assert_eq!(repaired(raw, &fixture.network).as_ref(), Some(raw));
    let foreign = Network::from_name_or_passphrase("mainnet");
    let Verdict::Ledger(ledger) =
        compare(&repaired(raw, &foreign).unwrap(), &foreign, &"moved to another network")
    else {
        panic!("a repaired ledger is refused");
    };
    assert!(ledger.transactions.iter().all(|one| one.hash != Hash32::default()));
}
