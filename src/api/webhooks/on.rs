//! The member `on` of a new subscription, and the members that only some of its values take.

use super::super::ApiError;
use super::super::members::Members;
use orrery_webhooks::filter::{ADDRESS_FIELD, FilterError, TOPIC_FIELDS};
use orrery_webhooks::judging::WHERE;
use orrery_webhooks::trigger::{self, Entries, Keys, NAMES, Trigger};

/// Names of members.
pub(super) const ON: &str = "on";
pub(super) const WITHIN: &str = "within";
pub(super) const ENTRIES: &str = "entries";
pub(super) const KEY_NAME: &str = "key_name";
pub(super) const KEY: &str = "key";
pub(super) const DURABILITY: &str = "durability";
pub(super) const FUNCTIONS: &str = "functions";
const INCLUDE_BACKFILL: &str = "include_backfill";

/// Each of these members with the values of `on` that take it.
const TAKEN_BY: [(&str, &[&str]); 13] = [
    (TOPIC_FIELDS[0], &["event", "silence"]),
    (TOPIC_FIELDS[1], &["event", "silence"]),
    (TOPIC_FIELDS[2], &["event", "silence"]),
    (TOPIC_FIELDS[3], &["event", "silence"]),
    (ADDRESS_FIELD, &["event", "silence"]),
    (WHERE, &["event", "storage", "silence"]),
    (WITHIN, &["ttl", "silence"]),
    (ENTRIES, &["ttl"]),
    (KEY_NAME, &["storage", "ttl"]),
    (KEY, &["storage", "ttl"]),
    (DURABILITY, &["storage", "ttl"]),
    (FUNCTIONS, &["failed_call"]),
    (INCLUDE_BACKFILL, &["event", "upgrade", "storage", "failed_call"]),
];

/// Reads what a subscription is told of.
pub(super) fn trigger(body: &Members<'_>) -> Result<Trigger, ApiError> {
    let on = body.text(ON)?.unwrap_or_else(|| NAMES[0].to_owned());
    if !NAMES.contains(&on.as_str()) {
        let names = NAMES.join(", ");
        let given = orrery_ledger::domain::excerpt(&on);
        return Err(ApiError::body(format!("'{ON}' is '{given}': give one of {names}")));
    }
    for (name, taken_by) in TAKEN_BY {
        if body.has(name) && !taken_by.contains(&on.as_str()) {
            let takers = taken_by.join(", ");
            return Err(ApiError::body(format!(
                "'{name}' says nothing about '{on}': leave it out, or give another '{ON}' ({takers})"
            )));
        }
    }
    let refused = |error: FilterError| ApiError::body(error.to_string());
    let keys = || {
        let (key, durability) = (body.text(KEY)?, body.text(DURABILITY)?);
        let keys = Keys::parse(body.text(KEY_NAME)?, key.as_deref(), durability.as_deref());
        keys.map_err(refused)
    };
    Ok(match on.as_str() {
        "upgrade" => Trigger::Upgrade,
        "storage" => Trigger::Storage { keys: keys()? },
        "ttl" => {
            let entries = body.list(ENTRIES)?;
            let entries = Entries::parse(entries.as_deref()).map_err(refused)?;
            let keys = keys()?;
            if !keys.is_any() && !entries.data {
                return Err(ApiError::body(format!(
                    "'{KEY_NAME}', '{KEY}' and '{DURABILITY}' are of data: add \"data\" to '{ENTRIES}'"
                )));
            }
            let within = trigger::within(body.whole(WITHIN)?.map(u64::from)).map_err(refused)?;
            Trigger::Ttl { within, entries, keys }
        }
        "failed_call" => {
            let functions = trigger::functions(body.list(FUNCTIONS)?).map_err(refused)?;
            Trigger::FailedCall { functions }
        }
        "silence" => {
            let within = trigger::within(body.whole(WITHIN)?.map(u64::from)).map_err(refused)?;
            Trigger::Silence { within }
        }
        _ => Trigger::Event,
    })
}
