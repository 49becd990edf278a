//! Transactions with events of contracts whose code at the time is not known, as spans. Within a span,
//! whatever becomes known of the code is the same for all transactions, so that its two ends say
//! when to look again.
//!
//! Who may have such contracts is up to strangers, so a limited number of them is listed. Of those beyond, it is
//! known from where to where in the chain they have events: what becomes known of them is found by walking through
//! the row log there, which says of each event what was not known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spans::{Span, Spans, just_before};
use orrery_ledger::domain::{ContractId, ParseError};
use orrery_store::TransactionPosition;

/// Maximum number of contracts that are listed: a project keeps the list in its manifest, which is written with
/// each change. No project has as many factories, of which all must be listed.
///
/// Few in unit tests, so that histories of a few contracts have some beyond.
const MOST_LISTED: usize = if cfg!(test) { 2 } else { 256 };

/// Transactions with events of contracts whose code at the time is not known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Unsure {
    listed: BTreeMap<ContractId, Spans>,
    /// From where to where there are transactions of others.
    beyond: Option<Span>,
}

/// Stored form: in the order of the strkeys, which is not that of the ids.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    listed: BTreeMap<String, Spans>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beyond: Option<Span>,
}

impl From<Unsure> for Stored {
    fn from(unsure: Unsure) -> Self {
        let named = |(contract, spans): (ContractId, Spans)| (contract.to_string(), spans);
        Self { listed: unsure.listed.into_iter().map(named).collect(), beyond: unsure.beyond }
    }
}

impl TryFrom<Stored> for Unsure {
    type Error = ParseError;

    fn try_from(stored: Stored) -> Result<Self, ParseError> {
        let mut listed = BTreeMap::new();
        for (contract, spans) in stored.listed {
            listed.insert(contract.parse()?, spans);
        }
        Ok(Self { listed, beyond: stored.beyond })
    }
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
        self.listed.is_empty() && self.beyond.is_none()
    }

    /// Whether there are some of this contract, and it is listed.
    pub fn has(&self, contract: &ContractId) -> bool {
        self.listed.contains_key(contract)
    }

    /// Removes those of a contract that is listed.
    pub fn remove(&mut self, contract: &ContractId) {
        self.listed.remove(contract);
    }

    /// Returns what is listed.
    pub fn into_listed(self) -> BTreeMap<ContractId, Spans> {
        self.listed
    }

    /// Returns all spans of contracts that are listed.
    pub fn spans(&self) -> impl Iterator<Item = UnsureSpan> {
        self.listed.iter().flat_map(|(contract, spans)| {
            let may_be_joined = spans.may_be_joined();
            let contract = *contract;
            let span = move |(first, last)| UnsureSpan { contract, first, last, may_be_joined };
            spans.ends().map(span)
        })
    }

    /// Returns the position before the first of the transactions of contracts that are not listed, and the last of
    /// them; `None` without such contracts.
    pub fn beyond(&self) -> Option<(TransactionPosition, TransactionPosition)> {
        self.beyond.map(|span| (just_before(span.first()), span.last()))
    }

    /// Adds a transaction. `is_same` says whether whatever becomes known is the same for all
    /// transactions of the contract after one and up to another. Returns whether that changes
    /// anything.
    ///
    /// # Errors
    /// Those of `is_same`; no transaction is added then.
    pub fn add<E>(
        &mut self,
        contract: &ContractId,
        at: TransactionPosition,
        is_same: impl FnMut(&ContractId, TransactionPosition, TransactionPosition) -> Result<bool, E>,
    ) -> Result<bool, E> {
        match self.listed_spans(contract) {
            Some(spans) => spans.add(contract, at, is_same),
            None => Ok(self.add_beyond(Span::at(at))),
        }
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
        for (contract, spans) in &more.listed {
            changed |= match self.listed_spans(contract) {
                Some(listed) => listed.join(contract, spans, &mut is_same)?,
                None => spans.all().is_some_and(|all| self.add_beyond(all)),
            };
        }
        Ok(changed | more.beyond.is_some_and(|beyond| self.add_beyond(beyond)))
    }

    /// Returns the spans of a contract, which is listed if there is room for it.
    fn listed_spans(&mut self, contract: &ContractId) -> Option<&mut Spans> {
        if self.listed.len() < MOST_LISTED || self.listed.contains_key(contract) {
            Some(self.listed.entry(*contract).or_default())
        } else {
            None
        }
    }

    fn add_beyond(&mut self, added: Span) -> bool {
        let all = self.beyond.map_or(added, |beyond| beyond.and(added));
        self.beyond.replace(all) != Some(all)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use orrery_ledger::domain::LedgerSeq;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::spans::MOST_SPANS;
    use super::*;

    fn contract(number: u32) -> ContractId {
        let mut id = [3; 32];
        id[..4].copy_from_slice(&number.to_be_bytes());
        ContractId(id)
    }

    fn at(ledger: u32) -> TransactionPosition {
        TransactionPosition { ledger: LedgerSeq(ledger), application_order: 1 }
    }

    /// Whatever strangers do, what is kept has a size that does not grow, and no transaction is forgotten.
    #[test]
    fn what_is_kept_is_limited_and_covers_all_transactions() {
        let never = |_: &ContractId, _, _| Ok::<_, Infallible>(false);
        for seed in 0..100 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut unsure, mut other) = (Unsure::default(), Unsure::default());
            let mut added = Vec::new();
            for _ in 0..rng.random_range(1..400) {
                let (contract, ledger) =
                    (contract(rng.random_range(0..40)), rng.random_range(1..1_000));
                added.push((contract, at(ledger)));
                let into = if rng.random() { &mut unsure } else { &mut other };
                let Ok(_) = into.add(&contract, at(ledger), never);
            }
            let Ok(_) = unsure.join(&other, never);
            for (contract, at) in added {
                let mut of_contract = unsure.spans().filter(|span| span.contract == contract);
                let is_listed = of_contract.any(|span| span.first <= at && at <= span.last);
                let is_beyond =
                    unsure.beyond().is_some_and(|(after, last)| after < at && at <= last);
                assert!(is_listed || is_beyond, "{contract} {at:?}: seed {seed}");
            }
            assert!(unsure.spans().count() <= MOST_LISTED * MOST_SPANS);
            let stored = serde_json::to_string(&unsure).unwrap();
            assert!(stored.len() <= 100 + MOST_LISTED * (100 + 64 * MOST_SPANS), "{stored}");
            assert_eq!(serde_json::from_str::<Unsure>(&stored).unwrap(), unsure);
        }
    }

    /// Stores of earlier versions have these bytes.
    #[test]
    fn what_earlier_versions_stored_is_read() {
        let stored = format!(r#"{{"{}":[{{"first":[5,1],"last":[7,2]}}]}}"#, contract(1));
        let unsure: Unsure = serde_json::from_str(&stored).unwrap();
        assert!(unsure.has(&contract(1)) && unsure.beyond().is_none());
        assert_eq!(serde_json::to_string(&unsure).unwrap(), stored);
        assert_eq!(serde_json::from_str::<Unsure>("{}").unwrap(), Unsure::default());
    }
}
