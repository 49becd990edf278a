//! JSON of subscriptions and deliveries: the documented fields first, then the additive ones.

use serde::Serialize;

use orrery_ledger::domain::{CloseTime, LedgerSeq, LedgerSet};
use orrery_webhooks::replay::Replayed as Done;
use orrery_webhooks::rows::{Attempt, Delivery, Number, State};
use orrery_webhooks::subscription::Subscription;

/// Formats a time in UNIX milliseconds.
pub(super) fn time(milliseconds: u64) -> String {
    CloseTime::Milliseconds(milliseconds).to_string()
}

/// Item of `GET /webhooks/list`. Fields after `topic4` are additive.
#[derive(Serialize)]
pub(super) struct Listed<'a> {
    id: u32,
    webhook_endpoint: &'a str,
    contract_id: &'a str,
    topic1: Option<&'a str>,
    topic2: Option<&'a str>,
    topic3: Option<&'a str>,
    topic4: Option<&'a str>,
    address: Option<&'a str>,
    include_backfill: bool,
    enabled: bool,
    disabled_reason: Option<String>,
    failing_since: Option<String>,
    failing_reason: Option<String>,
    deliveries_waiting: u64,
    missing_ledgers: LedgerSet,
    created_at: String,
    /// When the last secret before the present one ends; `None` when none signs any more.
    previous_secrets_until: Option<String>,
}

impl<'a> Listed<'a> {
    /// Creates the record of a subscription at `now`, in UNIX milliseconds; `missing` are the ledgers
    /// whose events it will never receive.
    pub(super) fn of(subscription: &'a Subscription, missing: LedgerSet, now: u64) -> Self {
        let definition = &subscription.definition;
        let state = subscription.state();
        let [topic1, topic2, topic3, topic4] = definition.topics.each_ref().map(Option::as_deref);
        Self {
            id: subscription.id,
            webhook_endpoint: &definition.endpoint,
            contract_id: definition.contract.as_deref().unwrap_or_default(),
            topic1,
            topic2,
            topic3,
            topic4,
            address: definition.address.as_deref(),
            include_backfill: definition.include_backfill,
            enabled: state.enabled,
            disabled_reason: state.disabled_reason,
            failing_since: state.failing_since.map(time),
            failing_reason: state.failing_because,
            deliveries_waiting: subscription.waiting(),
            missing_ledgers: missing,
            created_at: time(definition.made),
            previous_secrets_until: subscription.previous_secrets_until(now).map(time),
        }
    }
}

/// Item of `GET /webhooks/{id}/deliveries`.
#[derive(Serialize)]
pub(super) struct Delivered<'a> {
    delivery_id: String,
    /// `None` for a test.
    event_id: Option<u64>,
    ledger: u32,
    status: State,
    test: bool,
    replays: u32,
    created_at: String,
    next_attempt_at: Option<String>,
    ended_at: Option<String>,
    reason: Option<&'a str>,
    attempts: Vec<Tried<'a>>,
    /// The body as it is sent, `Some(None)` when it is not stored any more; `None` leaves the member
    /// out.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Option<String>>,
}

/// An attempt to send a delivery.
#[derive(Serialize)]
struct Tried<'a> {
    at: String,
    status: Option<u16>,
    duration_ms: u64,
    error: Option<&'a str>,
    excerpt: &'a str,
}

impl<'a> Delivered<'a> {
    pub(super) fn of(tag: &str, number: Number, delivery: &'a Delivery) -> Self {
        let test = number.test().is_some();
        Self {
            delivery_id: number.id(tag),
            event_id: (!test).then_some(number.event().0),
            ledger: delivery.ledger,
            status: delivery.state,
            test,
            replays: delivery.round,
            created_at: time(delivery.made),
            next_attempt_at: delivery.due.map(time),
            ended_at: delivery.ended.map(time),
            reason: delivery.reason.as_deref(),
            attempts: delivery.attempts.iter().map(Tried::of).collect(),
            body: None,
        }
    }

    /// Returns the record with a body, which is null when it is not stored any more.
    pub(super) fn with_body(self, body: Option<String>) -> Self {
        Self { body: Some(body), ..self }
    }
}

impl<'a> Tried<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            at: time(attempt.at),
            status: attempt.status,
            duration_ms: attempt.ms,
            error: attempt.error.as_deref(),
            excerpt: &attempt.excerpt,
        }
    }
}

/// Response to a replay of ledgers.
#[derive(Serialize)]
pub(super) struct Replayed<'a> {
    deliveries: u64,
    /// Ledger to continue from; `None` when the whole range was replayed.
    next: Option<LedgerSeq>,
    missing_ledgers: &'a LedgerSet,
}

impl<'a> Replayed<'a> {
    pub(super) fn of(done: &'a Done) -> Self {
        Self { deliveries: done.deliveries, next: done.next, missing_ledgers: &done.missing }
    }
}
