//! `/rest/health` and the two probes, from the state of the components and the extent of the store.

use super::answer::Answer;
use super::identity::Access;
use super::route::{MemoryHandler, Route, Work};
use super::{ApiError, Deps};
use orrery_ledger::domain::EventId;
use orrery_runtime::observe::health::{Component, Record};

const fn route(template: &'static str, handler: MemoryHandler) -> Route {
    Route::new("GET", template, Work::memory(Access::Probe, handler)).ignoring_parameters()
}

/// Routes of this area.
pub(super) static ROUTES: [Route; 3] = [
    route("/rest/health", health),
    route("/rest/health/live", live),
    route("/rest/health/ready", ready),
];

/// Largest row id that fits the documented 32-bit type.
const LAST_I32_ID: EventId = EventId(i32::MAX as u64);

fn health(deps: &Deps) -> Result<Answer, ApiError> {
    Ok(Answer::of(&record(deps)))
}

/// Returns the current health record.
pub(super) fn record(deps: &Deps) -> Record<'_> {
    let ends = deps.store.ends();
    let latest = ends.latest.map(|ledger| ledger.0);
    let network_latest = deps.health.network_latest().map(|ledger| ledger.0);
    let attested = deps.attestation.report(&deps.store, &deps.health);
    let components = deps.health.components();
    let lag = deps.health.lag((deps.clock)(), ends.latest, ends.latest_close_time);
    let all_up = components.values().all(Component::works);
    Record {
        service: if all_up { "up" } else { "down" },
        service_latest_ledger: latest,
        network_latest_ledger: network_latest,
        attested_ledger: attested.as_ref().and_then(|newest| newest.ledger()).map(|it| it.0),
        attested_by: attested.as_ref().and_then(|newest| newest.by()),
        oldest_ledger: ends.oldest.map(|ledger| ledger.0),
        lag_ledgers: lag.ledgers,
        lag_seconds: lag.seconds,
        components,
        version: env!("CARGO_PKG_VERSION"),
        network: deps.network.name(),
        network_passphrase: deps.network.passphrase(),
        warning: warning(ends.last_event_id),
    }
}

fn warning(last_event: EventId) -> Option<&'static str> {
    (last_event > LAST_I32_ID)
        .then_some("row ids have passed 2147483647: clients must read `id` as a 64-bit integer")
}

fn live(_: &Deps) -> Result<Answer, ApiError> {
    Ok(Answer::json(br#"{"status":"live"}"#.to_vec()))
}

fn ready(deps: &Deps) -> Result<Answer, ApiError> {
    deps.attestation.report(&deps.store, &deps.health);
    match deps.health.first_down() {
        None => Ok(Answer::json(br#"{"status":"ready"}"#.to_vec())),
        Some((component, reason)) => Err(ApiError::NotReady(format!("{component}: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_beyond_i32_cause_a_warning() {
        assert_eq!(warning(EventId(2_147_483_647)), None);
        assert!(warning(EventId(2_147_483_648)).unwrap().contains("64-bit"));
    }
}
