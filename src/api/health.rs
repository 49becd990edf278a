//! `/rest/health` and the two probes. Reads the components' state and what the store holds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::answer::Answer;
use super::route::{Access, Call, Handler, Route, Work};
use super::{ApiError, Deps};
use crate::domain::EventId;
use crate::observe::health::Component;
use crate::store::StoreEnds;

const fn route(template: &'static str, handler: Handler<Deps>) -> Route {
    Route::new("GET", template, Access::Probe, Work::Memory(handler))
}

/// Routes of this area.
pub(super) static ROUTES: [Route; 3] = [
    route("/rest/health", health),
    route("/rest/health/live", live),
    route("/rest/health/ready", ready),
];

/// Largest row id that fits the documented type.
const LAST_I32_ID: EventId = EventId(i32::MAX as u64);

/// The health record. Fields after the third are additive; absent ones are unknown.
#[derive(Serialize)]
struct Record<'a> {
    service: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_latest_ledger: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_latest_ledger: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ledger: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_ledgers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_seconds: Option<u64>,
    components: BTreeMap<&'static str, State>,
    version: &'static str,
    network: &'static str,
    network_passphrase: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
}

#[derive(Serialize)]
struct State {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl From<Component> for State {
    fn from(component: Component) -> Self {
        match component {
            Component::Up(detail) => Self { status: "up", reason: None, detail },
            Component::Down(reason) => Self { status: "down", reason: Some(reason), detail: None },
        }
    }
}

fn health(deps: &Deps, _: &Call<'_>) -> Result<Answer, ApiError> {
    Ok(json(&record(deps, &deps.store.ends())))
}

fn record<'a>(deps: &'a Deps, ends: &StoreEnds) -> Record<'a> {
    let latest = ends.latest.map(|ledger| ledger.0);
    let network_latest = deps.health.network_latest().map(|ledger| ledger.0);
    let components: BTreeMap<_, State> =
        deps.health.components().into_iter().map(|(name, state)| (name, state.into())).collect();
    // Without a source nothing is lagged behind: what a backfill learns of the network is no promise.
    let follows = |latest: Option<u32>| latest.filter(|_| deps.health.follows());
    let all_up = components.values().all(|state| state.reason.is_none());
    Record {
        service: if all_up { "up" } else { "down" },
        service_latest_ledger: latest,
        network_latest_ledger: network_latest,
        oldest_ledger: ends.oldest.map(|ledger| ledger.0),
        lag_ledgers: network_latest
            .zip(follows(latest))
            .map(|(tip, stored)| tip.saturating_sub(stored)),
        lag_seconds: ends
            .latest_close_time
            .filter(|_| deps.health.follows())
            .map(|closed| (deps.clock)().saturating_sub(closed)),
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

fn live(_: &Deps, _: &Call<'_>) -> Result<Answer, ApiError> {
    Ok(Answer::json(br#"{"status":"live"}"#.to_vec()))
}

fn ready(deps: &Deps, _: &Call<'_>) -> Result<Answer, ApiError> {
    match deps.health.first_down() {
        None => Ok(Answer::json(br#"{"status":"ready"}"#.to_vec())),
        Some((component, reason)) => Err(ApiError::NotReady(format!("{component}: {reason}"))),
    }
}

fn json(record: &Record<'_>) -> Answer {
    // A structure of texts and numbers always serializes.
    Answer::json(serde_json::to_vec(record).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_past_i32_are_warned_of() {
        assert_eq!(warning(EventId(2_147_483_647)), None);
        assert!(warning(EventId(2_147_483_648)).unwrap().contains("64-bit"));
    }
}
