//! Transactions with events of contracts whose code at the time is not known, as spans. Within a span,
//! whatever becomes known of the code is the same for all transactions, so that its two ends say
//! when to look again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::TransactionPosition;

/// Maximum number of spans of a contract; those nearest to each other are joined above it. What becomes
/// known in the middle of a joined span is found by its transactions (`looking`).
///
/// Few in unit tests, so that histories of a few ledgers have joined spans.
const MOST_SPANS: usize = if cfg!(test) { 4 } else { 64 };

/// Transactions with events of contracts whose code at the time is not known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "Stored")]
pub struct Unsure(BTreeMap<ContractId, Vec<Span>>);

/// Stored form: in the order of the strkeys, which is not that of the ids.
type Stored = BTreeMap<String, Vec<Span>>;

impl From<Unsure> for Stored {
    fn from(unsure: Unsure) -> Self {
        unsure.0.into_iter().map(|(contract, spans)| (contract.to_string(), spans)).collect()
    }
}

/// Ledger and application order of the first and of the last transaction of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Span {
    first: (u32, u32),
    last: (u32, u32),
}

/// A span of transactions with events of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsureSpan {
    /// The contract.
    pub contract: ContractId,
    /// The first of the transactions.
    pub first: TransactionPosition,
    /// The last of the transactions.
    pub last: TransactionPosition,
    /// Whether the contract has so many spans that some may have been joined.
    pub may_be_joined: bool,
}

impl Unsure {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are some of this contract.
    pub fn has(&self, contract: &ContractId) -> bool {
        self.0.contains_key(contract)
    }

    /// Number of the contracts.
    pub fn contracts(&self) -> usize {
        self.0.len()
    }

    /// Removes those of a contract.
    pub fn remove(&mut self, contract: &ContractId) {
        self.0.remove(contract);
    }

    /// Removes those of all contracts that `keep` does not keep. Returns whether there were such.
    pub fn retain(&mut self, mut keep: impl FnMut(&ContractId) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|contract, _| keep(contract));
        self.0.len() < before
    }

    /// Returns all spans.
    pub fn spans(&self) -> impl Iterator<Item = UnsureSpan> {
        self.0.iter().flat_map(|(contract, spans)| {
            spans.iter().map(|span| UnsureSpan {
                contract: *contract,
                first: position(span.first),
                last: position(span.last),
                may_be_joined: spans.len() >= MOST_SPANS,
            })
        })
    }

    /// Adds a transaction. `is_same` says whether whatever becomes known is the same for all
    /// transactions of the contract after one and up to another. Returns whether that changes
    /// anything.
    ///
    /// # Errors
    /// Those of `is_same`; nothing is added then.
    pub fn add<E>(
        &mut self,
        contract: &ContractId,
        at: TransactionPosition,
        is_same: impl FnMut(&ContractId, TransactionPosition, TransactionPosition) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let at = (at.ledger.0, at.application_order);
        self.add_span(contract, Span { first: at, last: at }, is_same)
    }

    /// Adds the spans of another part; see [`Self::add`].
    ///
    /// # Errors
    /// Those of `is_same`.
    pub fn join<E>(
        &mut self,
        more: &Self,
        mut is_same: impl FnMut(
            &ContractId,
            TransactionPosition,
            TransactionPosition,
        ) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut changed = false;
        for (contract, spans) in &more.0 {
            for span in spans {
                changed |= self.add_span(contract, *span, &mut is_same)?;
            }
        }
        Ok(changed)
    }

    fn add_span<E>(
        &mut self,
        contract: &ContractId,
        mut added: Span,
        mut is_same: impl FnMut(
            &ContractId,
            TransactionPosition,
            TransactionPosition,
        ) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let none = Vec::new();
        let spans = self.0.get(contract).unwrap_or(&none);
        if spans.iter().any(|it| it.first <= added.first && added.last <= it.last) {
            return Ok(false);
        }
        let mut joins = |before: &Span, after: &Span| {
            Ok(after.first <= before.last
                || is_same(contract, position(before.last), position(after.first))?)
        };
        // Those before and after the added one; spans that it overlaps are joined with it.
        let mut from = spans.partition_point(|it| it.first < added.first);
        let mut to = from;
        while from > 0 && joins(&spans[from - 1], &added)? {
            from -= 1;
            added.first = added.first.min(spans[from].first);
            added.last = added.last.max(spans[from].last);
        }
        while to < spans.len() && joins(&added, &spans[to])? {
            added.last = added.last.max(spans[to].last);
            to += 1;
        }
        let spans = self.0.entry(*contract).or_default();
        spans.splice(from..to, [added]);
        if spans.len() > MOST_SPANS {
            join_nearest(spans);
        }
        Ok(true)
    }
}

fn join_nearest(spans: &mut Vec<Span>) {
    let distance = |at: &usize| spans[at + 1].first.0 - spans[*at].last.0;
    let Some(nearest) = (0..spans.len() - 1).min_by_key(distance) else { return };
    spans[nearest].last = spans[nearest + 1].last;
    spans.remove(nearest + 1);
}

fn position((ledger, application_order): (u32, u32)) -> TransactionPosition {
    TransactionPosition { ledger: LedgerSeq(ledger), application_order }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const CONTRACT: ContractId = ContractId([7; 32]);

    /// Transactions in any order are in spans that end exactly where knowledge may differ.
    #[test]
    fn spans_end_where_knowledge_may_differ() {
        for seed in 0..200 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let borders: Vec<u32> =
                (0..rng.random_range(0..MOST_SPANS)).map(|_| rng.random_range(0..100)).collect();
            // The border 5 lies between ledgers 4 and 5.
            let part = |ledger: u32| borders.iter().filter(|border| **border <= ledger).count();
            let is_same = |_: &ContractId, a: TransactionPosition, b: TransactionPosition| {
                Ok::<_, Infallible>(part(a.ledger.0) == part(b.ledger.0))
            };
            let mut added: Vec<u32> = Vec::new();
            let (mut unsure, mut other) = (Unsure::default(), Unsure::default());
            for _ in 0..rng.random_range(1..60) {
                let ledger = rng.random_range(0..100);
                added.push(ledger);
                let into = if rng.random() { &mut unsure } else { &mut other };
                let Ok(_) = into.add(&CONTRACT, position((ledger, 0)), is_same);
            }
            let Ok(_) = unsure.join(&other, is_same);
            let Ok(changed) = unsure.join(&other, is_same);
            assert!(!changed, "nothing is new: seed {seed}");
            let mut expected: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
            for ledger in added {
                let (first, last) = expected.entry(part(ledger)).or_insert((ledger, ledger));
                (*first, *last) = ((*first).min(ledger), (*last).max(ledger));
            }
            let found: Vec<_> =
                unsure.spans().map(|it| (it.first.ledger.0, it.last.ledger.0)).collect();
            assert_eq!(found, expected.into_values().collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn the_number_of_spans_is_limited() {
        let mut unsure = Unsure::default();
        for ledger in 0..1000 {
            let Ok(changed) =
                unsure.add(&CONTRACT, position((ledger, 0)), |_, _, _| Ok::<_, Infallible>(false));
            assert!(changed);
        }
        let spans: Vec<_> = unsure.spans().collect();
        assert_eq!(spans.len(), MOST_SPANS);
        assert!(spans.iter().all(|span| span.may_be_joined));
        assert_eq!((spans[0].first.ledger.0, spans[MOST_SPANS - 1].last.ledger.0), (0, 999));
    }
}
