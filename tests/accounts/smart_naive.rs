//! A second implementation of smart accounts, written from the reference alone: simple, slow, and
//! on values as JSON. Shares no code with the index.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::world::At;

/// Name, id, and data by key.
type Event = (String, u64, BTreeMap<String, Value>);
/// Signers, and policies with their install parameters.
type Rule = (Vec<Value>, Vec<(Value, Value)>);

/// The accepted events, by contract and position.
#[derive(Default)]
pub struct Naive {
    accepted: BTreeMap<String, BTreeMap<At, Event>>,
}

/// State of one account after all its events.
#[derive(Default)]
struct Folded {
    signers: BTreeMap<u64, Value>,
    policies: BTreeMap<u64, Value>,
    rules: BTreeMap<u64, Rule>,
}

impl Folded {
    /// Returns signers of a rule as the response shows them.
    fn listed(&self, signers: &[Value]) -> Vec<Value> {
        let mut listed = Vec::new();
        for named in signers {
            let signer = match named["id"].as_u64() {
                Some(id) => self.signers.get(&id).cloned().unwrap_or(Value::Null),
                None => named["itself"].clone(),
            };
            let Some(variant) = signer["vec"][0]["symbol"].as_str() else { continue };
            if !["External", "Delegated", "Native"].contains(&variant) {
                continue;
            }
            listed.push(json!({
                "signer_type": variant,
                "signer_address": signer["vec"][1]["address"],
                "credential_id": credential(&signer),
            }));
        }
        listed.sort_by_key(|it| it["signer_type"].as_str().unwrap().to_owned());
        listed
    }
}

fn is_signer(value: &Value) -> bool {
    let Some(parts) = value["vec"].as_array() else { return false };
    let is_address = |at: usize| parts.get(at).is_some_and(|it| it["address"].is_string());
    let is_bytes = |at: usize| parts.get(at).is_some_and(|it| it["bytes"].is_string());
    match parts.first().and_then(|first| first["symbol"].as_str()) {
        None => false,
        Some("External") => parts.len() == 3 && is_address(1) && is_bytes(2),
        Some("Native") => parts.len() == 2 && is_address(1),
        Some("Delegated") => match parts.len() {
            2 => is_address(1),
            3 => is_address(1) && is_bytes(2),
            _ => false,
        },
        Some(_) => true,
    }
}

fn all(value: &Value, test: impl Fn(&Value) -> bool) -> bool {
    value["vec"].as_array().is_some_and(|list| list.iter().all(test))
}

fn credential(signer: &Value) -> Value {
    let parts = signer["vec"].as_array().unwrap();
    let variant = parts[0]["symbol"].as_str().unwrap();
    let known = ["External", "Delegated", "Native"].contains(&variant);
    match parts.get(2).and_then(|part| part["bytes"].as_str()) {
        Some(hex) if known && hex.len() > 130 => json!(hex[130..]),
        Some(hex) if known && !hex.is_empty() => json!(hex),
        _ => Value::Null,
    }
}

impl Naive {
    /// Records an event if it is accepted. A repeat has no effect.
    pub fn take(&mut self, contract: &str, at: At, topics: &[Value], data: &Value) {
        let [name, id] = topics else { return };
        let (Some(name), Some(id)) = (name["symbol"].as_str(), id["u32"].as_u64()) else { return };
        let is_empty = *data == "void" || data["vec"] == json!([]);
        let Some(entries) = data["map"].as_array().cloned().or(is_empty.then(Vec::new)) else {
            return;
        };
        let mut map = BTreeMap::new();
        for entry in &entries {
            if let Some(key) = entry["key"]["symbol"].as_str() {
                map.insert(key.to_owned(), entry["val"].clone());
            }
        }
        let get = |key: &str| map.get(key).unwrap_or(&Value::Null);
        let is_u32 = |value: &Value| value["u32"].is_u64();
        let is_address = |value: &Value| value["address"].is_string();
        let is_meta = get("name")["string"].is_string()
            && (get("valid_until").is_null()
                || get("valid_until") == "void"
                || is_u32(get("valid_until")));
        let has_type = get("context_type")["vec"].as_array().is_some_and(|it| !it.is_empty());
        let is_accepted = match name {
            "context_rule_removed" | "signer_deregistered" | "policy_deregistered" => true,
            _ if is_empty => false,
            "context_rule_added" => {
                let by_ids = all(get("signer_ids"), is_u32) && all(get("policy_ids"), is_u32);
                let inline = all(get("signers"), is_signer) && all(get("policies"), is_address);
                is_meta && has_type && (by_ids || inline)
            }
            "context_rule_updated" => is_meta && has_type,
            "context_rule_meta_updated" => is_meta,
            "signer_added" | "signer_removed" => {
                is_u32(get("signer_id")) || is_signer(get("signer"))
            }
            "policy_added" | "policy_removed" => {
                is_u32(get("policy_id")) || is_address(get("policy"))
            }
            "signer_registered" => is_signer(get("signer")),
            "policy_registered" => is_address(get("policy")),
            _ => false,
        };
        if is_accepted {
            let of_contract = self.accepted.entry(contract.to_owned()).or_default();
            of_contract.insert(at, (name.to_owned(), id, map));
        }
    }

    fn fold(&self, contract: &str) -> Folded {
        self.fold_through(contract, (u32::MAX, 0, 0))
    }

    /// Returns the state of an account after its events up to `last`.
    fn fold_through(&self, contract: &str, last: At) -> Folded {
        let mut state = Folded::default();
        let events = self.accepted.get(contract).into_iter().flat_map(|all| all.range(..=last));
        for (name, id, map) in events.map(|(_, event)| event) {
            let get = |key: &str| map.get(key).cloned().unwrap_or(Value::Null);
            let of = |id: &str, itself: &str| match get(id)["u32"].as_u64() {
                Some(id) => json!({ "id": id }),
                None => json!({ "itself": get(itself) }),
            };
            let (signers, policies) = (state.signers.clone(), state.policies.clone());
            let resolve =
                |named: &Value, registry: &BTreeMap<u64, Value>| match named["id"].as_u64() {
                    Some(id) => registry.get(&id).cloned(),
                    None => Some(named["itself"].clone()),
                };
            let equal = |one: &Value, other: &Value, registry: &BTreeMap<u64, Value>| {
                let (first, second) = (resolve(one, registry), resolve(other, registry));
                one == other || (first.is_some() && first == second)
            };
            match name.as_str() {
                "context_rule_added" => {
                    let by_ids = all(&get("signer_ids"), |it| it["u32"].is_u64())
                        && all(&get("policy_ids"), |it| it["u32"].is_u64());
                    let each = |ids: &str, values: &str| -> Vec<Value> {
                        let chosen = if by_ids { get(ids) } else { get(values) };
                        let listed = chosen["vec"].as_array().unwrap().clone();
                        let named = listed.into_iter().map(|it| match by_ids {
                            true => json!({ "id": it["u32"] }),
                            false => json!({ "itself": it }),
                        });
                        named.collect()
                    };
                    let policies = each("policy_ids", "policies").into_iter();
                    let policies = policies.map(|policy| (policy, Value::Null)).collect();
                    state.rules.insert(*id, (each("signer_ids", "signers"), policies));
                }
                "context_rule_removed" => drop(state.rules.remove(id)),
                "signer_registered" => drop(state.signers.insert(*id, get("signer"))),
                "policy_registered" => drop(state.policies.insert(*id, get("policy"))),
                "signer_deregistered" => {
                    for (listed, _) in state.rules.values_mut() {
                        listed.retain(|it| it["id"].as_u64() != Some(*id));
                    }
                }
                "policy_deregistered" => {
                    for (_, listed) in state.rules.values_mut() {
                        listed.retain(|(it, _)| it["id"].as_u64() != Some(*id));
                    }
                }
                "signer_added" => {
                    let added = of("signer_id", "signer");
                    if let Some((listed, _)) = state.rules.get_mut(id)
                        && !listed.iter().any(|it| equal(it, &added, &signers))
                    {
                        listed.push(added);
                    }
                }
                "signer_removed" => {
                    let gone = of("signer_id", "signer");
                    if let Some((listed, _)) = state.rules.get_mut(id) {
                        listed.retain(|it| !equal(it, &gone, &signers));
                    }
                }
                "policy_added" => {
                    let added = of("policy_id", "policy");
                    if let Some((_, listed)) = state.rules.get_mut(id)
                        && !listed.iter().any(|(it, _)| equal(it, &added, &policies))
                    {
                        listed.push((added, get("install_param")));
                    }
                }
                "policy_removed" => {
                    let gone = of("policy_id", "policy");
                    if let Some((_, listed)) = state.rules.get_mut(id) {
                        listed.retain(|(it, _)| !equal(it, &gone, &policies));
                    }
                }
                _ => {}
            }
        }
        state
    }

    /// Returns the response of `/api/contract`, without the members that the reference does not
    /// have; `None` stands for 404.
    pub fn detail(&self, contract: &str) -> Option<Value> {
        let events = self.accepted.get(contract)?;
        let state = self.fold(contract);
        let (mut rules, mut counts) = (Vec::new(), BTreeMap::<String, u64>::new());
        for (id, (signers, policies)) in &state.rules {
            let listed = state.listed(signers);
            for signer in &listed {
                let variant = signer["signer_type"].as_str().unwrap();
                *counts.entry(variant.to_owned()).or_default() += 1;
            }
            let mut shown = Vec::new();
            for (named, install_params) in policies {
                let policy = match named["id"].as_u64() {
                    Some(id) => state.policies.get(&id).cloned(),
                    None => Some(named["itself"].clone()),
                };
                if let Some(policy) = policy {
                    shown.push(json!({
                        "policy_address": policy["address"],
                        "install_params": install_params,
                    }));
                }
            }
            rules.push(json!({ "context_rule_id": id, "signers": listed, "policies": shown }));
        }
        if rules.is_empty() {
            return None;
        }
        let count = |variant: &str| counts.get(variant).copied().unwrap_or_default();
        Some(json!({
            "contractId": contract,
            "summary": {
                "contract_id": contract,
                "context_rule_count": rules.len(),
                "external_signer_count": count("External"),
                "delegated_signer_count": count("Delegated"),
                "native_signer_count": count("Native"),
                "first_seen_ledger": events.keys().next()?.0,
                "last_seen_ledger": events.keys().last()?.0,
                "context_rule_ids": state.rules.keys().collect::<Vec<_>>(),
            },
            "contextRules": rules,
        }))
    }

    /// Returns summaries of the accounts with a signer whose member `member` is `wanted`, in the
    /// order of the events after which they first had one.
    pub fn lookup(&self, member: &str, wanted: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for (contract, events) in &self.accepted {
            let has = |state: &Folded| {
                let listed = state.rules.values().flat_map(|(signers, _)| state.listed(signers));
                listed.into_iter().any(|signer| signer[member] == *wanted)
            };
            if has(&self.fold(contract)) {
                let first = events.keys().find(|at| has(&self.fold_through(contract, **at)));
                found.push((first.unwrap(), self.detail(contract).unwrap()["summary"].clone()));
            }
        }
        found.sort_by_key(|(first, _)| **first);
        found.into_iter().map(|(_, summary)| summary).collect()
    }

    /// Returns the response of `/api/stats`, without the members that the reference does not have.
    pub fn stats(&self) -> Value {
        let mut kinds = BTreeMap::<&str, u64>::new();
        let (mut ledgers, mut credentials) = (BTreeSet::new(), BTreeSet::new());
        for (at, (name, _, map)) in self.accepted.values().flatten() {
            *kinds.entry(name).or_default() += 1;
            ledgers.insert(at.0);
            // Inline signers do not count in an event that refers to signers by id.
            let named = map.get("signer").filter(|_| {
                name.starts_with("signer_")
                    && name != "signer_deregistered"
                    && (name == "signer_registered"
                        || !map.get("signer_id").is_some_and(|it| it["u32"].is_u64()))
            });
            let is_by_ids =
                |ids: &str| map.get(ids).is_some_and(|it| all(it, |id| id["u32"].is_u64()));
            let by_ids = is_by_ids("signer_ids") && is_by_ids("policy_ids");
            let listed = map.get("signers").filter(|_| name == "context_rule_added" && !by_ids);
            let listed = listed.and_then(|it| it["vec"].as_array()).into_iter().flatten();
            for signer in named.into_iter().chain(listed) {
                if let Some(id) = credential(signer).as_str() {
                    credentials.insert(id.to_owned());
                }
            }
        }
        let kinds: Vec<Value> = kinds
            .into_iter()
            .map(|(name, count)| json!({ "event_type": name, "count": count }))
            .collect();
        json!({
            "total_events": self.accepted.values().map(BTreeMap::len).sum::<usize>(),
            "unique_contracts": self.accepted.len(),
            "unique_credentials": credentials.len(),
            "first_ledger": ledgers.first().copied().unwrap_or(0),
            "last_ledger": ledgers.last().copied().unwrap_or(0),
            "eventTypes": kinds,
        })
    }

    /// Returns all contracts, credentials and addresses that occur in the events, to query them.
    pub fn names(&self) -> (Vec<String>, BTreeSet<String>, BTreeSet<String>) {
        fn addresses(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Array(list) => list.iter().for_each(|it| addresses(it, found)),
                Value::Object(map) => {
                    found.extend(map.get("address").and_then(Value::as_str).map(str::to_owned));
                    map.values().for_each(|it| addresses(it, found));
                }
                _ => {}
            }
        }
        fn credentials(value: &Value, found: &mut BTreeSet<String>) {
            if value["vec"][0]["symbol"].is_string() {
                found.extend(credential(value).as_str().map(str::to_owned));
            }
            if let Some(list) = value["vec"].as_array() {
                list.iter().for_each(|it| credentials(it, found));
            }
        }
        let (mut ids, mut named) = (BTreeSet::new(), BTreeSet::new());
        for (_, _, map) in self.accepted.values().flat_map(BTreeMap::values) {
            map.values().for_each(|value| addresses(value, &mut named));
            map.values().for_each(|value| credentials(value, &mut ids));
        }
        (self.accepted.keys().cloned().collect(), ids, named)
    }
}
