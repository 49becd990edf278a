//! Routes of webhooks: the call of [`crate::webhooks`] behind each, and the JSON of its result.

mod body;
mod records;

use serde::Serialize;
use serde_json::json;
use tokio::runtime::Handle as Runtime;

use super::answer::Answer;
use super::params::{Query, path_number};
use super::route::{Access, Call, Handler, Route, Work};
use super::{ApiError, Deps};
use crate::auth::{Area, Right, Scope};
use crate::webhooks::manage::Webhooks;
use crate::webhooks::rows::State;

/// Default and maximum number of deliveries on a page.
const DEFAULT_DELIVERIES: usize = 100;
const MAX_DELIVERIES: usize = 1000;

/// Names of the states of a delivery.
const STATES: [(&str, State); 4] = [
    ("pending", State::Pending),
    ("retrying", State::Retrying),
    ("delivered", State::Delivered),
    ("dead", State::Dead),
];

const OWN: Access = Access::Token(Right { area: Area::Webhooks, scope: Scope::Webhooks });

const fn read(template: &'static str, handler: Handler<Deps>) -> Route {
    Route::new("GET", template, OWN, Work::Blocking(handler))
}

const fn change(template: &'static str, handler: Handler<Deps>) -> Route {
    Route::new("POST", template, OWN, Work::Change(handler)).with_body(super::LARGEST_BODY)
}

/// Routes of this area. Literal paths take precedence over templates with `{id}` in their place.
pub(super) static ROUTES: [Route; 7] = [
    change("/rest/webhooks/new", create),
    read("/rest/webhooks/list", list),
    Route::new("DELETE", "/rest/webhooks/{id}", OWN, Work::Change(delete)),
    read("/rest/webhooks/{id}/deliveries", deliveries),
    change("/rest/webhooks/{id}/replay", replay),
    change("/rest/webhooks/{id}/test", test),
    change("/rest/webhooks/{id}/enable", enable),
];

fn create(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let wanted = body::wanted(call)?;
    let webhooks = webhooks(deps)?;
    // Resolves the name of the endpoint; this thread may block.
    Runtime::current()
        .block_on(webhooks.check(&wanted.endpoint))
        .map_err(|error| body::endpoint_error(&error))?;
    let made = webhooks.create(call.owner()?, wanted)?;
    answer(&json!({ "ids": made.ids, "secret": made.secret.reveal() }))
}

fn list(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let webhooks = webhooks(deps)?;
    let own = webhooks.registry().list(call.owner()?);
    let listed = own.iter().map(|it| records::Listed::of(it, &webhooks.missing(it)));
    answer(&listed.collect::<Vec<_>>())
}

fn delete(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let id = id(call)?;
    webhooks(deps)?.delete(call.owner()?, id)?;
    answer(&json!({ "deleted": id }))
}

fn deliveries(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let (webhooks, owner, id) = (webhooks(deps)?, call.owner()?, id(call)?);
    let query = Query::parse(call.query, &["status", "limit", "cursor"])?;
    let state = query.word("status", &STATES)?;
    let limit = query.limit(DEFAULT_DELIVERIES, MAX_DELIVERIES)?;
    let subscription = webhooks.registry().of_owner(owner, id)?;
    let page = webhooks.deliveries(owner, id, state, query.get("cursor"), limit)?;
    let tag = &subscription.definition.tag;
    if let Some(ended_at) = page.ended_at.filter(|_| page.deliveries.is_empty()) {
        let cursor = ended_at.id(tag).into();
        return Err(ApiError::TooExpensive { cursor, skipped: 0, offset: 0 });
    }
    let records =
        page.deliveries.iter().map(|(number, it)| records::Delivered::of(tag, *number, it));
    answer(&records.collect::<Vec<_>>())
}

fn replay(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let (webhooks, owner, id) = (webhooks(deps)?, call.owner()?, id(call)?);
    // Ownership is checked first, so that others learn nothing from errors about the body.
    webhooks.registry().of_owner(owner, id)?;
    match body::replay(call)? {
        body::Replay::Delivery(delivery) => {
            webhooks.replay_one(owner, id, &delivery)?;
            answer(&json!({ "deliveries": 1, "delivery_id": delivery }))
        }
        body::Replay::Ledgers(range) => {
            let done = webhooks.replay_ledgers(owner, id, range, &|| call.is_abandoned())?;
            answer(&records::Replayed::of(&done))
        }
    }
}

fn test(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let delivery = webhooks(deps)?.test(call.owner()?, id(call)?)?;
    answer(&json!({ "delivery_id": delivery }))
}

fn enable(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let webhooks = webhooks(deps)?;
    let subscription = webhooks.enable(call.owner()?, id(call)?)?;
    answer(&records::Listed::of(&subscription, &webhooks.missing(&subscription)))
}

fn webhooks(deps: &Deps) -> Result<&Webhooks, ApiError> {
    deps.webhooks.as_deref().ok_or(ApiError::NoWebhooks)
}

fn id(call: &Call<'_>) -> Result<u32, ApiError> {
    path_number("id", call.path.get("id"))
}

fn answer<T: Serialize>(value: &T) -> Result<Answer, ApiError> {
    Ok(Answer::json(serde_json::to_vec(value).expect("numbers and texts serialize")))
}
