//! Strict parsing of the answers of core's query port: a wrong entry would lead to wrong past
//! states.

use std::collections::BTreeMap;

use orrery_ledger::domain::{
    LedgerSeq, LiveEntries, LiveEntry, excerpt, has_lifetime, is_temporary, ttl_key,
};
use serde::Deserialize;
use stellar_xdr::{LedgerEntry, LedgerEntryData, LedgerKey};

use crate::xdr::from_base64;

/// An answer to either command. The first programs of protocol 22 call the fields `ledger` and
/// `le`.
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "ledgerSeq", alias = "ledger")]
    ledger: u32,
    /// Absent when no entry was found.
    entries: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(alias = "le")]
    entry: Option<String>,
    state: Option<String>,
    #[serde(rename = "liveUntilLedgerSeq")]
    live_until: Option<u32>,
}

/// Returns the key of the TTL of contract data or code. `None` for entries that live for ever.
pub(super) fn ttl_of(key: &LedgerKey) -> Option<LedgerKey> {
    has_lifetime(key).then(|| ttl_key(key).ok()).flatten()
}

/// Parses an answer of `getledgerentry`, which has an item for each key in the order of the
/// request. The error describes the answer and follows "answers with".
pub(super) fn parse_with_state(body: &[u8], keys: &[LedgerKey]) -> Result<LiveEntries, String> {
    let Answer { ledger, entries } = parse(body)?;
    let items = entries.unwrap_or_default();
    if items.len() != keys.len() {
        return Err(format!("{} entries for {} keys", items.len(), keys.len()));
    }
    let found = keys.iter().zip(items).map(|(key, item)| entry_with_state(key, &item));
    Ok(LiveEntries { as_of: LedgerSeq(ledger), entries: found.collect::<Result<_, _>>()? })
}

fn entry_with_state(key: &LedgerKey, item: &Item) -> Result<Option<LiveEntry>, String> {
    let state = item.state.as_deref();
    let live_until = match (state, has_lifetime(key), item.live_until) {
        (Some("not-found"), ..) => return Ok(None),
        (Some("live"), false, _) => None,
        (Some("live"), true, Some(until)) => Some(until),
        (Some("live"), true, None) => return Err("an entry without its time to live".to_owned()),
        (Some("archived"), true, _) => Some(0),
        (state, ..) => {
            return Err(format!("an entry in the state {}", excerpt(state.unwrap_or("none"))));
        }
    };
    let entry = entry(item)?;
    if entry.to_key() != *key {
        return Err("another entry than was asked for".to_owned());
    }
    Ok(Some(LiveEntry { entry, live_until }))
}

/// Parses an answer of `getledgerentryraw` to a request that included the keys of times to live. It
/// contains only existing entries, in any order. The error describes the answer and follows
/// "answers with".
pub(super) fn parse_raw(body: &[u8], keys: &[LedgerKey]) -> Result<LiveEntries, String> {
    let Answer { ledger, entries } = parse(body)?;
    let mut found = BTreeMap::new();
    for item in entries.unwrap_or_default() {
        let entry = entry(&item)?;
        found.insert(entry.to_key(), entry);
    }
    let held = keys.iter().map(|key| raw_entry(key, ledger, &mut found));
    let held = held.collect::<Result<_, _>>()?;
    found.retain(|key, _| !matches!(key, LedgerKey::Ttl(_)));
    if found.is_empty() {
        Ok(LiveEntries { as_of: LedgerSeq(ledger), entries: held })
    } else {
        Err("another entry than was asked for".to_owned())
    }
}

/// Returns the entry under a key. An entry whose time to live has ended is absent if it is
/// temporary, and archived otherwise.
fn raw_entry(
    key: &LedgerKey,
    ledger: u32,
    found: &mut BTreeMap<LedgerKey, LedgerEntry>,
) -> Result<Option<LiveEntry>, String> {
    let Some(entry) = found.remove(key) else { return Ok(None) };
    let Some(time) = ttl_of(key) else {
        return Ok(Some(LiveEntry { entry, live_until: None }));
    };
    let until = match found.get(&time).map(|time| &time.data) {
        Some(LedgerEntryData::Ttl(time)) => time.live_until_ledger_seq,
        _ => return Err("an entry without its time to live".to_owned()),
    };
    let live_until = Some(if until < ledger { 0 } else { until });
    let gone = until < ledger && is_temporary(key);
    Ok((!gone).then_some(LiveEntry { entry, live_until }))
}

fn parse(body: &[u8]) -> Result<Answer, String> {
    serde_json::from_slice(body).map_err(|error| {
        let error = error.to_string();
        format!("something of another form ({})", excerpt(&error))
    })
}

fn entry(item: &Item) -> Result<LedgerEntry, String> {
    let entry = item.entry.as_deref().ok_or("no entry where there should be one")?;
    from_base64(entry).ok_or_else(|| "an entry that is not XDR".to_owned())
}
