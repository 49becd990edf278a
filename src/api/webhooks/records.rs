//! JSON of subscriptions and deliveries: the documented fields first, then the additive ones.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::ApiError;
use orrery_ledger::domain::{CloseTime, LedgerSeq, LedgerSet};
use orrery_webhooks::WebhookError;
use orrery_webhooks::followed::LateMembers;
use orrery_webhooks::message::format::Format;
use orrery_webhooks::preview::Previewed as Preview;
use orrery_webhooks::replay::Replayed as Done;
use orrery_webhooks::rows::{Attempt, Delivery, Number, State};
use orrery_webhooks::subscription::Subscription;
use orrery_webhooks::trigger::{Durability, Entries};
use orrery_webhooks::unmet::{Misfit, Unjudged, Unmet};

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
    on: &'static str,
    within: Option<u32>,
    entries: Option<Vec<&'static str>>,
    key_name: Option<&'a str>,
    key: Option<&'a str>,
    durability: Option<&'static str>,
    functions: Option<&'a [String]>,
    enabled: bool,
    disabled_reason: Option<String>,
    failing_since: Option<String>,
    failing_reason: Option<String>,
    deliveries_waiting: u64,
    missing_ledgers: LedgerSet,
    created_at: String,
    /// When the last secret before the present one ends; `None` when none signs any more.
    previous_secrets_until: Option<String>,
    #[serde(rename = "where")]
    condition: Option<&'a str>,
    unjudged: Option<Unjudged>,
    where_misfit: Option<Misfit>,
    format: Format,
    message: Option<&'a str>,
    project: Option<&'a str>,
    late_members: Option<LateMembers>,
}

impl<'a> Listed<'a> {
    /// Creates the record of a subscription at `now`, in UNIX milliseconds; `missing` are the ledgers
    /// whose events it will never receive, `unmet` those that its condition could not be asked of,
    /// and `late` the members of its project that became known late.
    pub(super) fn of(
        subscription: &'a Subscription,
        missing: LedgerSet,
        (unmet, late): (Unmet, LateMembers),
        now: u64,
    ) -> Self {
        let definition = &subscription.definition;
        let (state, keys) = (subscription.state(), definition.trigger.keys());
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
            on: definition.trigger.name(),
            within: definition.trigger.within(),
            entries: definition.trigger.entries().map(Entries::names),
            key_name: keys.and_then(|keys| keys.key_name.as_deref()),
            key: keys.and_then(|keys| keys.key.as_deref()),
            durability: keys.and_then(|keys| keys.durability).map(Durability::name),
            functions: definition.trigger.functions(),
            enabled: state.enabled,
            disabled_reason: state.disabled_reason,
            failing_since: state.failing_since.map(time),
            failing_reason: state.failing_because,
            deliveries_waiting: subscription.waiting(),
            missing_ledgers: missing,
            created_at: time(definition.made),
            previous_secrets_until: subscription.previous_secrets_until(now).map(time),
            condition: definition.condition.as_deref(),
            unjudged: unmet.unjudged,
            where_misfit: unmet.misfit,
            format: definition.format,
            message: definition.message.as_deref(),
            project: definition.project.as_deref(),
            late_members: (late.members > 0).then_some(late),
        }
    }
}

/// Item of `GET /webhooks/{id}/deliveries`.
#[derive(Serialize)]
pub(super) struct Delivered<'a> {
    delivery_id: String,
    /// `None` for a test, and for what is no event.
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
            event_id: number.event().filter(|_| !test).map(|event| event.0),
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
    /// Number of events that the condition could not be asked of.
    unjudged: u64,
}

impl<'a> Replayed<'a> {
    pub(super) fn of(done: &'a Done) -> Self {
        Self {
            deliveries: done.deliveries,
            next: done.next,
            missing_ledgers: &done.missing,
            unjudged: done.unjudged,
        }
    }
}

/// Result of `POST /webhooks/try`.
#[derive(Serialize)]
pub(super) struct Previewed<'a> {
    ledgers: u64,
    /// The first and the last ledger of them.
    from: Option<LedgerSeq>,
    to: Option<LedgerSeq>,
    matched: u64,
    /// The bodies as they would be sent.
    first: Vec<&'a RawValue>,
    /// Number of events of which it is not known whether they would be sent.
    unjudged: u64,
}

impl<'a> Previewed<'a> {
    pub(super) fn of(previewed: &'a Preview) -> Result<Self, ApiError> {
        let body = |body: &'a Vec<u8>| serde_json::from_slice::<&RawValue>(body);
        let first: Result<Vec<_>, _> = previewed.first.iter().map(body).collect();
        let damaged = |_| WebhookError::Damaged("the body of an event".to_owned());
        let &Preview { ledgers, from, to, matched, unjudged, .. } = previewed;
        Ok(Self { ledgers, from, to, matched, first: first.map_err(damaged)?, unjudged })
    }
}
