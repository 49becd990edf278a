//! Transactions of one contract, as spans within which whatever becomes known is the same for all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use orrery_contract_data::LAST_ORDER;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{RowCodec, TransactionPosition};

/// Maximum number of spans of a contract; those nearest to each other are joined above it. What becomes
/// known in the middle of a joined span is found by its transactions (`looking`).
///
/// Few in unit tests, so that histories of a few ledgers have joined spans.
pub const MOST_SPANS: usize = if cfg!(test) { 4 } else { 64 };

/// Ledger and application order of the first and of the last transaction of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    first: (u32, u32),
    last: (u32, u32),
}

/// Transactions of one contract, as spans in the order of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spans(Vec<Span>);

/// Contracts, each with such transactions.
pub type Unnamed = BTreeMap<ContractId, Spans>;

impl Span {
    /// The span of one transaction.
    pub fn at(at: TransactionPosition) -> Self {
        let at = (at.ledger.0, at.application_order);
        Self { first: at, last: at }
    }

    /// Returns the first transaction.
    pub fn first(&self) -> TransactionPosition {
        position(self.first)
    }

    /// Returns the last transaction.
    pub fn last(&self) -> TransactionPosition {
        position(self.last)
    }

    /// Returns the span of both, and what is between them.
    pub fn and(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

impl Spans {
    /// Whether there are so many that some may have been joined.
    pub fn may_be_joined(&self) -> bool {
        self.0.len() >= MOST_SPANS
    }

    /// Returns the first and the last transaction of each span.
    pub fn ends(&self) -> impl Iterator<Item = (TransactionPosition, TransactionPosition)> {
        self.0.iter().map(|span| (span.first(), span.last()))
    }

    /// Returns the span of all of them, and what is between them; `None` without any.
    pub fn all(&self) -> Option<Span> {
        self.0.iter().copied().reduce(Span::and)
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
        self.add_span(contract, Span::at(at), is_same)
    }

    /// Adds other spans of the contract; see [`Self::add`].
    ///
    /// # Errors
    /// Those of `is_same`.
    pub fn join<E>(
        &mut self,
        contract: &ContractId,
        more: &Self,
        mut is_same: impl FnMut(
            &ContractId,
            TransactionPosition,
            TransactionPosition,
        ) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut changed = false;
        for span in &more.0 {
            changed |= self.add_span(contract, *span, &mut is_same)?;
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
        let spans = &mut self.0;
        if spans.iter().any(|it| it.first <= added.first && added.last <= it.last) {
            return Ok(false);
        }
        let mut joins = |before: &Span, after: &Span| {
            Ok(after.first <= before.last || is_same(contract, before.last(), after.first())?)
        };
        // Those before and after the added one; spans that it overlaps are joined with it.
        let mut from = spans.partition_point(|it| it.first < added.first);
        let mut to = from;
        while from > 0 && joins(&spans[from - 1], &added)? {
            from -= 1;
            added = added.and(spans[from]);
        }
        while to < spans.len() && joins(&added, &spans[to])? {
            added.last = added.last.max(spans[to].last);
            to += 1;
        }
        spans.splice(from..to, [added]);
        if spans.len() > MOST_SPANS {
            join_nearest(spans);
        }
        Ok(true)
    }
}

impl RowCodec for Spans {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.iter().for_each(|span| (span.first, span.last).write(to));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut spans = Vec::new();
        while !bytes.is_empty() {
            let (first, last) = RowCodec::read(bytes)?;
            spans.push(Span { first, last });
        }
        Some(Self(spans))
    }
}

fn join_nearest(spans: &mut Vec<Span>) {
    let distance = |at: &usize| spans[at + 1].first.0 - spans[*at].last.0;
    let Some(nearest) = (0..spans.len() - 1).min_by_key(distance) else { return };
    spans[nearest].last = spans[nearest + 1].last;
    spans.remove(nearest + 1);
}

/// Returns the position that precedes all others that are before this one.
pub(super) fn just_before(at: TransactionPosition) -> TransactionPosition {
    match at.application_order.checked_sub(1) {
        Some(application_order) => TransactionPosition { application_order, ..at },
        None => TransactionPosition {
            ledger: LedgerSeq(at.ledger.0.saturating_sub(1)),
            application_order: LAST_ORDER,
        },
    }
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
            let (mut spans, mut other) = (Spans::default(), Spans::default());
            for _ in 0..rng.random_range(1..60) {
                let ledger = rng.random_range(0..100);
                added.push(ledger);
                let into = if rng.random() { &mut spans } else { &mut other };
                let Ok(_) = into.add(&CONTRACT, position((ledger, 0)), is_same);
            }
            let Ok(_) = spans.join(&CONTRACT, &other, is_same);
            let Ok(changed) = spans.join(&CONTRACT, &other, is_same);
            assert!(!changed, "nothing is new: seed {seed}");
            let mut expected: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
            for ledger in added {
                let (first, last) = expected.entry(part(ledger)).or_insert((ledger, ledger));
                (*first, *last) = ((*first).min(ledger), (*last).max(ledger));
            }
            let found: Vec<_> =
                spans.ends().map(|(first, last)| (first.ledger.0, last.ledger.0)).collect();
            assert_eq!(found, expected.into_values().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(Spans::decode(&spans.encode()), Some(spans), "seed {seed}");
        }
    }

    #[test]
    fn the_number_of_spans_is_limited() {
        let mut spans = Spans::default();
        for ledger in 0..1000 {
            let Ok(changed) =
                spans.add(&CONTRACT, position((ledger, 0)), |_, _, _| Ok::<_, Infallible>(false));
            assert!(changed);
        }
        let ends: Vec<_> = spans.ends().collect();
        assert_eq!(ends.len(), MOST_SPANS);
        assert!(spans.may_be_joined());
        assert_eq!((ends[0].0.ledger.0, ends[MOST_SPANS - 1].1.ledger.0), (0, 999));
    }
}
