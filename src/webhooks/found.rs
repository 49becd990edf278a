//! What requests look for in stored ledgers: how long, and how much of it is written at once.

use std::time::Duration;

use super::filter::Filter;
use super::rows::Number;
use super::subscription::Subscription;
use orrery_ledger::domain::{ContractId, LedgerRange};
use orrery_store::{EventQuery, TopicFilter};

/// How long one request searches for deliveries.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(2);
/// Maximum work of a condition while one event is looked for, in steps: about as much time.
pub(super) const MOST_STEPS: u64 = 200_000_000;
/// Maximum number of deliveries, and of bytes of their bodies, in one write.
pub(super) const MAX_BATCH_DELIVERIES: usize = 500;
pub(super) const MAX_BATCH_BYTES: usize = 4 << 20;

/// An event to send, or something else.
pub(super) struct FoundEvent {
    pub number: Number,
    pub ledger: u32,
    pub body: Vec<u8>,
    /// Decimals of the tokens of its message ([`Delivery::decimals`]).
    pub decimals: Vec<Option<u32>>,
}

/// Finds the events of ledgers that may match a subscription.
pub(super) fn query(subscription: &Subscription, ledgers: LedgerRange) -> EventQuery {
    let contracts = subscription.definition.contract().into_iter().collect();
    query_of(contracts, &subscription.filter, ledgers)
}

/// Finds the events of ledgers that may match a filter.
pub(super) fn query_of(
    contracts: Vec<ContractId>,
    filter: &Filter,
    ledgers: LedgerRange,
) -> EventQuery {
    let (positional, address) = (filter.topics.clone(), filter.address.clone());
    EventQuery {
        contracts,
        topics: TopicFilter { positional, address, ..TopicFilter::default() },
        ..EventQuery::of_ledgers(ledgers)
    }
}
