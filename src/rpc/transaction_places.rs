//! Row that says which transactions a ledger has, and where each is in its raw form, so that one transaction
//! is read without decoding, and mostly without decompressing, all the others.
//!
//! ```text
//! 8 bytes of each hash, outer before inner · 8 zero bytes · for each transaction 6 numbers of 4 bytes:
//! start and length of its envelope, of its result with the hash, of its metadata
//! ```
//!
//! The highest bit of the length of the envelope says that there is an inner hash. Rows of earlier versions
//! end after the hashes; readers of those versions find places behind the hashes to be hashes that nobody has.

use std::ops::Range;

use orrery_ledger::decode::{LedgerView, TransactionParts};
use orrery_ledger::domain::TxHash;

/// Length of the beginning of a hash in a row, in bytes. Hashes that begin alike are told apart by reading
/// the transactions.
pub(super) const PREFIX_BYTES: usize = 8;
pub(super) type HashPrefix = [u8; PREFIX_BYTES];

/// What is between hashes and places. No hash begins so: to find one would take 2^64 attempts, and the
/// places of its ledger would be unknown.
const END_OF_HASHES: HashPrefix = [0; PREFIX_BYTES];
const PLACE_BYTES: usize = 6 * 4;
const HAS_INNER: u32 = 1 << 31;

/// Returns the row of a ledger.
pub(super) fn encode(ledger: &LedgerView<'_>) -> Vec<u8> {
    let transactions = &ledger.transactions;
    let mut row =
        Vec::with_capacity(transactions.len() * (PREFIX_BYTES + PLACE_BYTES) + PREFIX_BYTES);
    for transaction in transactions {
        for hash in [Some(transaction.hash), transaction.inner_hash].into_iter().flatten() {
            row.extend_from_slice(&prefix(&hash));
        }
    }
    let places = transactions.iter().map(|it| {
        let parts = TransactionParts::of(ledger, it)?;
        let TransactionParts { envelope, outcome, meta } = &parts;
        let [mut envelope, outcome, meta] = [number(envelope)?, number(outcome)?, number(meta)?];
        envelope[1] |= if it.inner_hash.is_some() { HAS_INNER } else { 0 };
        Some([envelope, outcome, meta])
    });
    if let Some(places) = places.collect::<Option<Vec<_>>>() {
        row.extend_from_slice(&END_OF_HASHES);
        let numbers = places.as_flattened().as_flattened();
        row.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    }
    row
}

/// Returns start and length of a part; `None` when they do not fit, which is so of no ledger.
fn number(part: &Range<usize>) -> Option<[u32; 2]> {
    let (start, length) = (u32::try_from(part.start).ok()?, u32::try_from(part.len()).ok()?);
    (length < HAS_INNER).then_some([start, length])
}

/// Returns the beginning of a hash.
pub(super) fn prefix(hash: &TxHash) -> HashPrefix {
    let mut prefix = HashPrefix::default();
    prefix.copy_from_slice(&hash.as_bytes()[..PREFIX_BYTES]);
    prefix
}

/// Returns the beginnings of all hashes in a row.
pub(super) fn hash_prefixes(row: &[u8]) -> &[HashPrefix] {
    split(row).0
}

/// Returns the transactions of which a hash begins like this one: their application order, and where they
/// are. None when the row does not say where.
pub(super) fn find(row: &[u8], hash: &TxHash) -> Vec<(u32, TransactionParts)> {
    let (hashes, places) = split(row);
    let mut hashes = hashes.iter();
    let (wanted, mut found) = (prefix(hash), Vec::new());
    for (place, application_order) in places.as_chunks::<PLACE_BYTES>().0.iter().zip(1..) {
        let (numbers, _) = place.as_chunks::<4>();
        let number = |at: usize| u32::from_be_bytes(numbers[at]);
        let own = if number(1) & HAS_INNER == 0 { 1 } else { 2 };
        if hashes.by_ref().take(own).filter(|it| **it == wanted).count() == 0 {
            continue;
        }
        let part = |at: usize| {
            let (start, length) = (number(at) as usize, number(at + 1) & !HAS_INNER);
            start..start.saturating_add(length as usize)
        };
        let parts = TransactionParts { envelope: part(0), outcome: part(2), meta: part(4) };
        found.push((application_order, parts));
    }
    found
}

/// Returns the beginnings of the hashes, and the places.
fn split(row: &[u8]) -> (&[HashPrefix], &[u8]) {
    let (all, _) = row.as_chunks::<PREFIX_BYTES>();
    match all.iter().position(|it| *it == END_OF_HASHES) {
        Some(end) => (&all[..end], &row[(end + 1) * PREFIX_BYTES..]),
        None => (all, &[]),
    }
}

#[cfg(test)]
mod tests {
    use orrery_ledger::decode::decode;
    use orrery_testkit::fixtures;

    use super::*;

    #[test]
    fn every_transaction_is_found_by_each_of_its_hashes() {
        let Some(folder) = fixtures::folder() else { return };
        let (mut found, mut inner) = (0, 0);
        for name in fixtures::files(&folder).into_iter().take(12) {
            let fixture = fixtures::load(&folder, &name);
            for raw in &fixture.ledgers {
                let ledger = decode(raw, fixture.network.id()).unwrap();
                let row = encode(&ledger);
                for transaction in &ledger.transactions {
                    let parts = TransactionParts::of(&ledger, transaction).unwrap();
                    let expected = vec![(transaction.application_order, parts)];
                    let hashes = [Some(transaction.hash), transaction.inner_hash];
                    for hash in hashes.into_iter().flatten() {
                        assert_eq!(find(&row, &hash), expected, "{name}");
                        assert!(hash_prefixes(&row).contains(&prefix(&hash)));
                        found += 1;
                    }
                    inner += usize::from(transaction.inner_hash.is_some());
                }
                let hashes =
                    ledger.transactions.iter().map(|it| 1 + usize::from(it.inner_hash.is_some()));
                assert_eq!(hash_prefixes(&row).len(), hashes.sum::<usize>());
                assert_eq!(find(&row, &TxHash::from([3; 32])), []);
            }
        }
        assert!(found > 100 && inner > 0, "{found} hashes, {inner} of them inner ones");
    }

    /// Earlier versions wrote the beginnings of hashes alone.
    #[test]
    fn rows_without_places_have_hashes() {
        let row = [[1; PREFIX_BYTES], [2; PREFIX_BYTES]].concat();
        assert_eq!(hash_prefixes(&row), [[1; PREFIX_BYTES], [2; PREFIX_BYTES]]);
        assert_eq!(find(&row, &TxHash::from([1; 32])), []);
        assert_eq!((hash_prefixes(&[]), find(&[], &TxHash::from([1; 32]))), (&[][..], vec![]));
        // A row that ends in a place has those before it.
        let cut = [&row[..], &END_OF_HASHES, &[0; PLACE_BYTES + 5]].concat();
        assert_eq!(find(&cut, &TxHash::from([1; 32])).len(), 1);
        assert_eq!(find(&cut, &TxHash::from([2; 32])), []);
    }
}
