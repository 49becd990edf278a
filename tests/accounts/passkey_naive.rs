//! A second implementation of passkey wallets, written from the reference alone: simple, slow, and
//! on values as JSON. Shares no code with the index.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::world::At;

/// A recognised event.
#[derive(Clone)]
struct Event {
    generation: &'static str,
    name: String,
    /// Type and value of the signer's key; `None` for an upgrade.
    key: Option<(String, String)>,
    /// Members of the signer, with the limits as emitted; `None` when it is removed.
    put: Option<Value>,
}

/// The recognised events, by contract and position.
#[derive(Default)]
pub struct Naive {
    events: BTreeMap<String, BTreeMap<At, Event>>,
}

/// State of one wallet after all its events.
struct Folded {
    generation: &'static str,
    first: u32,
    last: u32,
    /// In the order of first appearance: type, value, members, and whether the signer was removed.
    signers: Vec<(String, String, Value, bool)>,
    counted: Vec<(&'static str, String, u32)>,
    /// Position at which each signer was first put.
    firsts: Vec<At>,
}

fn key(value: &Value) -> Option<(String, String)> {
    let parts = value["vec"].as_array().filter(|parts| parts.len() == 2)?;
    match parts[0]["symbol"].as_str()? {
        "Policy" => Some(("policy".into(), owner(&parts[1])?)),
        "Ed25519" => {
            let bytes = hex::decode(parts[1]["bytes"].as_str()?).ok()?;
            let key = stellar_strkey::ed25519::PublicKey(bytes.try_into().ok()?);
            Some(("ed25519".into(), key.to_string().as_str().to_owned()))
        }
        "Secp256r1" => {
            let id = parts[1]["bytes"].as_str()?;
            (2..=2046).contains(&id.len()).then(|| ("secp256r1".into(), id.to_owned()))
        }
        _ => None,
    }
}

fn owner(value: &Value) -> Option<String> {
    let address = value["address"].as_str()?;
    address.starts_with(['G', 'C']).then(|| address.to_owned())
}

fn storage(value: &Value) -> Option<&'static str> {
    let parts = value["vec"].as_array().filter(|parts| parts.len() == 1)?;
    match parts[0]["symbol"].as_str()? {
        "Persistent" => Some("persistent"),
        "Temporary" => Some("temporary"),
        _ => None,
    }
}

fn one(value: &Value) -> Option<&Value> {
    value["vec"].as_array().filter(|parts| parts.len() == 1).map(|parts| &parts[0])
}

fn limits(value: &Value) -> Option<Value> {
    let mut shown = Map::new();
    for entry in value["map"].as_array()? {
        let keys = match &entry["val"] {
            Value::String(void) if void == "void" => Value::Null,
            keys => {
                let mut listed = Vec::new();
                for it in keys["vec"].as_array()? {
                    let (kind, value) = key(it)?;
                    listed.push(json!({ "type": kind, "value": value }));
                }
                Value::Array(listed)
            }
        };
        shown.insert(owner(&entry["key"])?, keys);
    }
    Some(Value::Object(shown))
}

/// Returns the members of a signer; `limits` is absent if there are none.
fn signer(kind: &str, val: &Value, kept: &Value, generation: &str) -> Option<Value> {
    let mut parts = val["vec"].as_array()?.clone();
    let named = parts.first()?["symbol"].as_str()?.to_lowercase();
    if named != kind || parts[0]["symbol"].as_str()?.starts_with(char::is_lowercase) {
        return None;
    }
    parts.remove(0);
    let mut members = Map::new();
    if kind == "secp256r1" {
        let public_key = parts.first()?["bytes"].as_str().filter(|hex| hex.len() == 130)?;
        members.insert("publicKey".into(), json!(public_key));
        parts.remove(0);
    }
    let (expiration, limited, layout) = match (parts.as_slice(), generation) {
        ([expiration, limited], "v1") => (one(expiration)?.clone(), one(limited)?.clone(), "v1"),
        ([expiration, limited], _) => match one(expiration) {
            Some(expiration) => (expiration.clone(), one(limited)?.clone(), "wrapped"),
            None => (expiration.clone(), one(limited)?.clone(), "bare"),
        },
        ([limited], "legacy") => (json!("void"), one(limited)?.clone(), "none"),
        _ => return None,
    };
    if expiration != "void" {
        let (number, unit) = match generation {
            "v1" => (expiration["u64"].as_str()?.parse::<u64>().ok()?, "unix"),
            _ => (expiration["u32"].as_u64()?, "ledger"),
        };
        members.insert("expiration".into(), json!(number));
        members.insert("expiration_unit".into(), json!(unit));
    }
    if limited == "void" {
        if layout == "bare" || layout == "none" {
            return None;
        }
    } else {
        members.insert("limits".into(), limits(&limited)?);
    }
    members.insert("storage".into(), json!(storage(kept)?));
    Some(Value::Object(members))
}

fn recognise(topics: &[Value], data: &Value) -> Option<Event> {
    let names: Vec<&str> = topics.iter().map(|it| it["symbol"].as_str().unwrap_or("")).collect();
    let fields = |wanted: &[&str]| -> Option<BTreeMap<String, Value>> {
        let mut found = BTreeMap::new();
        for entry in data["map"].as_array()? {
            found.insert(entry["key"]["symbol"].as_str()?.to_owned(), entry["val"].clone());
        }
        let is_exact = found.len() == data["map"].as_array()?.len()
            && found.keys().map(String::as_str).eq(wanted.iter().copied());
        is_exact.then_some(found)
    };
    let v1 = |name: &str, key, put| Event { generation: "v1", name: name.into(), key, put };
    match names.as_slice() {
        ["upgraded"] => {
            let map = fields(&["new_hash", "old_hash"])?;
            let is_hash = |it: &Value| it["bytes"].as_str().is_some_and(|hex| hex.len() == 64);
            let is_one = is_hash(&map["new_hash"])
                && (map["old_hash"] == "void" || is_hash(&map["old_hash"]));
            is_one.then(|| v1("upgraded", None, None))
        }
        [name @ ("signer_added" | "signer_updated"), _] => {
            let wanted: &[&str] = match *name {
                "signer_added" => &["storage", "val"],
                _ => &["old_storage", "storage", "val"],
            };
            let map = fields(wanted)?;
            if let Some(old) = map.get("old_storage") {
                storage(old)?;
            }
            let key = key(&topics[1])?;
            let put = signer(&key.0, &map["val"], &map["storage"], "v1")?;
            Some(v1(name, Some(key), Some(put)))
        }
        ["signer_removed", _] => {
            storage(&fields(&["storage"])?["storage"])?;
            Some(v1("signer_removed", Some(key(&topics[1])?), None))
        }
        ["sw_v1", name @ ("add" | "update"), _] => {
            let parts = data["vec"].as_array().filter(|parts| parts.len() == 2)?;
            let key = key(&topics[2])?;
            let put = Some(signer(&key.0, &parts[0], &parts[1], "legacy")?);
            Some(Event { generation: "legacy", name: (*name).into(), key: Some(key), put })
        }
        ["sw_v1", "remove", _] if *data == "void" => {
            let key = Some(key(&topics[2])?);
            Some(Event { generation: "legacy", name: "remove".into(), key, put: None })
        }
        _ => None,
    }
}

impl Naive {
    /// Records an event if it is recognised. A repeat has no effect.
    pub fn take(&mut self, contract: &str, at: At, topics: &[Value], data: &Value) {
        if let Some(event) = recognise(topics, data) {
            self.events.entry(contract.to_owned()).or_default().insert(at, event);
        }
    }

    fn fold(&self, contract: &str) -> Option<Folded> {
        let mut wallet: Option<Folded> = None;
        for (at, event) in self.events.get(contract)? {
            let Some((kind, value)) = &event.key else {
                if let Some(wallet) = &mut wallet {
                    (wallet.generation, wallet.last) = ("v1", at.0);
                    wallet.counted.push(("v1", event.name.clone(), at.0));
                }
                continue;
            };
            let new = || Folded {
                generation: "",
                first: at.0,
                last: 0,
                signers: Vec::new(),
                firsts: Vec::new(),
                counted: Vec::new(),
            };
            let wallet = wallet.get_or_insert_with(new);
            (wallet.generation, wallet.last) = (event.generation, at.0);
            wallet.counted.push((event.generation, event.name.clone(), at.0));
            let row = wallet.signers.iter_mut().find(|it| (&it.0, &it.1) == (kind, value));
            match (row, &event.put) {
                (Some(row), Some(put)) => (row.2, row.3) = (put.clone(), false),
                (Some(row), None) => row.3 = true,
                (None, Some(put)) => {
                    wallet.firsts.push(*at);
                    wallet.signers.push((kind.clone(), value.clone(), put.clone(), false));
                }
                (None, None) => {}
            }
        }
        wallet
    }

    /// Returns the response of `/api/wallet` at this ledger and UNIX time, without the members that
    /// the reference does not have; `None` stands for 404.
    pub fn detail(&self, contract: &str, ledger: u64, second: u64) -> Option<Value> {
        let wallet = self.fold(contract).filter(|wallet| !wallet.signers.is_empty())?;
        let mut signers = Vec::new();
        for (kind, value, members, is_removed) in &wallet.signers {
            let mut shown = members.clone();
            if shown["limits"] == json!({}) && wallet.generation == "legacy" {
                shown.as_object_mut().unwrap().remove("limits");
            }
            let now = if shown["expiration_unit"] == "ledger" { ledger } else { second };
            let is_over = shown["expiration"].as_u64().is_some_and(|last| now > last);
            shown["key"] = json!({ "type": kind, "value": value });
            shown["status"] = json!(match (is_removed, is_over) {
                (true, _) => "removed",
                (false, true) => "expired",
                (false, false) => "live",
            });
            signers.push(shown);
        }
        Some(json!({
            "contractId": contract,
            "generation": wallet.generation,
            "first_seen_ledger": wallet.first,
            "last_seen_ledger": wallet.last,
            "signers": signers,
        }))
    }

    /// Returns summaries of the wallets with an active signer of one of these types and this value,
    /// in the order of the events that first added it.
    pub fn lookup(&self, kinds: &[&str], wanted: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for contract in self.events.keys() {
            let Some(wallet) = self.fold(contract) else { continue };
            let active = wallet.signers.iter().zip(&wallet.firsts).filter(|(it, _)| !it.3);
            let matching =
                active.clone().filter(|(it, _)| kinds.contains(&it.0.as_str()) && it.1 == wanted);
            if let Some(first) = matching.map(|(_, first)| first).min() {
                let summary = json!({
                    "contract_id": contract,
                    "generation": wallet.generation,
                    "signer_count": active.count(),
                    "first_seen_ledger": wallet.first,
                    "last_seen_ledger": wallet.last,
                });
                found.push((*first, summary));
            }
        }
        found.sort_by_key(|(first, _)| *first);
        found.into_iter().map(|(_, summary)| summary).collect()
    }

    /// Returns the response of `/api/stats`, without the members that the reference does not have.
    pub fn stats(&self) -> Value {
        let mut kinds = BTreeMap::<(&str, String), u64>::new();
        let (mut ledgers, mut credentials) = (BTreeSet::new(), BTreeSet::new());
        let (mut wallets, mut signers, mut active) = (0, 0, 0);
        for wallet in self.events.keys().filter_map(|contract| self.fold(contract)) {
            wallets += u64::from(!wallet.signers.is_empty());
            for (kind, value, _, is_removed) in &wallet.signers {
                signers += 1;
                active += u64::from(!is_removed);
                if kind == "secp256r1" {
                    credentials.insert(value.clone());
                }
            }
            for (generation, name, ledger) in wallet.counted {
                *kinds.entry((generation, name)).or_default() += 1;
                ledgers.insert(ledger);
            }
        }
        let listed = kinds.iter().map(|((generation, name), count)| {
            json!({ "generation": generation, "event_type": name, "count": count })
        });
        json!({
            "total_events": kinds.values().sum::<u64>(),
            "unique_contracts": wallets,
            "unique_credentials": credentials.len(),
            "total_signers": signers,
            "active_signers": active,
            "first_ledger": ledgers.first(),
            "last_ledger": ledgers.last(),
            "eventTypes": listed.collect::<Vec<_>>(),
        })
    }

    /// Returns all contracts, credentials and addresses that occur in the events, to query them.
    pub fn names(&self) -> (Vec<String>, BTreeSet<String>, BTreeSet<String>) {
        let (mut ids, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for event in self.events.values().flat_map(BTreeMap::values) {
            match &event.key {
                Some((kind, value)) if kind == "secp256r1" => drop(ids.insert(value.clone())),
                Some((_, value)) => drop(addresses.insert(value.clone())),
                None => {}
            }
        }
        (self.events.keys().cloned().collect(), ids, addresses)
    }
}
