//! Estimates the disk space that each contract takes. It cannot be read off stored records, because
//! events and transactions of different contracts share blocks. So the record sizes of sampled
//! ledgers, evenly spread over all stored ones, are added up per contract, and the sizes of the
//! column families are divided in these proportions.

use std::collections::HashMap;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};

use crate::db::snapshot::Snapshot;
use crate::encoding::block::Block;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, Family, Key, LedgerKey, TransactionKey};
use crate::encoding::compression::Content;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::transaction_block::{Row, TransactionBlock};
use crate::encoding::{compression, transaction_record};
use crate::indexes::events_by_address;
use crate::state::consumers::spec::Needs;
use crate::state::store::Store;

/// Families that hold events: their blocks, and the indexes that lead to them.
const OF_EVENTS: &[Family] = &[
    Family::Events,
    Family::EventsByContract,
    Family::EventsByTopic,
    Family::Index(events_by_address::FAMILY),
];
/// Families that hold transactions, and the indexes that lead to them.
const OF_TRANSACTIONS: &[Family] =
    &[Family::Transactions, Family::TxByContract, Family::TxByHash, Family::Entries];

/// Limits of the sample on which an estimate is based.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Maximum number of ledgers.
    pub ledgers: u64,
    /// Number of bytes of decompressed records after which no further ledger is read.
    pub bytes: u64,
    /// Number of contracts after which no further ledger is read: each takes memory until the
    /// estimate is done.
    pub contracts: usize,
}

/// An estimate of the disk space that contracts take.
#[derive(Debug, Clone, PartialEq)]
pub struct ContractSizes {
    /// Number of ledgers that were sampled.
    pub sampled: u64,
    /// Number of ledgers that still have events or transactions. When all were sampled, the
    /// proportions are exact.
    pub stored: u64,
    /// Bytes on disk of all events and transactions, with their indexes.
    pub bytes: u64,
    /// The contracts that take the most space, largest first.
    pub largest: Vec<ContractSize>,
    /// Number of other contracts in the sample.
    pub others: u64,
}

/// Disk space of one contract.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContractSize {
    /// The contract.
    pub contract: ContractId,
    /// Its share of all events and transactions, from 0 to 1.
    pub share: f64,
    /// The share in bytes on disk.
    pub bytes: u64,
}

impl Store {
    /// Estimates the disk space of contracts, and returns the `most` largest. A transaction counts
    /// for all contracts that it touches, in equal parts. Calls `should_continue` before each
    /// ledger, and returns `None` once it returns false.
    ///
    /// Does not fill the caches, so that data that requests need stays in memory.
    pub fn contract_sizes(
        &self,
        sample: Sample,
        most: usize,
        should_continue: impl Fn() -> bool,
    ) -> Result<Option<ContractSizes>, StoreError> {
        let ledgers = self.ranges_with_records();
        let stored = ledgers.iter().map(LedgerRange::len).sum();
        let (mut events, mut transactions) = (Sums::default(), Sums::default());
        let mut sampled = 0;
        for index in spread(stored, sample.ledgers) {
            let contracts = events.of.len() + transactions.of.len();
            if events.all + transactions.all >= sample.bytes || contracts >= sample.contracts {
                break;
            }
            if !should_continue() {
                return Ok(None);
            }
            if let Some(ledger) = nth(&ledgers, index) {
                let snapshot = self.database.snapshot();
                add_events(&snapshot, ledger, &mut events)?;
                add_transactions(&snapshot, ledger, &mut transactions)?;
            }
            sampled += 1;
        }
        let sizes = self.sizes()?;
        let on_disk = |families: &[Family]| -> u64 {
            families.iter().filter_map(|family| sizes.get(family.name())).sum()
        };
        let kinds = [(on_disk(OF_EVENTS), events), (on_disk(OF_TRANSACTIONS), transactions)];
        let (bytes, mut contracts) = divide(kinds);
        let others = contracts.len().saturating_sub(most) as u64;
        contracts.truncate(most);
        Ok(Some(ContractSizes { sampled, stored, bytes, largest: contracts, others }))
    }

    /// Returns the ledgers of which retention has not removed both events and transactions.
    fn ranges_with_records(&self) -> Vec<LedgerRange> {
        let status = self.status();
        let mut ledgers = status.ledgers_with(Needs::EVENTS);
        ledgers.insert_all(&status.ledgers_with(Needs::TRANSACTIONS));
        ledgers.ranges().to_vec()
    }
}

/// Sizes of records of one kind, in bytes.
#[derive(Default)]
struct Sums {
    /// Sum over all records, including those without a contract.
    all: u64,
    of: HashMap<ContractId, f64>,
}

fn add_events(
    snapshot: &Snapshot<'_>,
    ledger: LedgerSeq,
    sums: &mut Sums,
) -> Result<(), StoreError> {
    let key = LedgerKey(ledger).encode();
    let Some(row) = snapshot.get(Family::Ledgers, key)? else { return Ok(()) };
    let row = LedgerRow::decode(&row).map_err(corrupt(Family::Ledgers, key))?;
    let mut rows = snapshot.rows_uncached(Family::Events)?;
    rows.seek(BlockKey(row.first_event).encode());
    while let Some((key, bytes)) = rows.item() {
        let damaged = |malformed| corrupt(Family::Events, key)(malformed);
        let first = BlockKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
        let bytes = compression::decompress(Content::Events, bytes)?;
        let block = Block::open(first, &bytes).map_err(damaged)?;
        if block.ledger() != ledger {
            break;
        }
        for position in 0..block.len() {
            let size = u64::from(block.body_bytes(position));
            sums.all += size;
            if let Some(contract) = block.contract(position).map_err(damaged)? {
                *sums.of.entry(ContractId(*contract)).or_default() += size as f64;
            }
        }
        rows.next();
    }
    Ok(rows.status()?)
}

fn add_transactions(
    snapshot: &Snapshot<'_>,
    ledger: LedgerSeq,
    sums: &mut Sums,
) -> Result<(), StoreError> {
    let mut rows = snapshot.rows_uncached(Family::Transactions)?;
    let prefix = LedgerKey(ledger).encode();
    rows.seek(prefix);
    let mut contracts = Vec::new();
    while let Some((key, row)) = rows.item().filter(|(key, _)| key.starts_with(&prefix)) {
        let damaged = |malformed| corrupt(Family::Transactions, key)(malformed);
        let first = TransactionKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
        // All other rows refer to one of these blocks.
        if let Row::Block(compressed) = Row::parse(row).map_err(damaged)? {
            for (position, record) in TransactionBlock::open(first, compressed)?.records() {
                let record = transaction_record::decode(position, record, &mut contracts);
                let record = record.map_err(damaged)?;
                let size = record.envelope.len() + record.result.len() + record.meta.len();
                sums.all += size as u64;
                let part = size as f64 / record.contracts.len().max(1) as f64;
                for contract in record.contracts {
                    *sums.of.entry(*contract).or_default() += part;
                }
            }
        }
        rows.next();
    }
    Ok(rows.status()?)
}

/// Divides the disk space of each kind of records among contracts. Returns the total and the
/// contracts, largest first.
fn divide(kinds: [(u64, Sums); 2]) -> (u64, Vec<ContractSize>) {
    let on_disk: u64 = kinds.iter().map(|(on_disk, _)| on_disk).sum();
    let nonempty = || kinds.iter().filter(|(_, sums)| sums.all > 0);
    // While RocksDB has not written any SST file of a kind that has records, the kinds are weighted
    // by the sizes of their records.
    let written = nonempty().all(|(of_kind, _)| *of_kind > 0);
    let weight = |(of_kind, sums): &(u64, Sums)| if written { *of_kind } else { sums.all };
    let whole: u64 = nonempty().map(weight).sum();
    let mut shares: HashMap<ContractId, f64> = HashMap::new();
    for kind in nonempty() {
        let factor = weight(kind) as f64 / kind.1.all as f64 / whole.max(1) as f64;
        for (contract, size) in &kind.1.of {
            *shares.entry(*contract).or_default() += size * factor;
        }
    }
    let size = |(contract, share): (ContractId, f64)| {
        let bytes = (share * on_disk as f64).round() as u64;
        ContractSize { contract, share, bytes }
    };
    let mut contracts: Vec<_> = shares.into_iter().map(size).collect();
    contracts.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.contract.cmp(&b.contract)));
    (on_disk, contracts)
}

/// Returns at most `most` evenly spaced indexes below `ledgers`. They come in bit-reversed order
/// (the van der Corput sequence), so that any initial part of them is also spread over all ledgers.
fn spread(ledgers: u64, most: u64) -> impl Iterator<Item = u64> {
    let wanted = most.min(ledgers);
    let bits = wanted.next_power_of_two().trailing_zeros();
    (0..1u64 << bits)
        .map(move |number| if bits == 0 { 0 } else { number.reverse_bits() >> (64 - bits) })
        .filter(move |part| *part < wanted)
        // The middle of the interval that the sample represents.
        .map(move |part| {
            let middle = u128::from(2 * part + 1) * u128::from(ledgers) / u128::from(2 * wanted);
            middle as u64
        })
}

/// Returns the ledger with a zero-based index in ascending ranges.
fn nth(ranges: &[LedgerRange], index: u64) -> Option<LedgerSeq> {
    let mut before = index;
    for range in ranges {
        if before < range.len() {
            return u32::try_from(before).ok().map(|before| LedgerSeq(range.first.0 + before));
        }
        before -= range.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sampled_positions_are_spread_evenly() {
        for (ledgers, most) in [(0, 8), (1, 8), (5, 8), (8, 8), (1000, 7), (1 << 32, 256)] {
            let indexes: Vec<_> = spread(ledgers, most).collect();
            let distinct: BTreeSet<_> = indexes.iter().copied().collect();
            assert_eq!(indexes.len() as u64, most.min(ledgers), "{ledgers} {most}");
            assert_eq!(distinct.len(), indexes.len());
            assert!(indexes.iter().all(|index| *index < ledgers));
            if ledgers <= most {
                assert_eq!(distinct, (0..ledgers).collect());
            }
        }
        let indexes: Vec<_> = spread(1 << 20, 256).collect();
        for (taken, parts) in [(2, 2), (4, 4), (64, 64), (256, 256)] {
            let of: BTreeSet<_> = indexes[..taken].iter().map(|it| (it * parts) >> 20).collect();
            assert_eq!(of.len(), taken, "one of each part");
        }
    }

    #[test]
    fn ledgers_are_counted_across_gaps() {
        let ranges = [LedgerRange::new(3, 5), LedgerRange::new(9, 9), LedgerRange::new(20, 21)];
        let all: Vec<_> = (0..8).map(|index| nth(&ranges, index).map(|ledger| ledger.0)).collect();
        assert_eq!(all, [Some(3), Some(4), Some(5), Some(9), Some(20), Some(21), None, None]);
        assert_eq!(nth(&[LedgerRange::new(0, u32::MAX)], u64::from(u32::MAX)).unwrap().0, u32::MAX);
    }

    fn sums(all: u64, of: &[(u8, f64)]) -> Sums {
        Sums { all, of: of.iter().map(|(id, size)| (ContractId([*id; 32]), *size)).collect() }
    }

    #[test]
    fn each_kind_of_record_is_divided_by_its_own_proportions() {
        let events = sums(100, &[(1, 75.0), (2, 15.0)]);
        let transactions = sums(1000, &[(2, 1000.0)]);
        let (bytes, contracts) = divide([(400, events), (600, transactions)]);
        assert_eq!(bytes, 1000);
        let of: Vec<_> = contracts.iter().map(|it| (it.contract.0[0], it.bytes)).collect();
        assert_eq!(of, [(2, 660), (1, 300)]);
        assert!((contracts[0].share - 0.66).abs() < 1e-9);
    }

    #[test]
    fn data_only_in_memory_is_divided_by_record_sizes() {
        let (bytes, contracts) =
            divide([(0, sums(100, &[(1, 100.0)])), (0, sums(300, &[(2, 300.0)]))]);
        assert_eq!(bytes, 0);
        let of: Vec<_> = contracts.iter().map(|it| (it.contract.0[0], it.share)).collect();
        assert_eq!(of, [(2, 0.75), (1, 0.25)]);
        assert_eq!(divide([(0, Sums::default()), (0, Sums::default())]), (0, vec![]));
        // An index of the events may be on disk before the transactions are.
        let (events, transactions) = (Sums::default(), sums(300, &[(2, 300.0)]));
        let (bytes, contracts) = divide([(1348, events), (0, transactions)]);
        assert_eq!((bytes, contracts[0].share, contracts[0].bytes), (1348, 1.0, 1348));
        // Transactions that were pruned do not count.
        let (bytes, contracts) = divide([(500, sums(10, &[(1, 10.0)])), (0, Sums::default())]);
        assert_eq!((bytes, contracts[0].bytes), (500, 500));
    }
}
