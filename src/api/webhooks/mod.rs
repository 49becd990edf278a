//! Routes of webhooks: the call of [`orrery_webhooks`] behind each, and the JSON of its result.

mod body;
mod on;
mod records;

use serde_json::json;
use tokio::runtime::Handle as Runtime;

use super::answer::Answer;
use super::call::OwnerCall;
use super::members::Members;
use super::params::path_number;
use super::request_body::LARGEST_BODY;
use super::route::{OwnerHandler, Route, Work};
use super::{ApiError, Deps};
use orrery_auth::{Area, Right, Scope, has_programs};
use orrery_store::Bounds;
use orrery_webhooks::manage::{NewSubscriptions, Webhooks};
use orrery_webhooks::rows::State;
use orrery_webhooks::subscription::Subscription;

/// Default and maximum number of deliveries on a page.
const DEFAULT_DELIVERIES: usize = 100;
const MAX_DELIVERIES: usize = 1000;

/// Maximum number of deliveries on a page with bodies, and of bytes of these bodies.
const MAX_BODIES: usize = 20;
const MOST_BODY_BYTES: usize = 1 << 20;

/// Names of the states of a delivery.
const STATES: [(&str, State); 4] = [
    ("pending", State::Pending),
    ("retrying", State::Retrying),
    ("delivered", State::Delivered),
    ("dead", State::Dead),
];

const OWN: Right = Right { area: Area::Webhooks, scope: Scope::Webhooks };

const fn read(template: &'static str, handler: OwnerHandler) -> Route {
    Route::new("GET", template, Work::own_read(OWN, handler))
}

const fn change(template: &'static str, handler: OwnerHandler) -> Route {
    Route::new("POST", template, Work::change(OWN, handler)).with_body(LARGEST_BODY)
}

/// Routes of this area. Literal paths take precedence over templates with `{id}` in their place.
pub(super) static ROUTES: [Route; 9] = [
    change("/rest/webhooks/new", create),
    change("/rest/webhooks/try", preview),
    read("/rest/webhooks/list", list),
    Route::new("DELETE", "/rest/webhooks/{id}", Work::change(OWN, delete)),
    read("/rest/webhooks/{id}/deliveries", deliveries).with_parameters(&[
        "status",
        "limit",
        "cursor",
        "delivery_id",
        "body",
    ]),
    change("/rest/webhooks/{id}/replay", replay),
    change("/rest/webhooks/{id}/test", test),
    change("/rest/webhooks/{id}/enable", enable),
    change("/rest/webhooks/{id}/secret", rotate),
];

fn create(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let wanted = body::wanted(call.body)?;
    check_plan(call, &wanted)?;
    let webhooks = &deps.webhooks;
    // Resolves the name of the endpoint; this thread may block.
    Runtime::current()
        .block_on(webhooks.check(&wanted.endpoint))
        .map_err(|error| body::endpoint_error(&error))?;
    let made = webhooks.create(call.owner, wanted)?;
    Ok(Answer::of(&json!({ "ids": made.ids, "secret": made.secret.reveal() })))
}

/// Checks that the plan of a token includes projects, where one is wanted.
fn check_plan(call: &OwnerCall<'_>, wanted: &NewSubscriptions) -> Result<(), ApiError> {
    match wanted.project {
        Some(_) => Ok(has_programs(call.claims)?),
        None => Ok(()),
    }
}

/// Says what subscriptions would have sent. As much is read of the store as by a scan.
fn preview(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let (wanted, last) = body::previewed(call.body)?;
    check_plan(call, &wanted)?;
    let limits = &deps.settings.limits;
    let is_over =
        || call.waiting.elapsed() >= limits.scan_ms.duration() || call.waiting.is_abandoned();
    let bounds = Bounds {
        records: limits.scan_records.get().into(),
        index_rows: limits.scan_index_rows.get().into(),
        interrupted: &is_over,
    };
    let previewed = deps.webhooks.preview(call.owner, wanted, last, bounds)?;
    records::Previewed::of(&previewed).map(|it| Answer::of(&it))
}

fn list(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let webhooks = &deps.webhooks;
    let own = webhooks.registry().list(call.owner);
    let listed = own.iter().map(|it| listed(webhooks, it));
    Ok(Answer::of(&listed.collect::<Result<Vec<_>, _>>()?))
}

fn delete(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let id = id(call)?;
    deps.webhooks.delete(call.owner, id)?;
    Ok(Answer::of(&json!({ "deleted": id })))
}

fn deliveries(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let (webhooks, owner, id) = (&deps.webhooks, call.owner, id(call)?);
    let query = call.query;
    let state = query.word("status", &STATES)?;
    let has_bodies = query.word("body", &[("true", true), ("false", false)])?.unwrap_or(false);
    let limit = match has_bodies {
        true => query.limit(MAX_BODIES, MAX_BODIES)?,
        false => query.limit(DEFAULT_DELIVERIES, MAX_DELIVERIES)?,
    };
    let subscription = webhooks.registry().of_owner(owner, id)?;
    let tag = &subscription.definition.tag;
    let found = match query.get("delivery_id") {
        Some(delivery) => webhooks.delivery(owner, id, delivery)?.into_iter().collect(),
        None => {
            let page = webhooks.deliveries(owner, id, state, query.get("cursor"), limit)?;
            if let Some(ended_at) = page.ended_at.filter(|_| page.deliveries.is_empty()) {
                let cursor = ended_at.id(tag).into();
                return Err(ApiError::TooExpensive { cursor, skipped: 0, offset: 0 });
            }
            page.deliveries
        }
    };
    let records = found.iter().map(|(number, it)| records::Delivered::of(tag, *number, it));
    if !has_bodies {
        return Ok(Answer::of(&records.collect::<Vec<_>>()));
    }
    let bodies = webhooks.bodies(owner, id, &found, MOST_BODY_BYTES)?;
    let with_bodies = records.zip(bodies).map(|(record, body)| record.with_body(body));
    Ok(Answer::of(&with_bodies.collect::<Vec<_>>()))
}

fn replay(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let (webhooks, owner, id) = (&deps.webhooks, call.owner, id(call)?);
    // Ownership is checked first, so that others learn nothing from errors about the body.
    webhooks.registry().of_owner(owner, id)?;
    match body::replay(call.body)? {
        body::Replay::Delivery(delivery) => {
            webhooks.replay_one(owner, id, &delivery)?;
            Ok(Answer::of(&json!({ "deliveries": 1, "delivery_id": delivery })))
        }
        body::Replay::Ledgers(range) => {
            let done =
                webhooks.replay_ledgers(owner, id, range, &|| call.waiting.is_abandoned())?;
            Ok(Answer::of(&records::Replayed::of(&done)))
        }
    }
}

fn test(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    Members::none(call.body)?;
    let delivery = deps.webhooks.test(call.owner, id(call)?)?;
    Ok(Answer::of(&json!({ "delivery_id": delivery })))
}

fn enable(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    Members::none(call.body)?;
    let webhooks = &deps.webhooks;
    let subscription = webhooks.enable(call.owner, id(call)?)?;
    Ok(Answer::of(&listed(webhooks, &subscription)?))
}

fn listed<'a>(
    webhooks: &Webhooks,
    subscription: &'a Subscription,
) -> Result<records::Listed<'a>, ApiError> {
    let now = webhooks.registry().now().due;
    let unmet = webhooks.unmet(subscription)?;
    let late = webhooks.late_members(subscription)?;
    let missing = webhooks.missing(subscription);
    Ok(records::Listed::of(subscription, missing, (unmet, late), now))
}

fn rotate(deps: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let (id, wanted) = (id(call)?, body::rotation(call.body)?);
    let rotated = deps.webhooks.rotate(call.owner, id, wanted)?;
    Ok(Answer::of(&json!({
        "id": id,
        "secret": rotated.secret.reveal(),
        "previous_secrets_until": rotated.previous_until.map(records::time),
    })))
}

fn id(call: &OwnerCall<'_>) -> Result<u32, ApiError> {
    path_number("id", call.path.get("id"))
}
