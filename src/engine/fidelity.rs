//! Compares a run with what the network recorded: the result, the events and the changes.

use std::collections::BTreeMap;
use std::rc::Rc;

use soroban_env_host::storage::EntryWithLiveUntil;
use soroban_env_host::xdr::{
    ContractEvent, ContractEventBody, ContractExecutable, Hash, LedgerEntryChange,
    LedgerEntryChanges, LedgerEntryData, LedgerKey, ScMap, ScMapEntry, ScSymbol, ScVal,
};

use super::describe::{describe, quoted};
use super::invocation::Recorded;
use super::keys::is_nonce;
use super::snapshot::Snapshot;

/// Result of comparing a run with what the network recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fidelity {
    /// Result, events and changes are equal.
    Exact,
    /// They differ; holds a description of the first difference.
    Diverged(String),
    /// Nothing was compared.
    Unchecked,
}

/// Outcome of a run.
pub(super) struct Ended {
    pub(super) value: ScVal,
    /// Contract and system events that were not rolled back, without those that represent emits.
    pub(super) events: Vec<ContractEvent>,
    /// Every entry that the host has read or written, with its final value.
    pub(super) entries: Vec<(Rc<LedgerKey>, Option<EntryWithLiveUntil>)>,
}

/// Changed entries with their values after the change; `None` for a removed entry.
type Changes<Data> = BTreeMap<LedgerKey, Option<Data>>;

/// Compares a run with the recorded transaction. Lifetimes, rent, fees and nonces are not compared.
pub(super) fn compare(recorded: &Recorded, ended: Ended, snapshot: &Snapshot) -> Fidelity {
    let restorer = HashRestorer(snapshot);
    let difference = value_differs(recorded, ended.value, &restorer)
        .or_else(|| events_differ(&recorded.events, ended.events, &restorer))
        .or_else(|| changes_differ(&recorded.changes, ended.entries, &restorer));
    difference.map_or(Fidelity::Exact, Fidelity::Diverged)
}

fn value_differs(
    recorded: &Recorded,
    mut value: ScVal,
    restorer: &HashRestorer<'_>,
) -> Option<String> {
    restorer.restore(&mut value);
    let expected = &recorded.return_value;
    (value != *expected)
        .then(|| format!("it returned {}, and {} on the network", quoted(&value), quoted(expected)))
}

fn events_differ(
    recorded: &[ContractEvent],
    mut events: Vec<ContractEvent>,
    restorer: &HashRestorer<'_>,
) -> Option<String> {
    for event in &mut events {
        let ContractEventBody::V0(body) = &mut event.body;
        restorer.restore(&mut body.data);
        let mut topics = body.topics.to_vec();
        topics.iter_mut().for_each(|topic| restorer.restore(topic));
        body.topics = topics.try_into().unwrap_or_default();
    }
    let pairs = recorded.iter().zip(&events);
    let different = pairs.enumerate().find(|(_, (expected, event))| expected != event);
    if let Some((index, (expected, event))) = different {
        let ContractEventBody::V0(expected) = &expected.body;
        let ContractEventBody::V0(event) = &event.body;
        let (was, is) = match expected.topics.iter().zip(event.topics.iter()).find(|(a, b)| a != b)
        {
            Some((was, is)) => (was, is),
            None => (&expected.data, &event.data),
        };
        let (is, was) = (quoted(is), quoted(was));
        return Some(format!("event {} holds {is}, and {was} on the network", index + 1));
    }
    let (here, there) = (events.len(), recorded.len());
    (here != there).then(|| format!("it left {here} events, and {there} on the network"))
}

fn changes_differ(
    recorded: &LedgerEntryChanges,
    entries: Vec<(Rc<LedgerKey>, Option<EntryWithLiveUntil>)>,
    restorer: &HashRestorer<'_>,
) -> Option<String> {
    let expected = recorded_changes(recorded);
    let actual = made_changes(entries, restorer);
    for (key, after) in &expected {
        match actual.get(key) {
            Some(made) if same(made.as_ref(), *after) => {}
            Some(_) => return Some(format!("{} differs from the network", describe(key))),
            None => return Some(format!("{} was changed on the network only", describe(key))),
        }
    }
    let extra = actual.keys().find(|key| !expected.contains_key(key))?;
    Some(format!("{} was not changed on the network", describe(extra)))
}

/// Returns the changes that the network recorded.
fn recorded_changes(changes: &LedgerEntryChanges) -> Changes<&LedgerEntryData> {
    let mut before = Changes::new();
    let mut after = Changes::new();
    for change in changes.iter() {
        let (key, was, is) = match change {
            LedgerEntryChange::State(entry) => {
                (entry.to_key(), Some(Some(&entry.data)), Some(&entry.data))
            }
            LedgerEntryChange::Created(entry) => (entry.to_key(), Some(None), Some(&entry.data)),
            LedgerEntryChange::Updated(entry) => (entry.to_key(), None, Some(&entry.data)),
            LedgerEntryChange::Removed(key) => (key.clone(), None, None),
            // A restored entry has the value that it had when it was archived.
            LedgerEntryChange::Restored(entry) => {
                (entry.to_key(), Some(Some(&entry.data)), Some(&entry.data))
            }
        };
        if !is_compared(&key) {
            continue;
        }
        if let Some(was) = was {
            before.entry(key.clone()).or_insert(was);
        }
        after.insert(key, is);
    }
    after.retain(|key, is| {
        let was = before.get(key).copied().flatten();
        !same(was, *is)
    });
    after
}

/// Returns the changes that the run made.
fn made_changes(
    entries: Vec<(Rc<LedgerKey>, Option<EntryWithLiveUntil>)>,
    restorer: &HashRestorer<'_>,
) -> Changes<LedgerEntryData> {
    let mut changes = Changes::new();
    for (key, after) in entries {
        if !is_compared(&key) || restorer.is_synthetic(&key) {
            continue;
        }
        let before = restorer.0.entry_before(&key);
        let before = before.as_ref().map(|entry| &entry.data);
        let after = after.as_ref().map(|(entry, _)| &entry.data);
        if !same(before, after) {
            let after = after.cloned().map(|mut data| {
                restorer.restore_entry(&mut data);
                data
            });
            changes.insert(LedgerKey::clone(&key), after);
        }
    }
    changes
}

fn is_compared(key: &LedgerKey) -> bool {
    let kind = matches!(
        key,
        LedgerKey::ContractData(_)
            | LedgerKey::ContractCode(_)
            | LedgerKey::Account(_)
            | LedgerKey::Trustline(_)
    );
    kind && !is_nonce(key)
}

/// Returns whether two values of an entry are equal as far as contracts can change them. Of an
/// account only the balance is compared: contracts change neither fees nor sequence numbers.
/// Contract code is always equal, because its cost table depends on the protocol.
fn same(a: Option<&LedgerEntryData>, b: Option<&LedgerEntryData>) -> bool {
    match (a, b) {
        (Some(LedgerEntryData::Account(a)), Some(LedgerEntryData::Account(b))) => {
            a.balance == b.balance
        }
        (Some(LedgerEntryData::Trustline(a)), Some(LedgerEntryData::Trustline(b))) => {
            a.balance == b.balance && a.flags == b.flags
        }
        (Some(LedgerEntryData::ContractCode(_)), Some(LedgerEntryData::ContractCode(_))) => true,
        (a, b) => a == b,
    }
}

/// Replaces the synthetic hashes that stand for programs with the network's hashes.
struct HashRestorer<'a>(&'a Snapshot);

impl HashRestorer<'_> {
    fn is_synthetic(&self, key: &LedgerKey) -> bool {
        match key {
            LedgerKey::ContractCode(code) => self.0.stands_for_program(&code.hash),
            _ => false,
        }
    }

    /// Returns the form that an event gives an executable reference (CAP-85), if `executable` is
    /// such a form of a synthetic hash that stands for a reference. An event represents an
    /// executable as a list of its kind and its value.
    fn reference(&self, executable: &[ScVal]) -> Option<Vec<ScVal>> {
        let [ScVal::Symbol(kind), ScVal::Bytes(hash)] = executable else { return None };
        let hash = <[u8; 32]>::try_from(hash.as_slice()).map(Hash).ok()?;
        let ContractExecutable::ExternalRef(reference) = self.0.original(&hash)? else {
            return None;
        };
        if kind.0.as_slice() != b"Wasm" {
            return None;
        }
        let symbol = |text: &str| text.try_into().ok().map(|text| ScVal::Symbol(ScSymbol(text)));
        let entry = |key: &str, val: ScVal| Some(ScMapEntry { key: symbol(key)?, val });
        let fields = vec![
            entry("owner", ScVal::Address(reference.executable_owner))?,
            entry("tag", ScVal::String(reference.tag))?,
        ];
        Some(vec![symbol("ExternalRef")?, ScVal::Map(Some(ScMap(fields.try_into().ok()?)))])
    }

    fn restore_entry(&self, data: &mut LedgerEntryData) {
        if let LedgerEntryData::ContractData(data) = data {
            self.restore(&mut data.val);
        }
    }

    fn restore(&self, value: &mut ScVal) {
        match value {
            ScVal::ContractInstance(instance) => {
                if let ContractExecutable::Wasm(hash) = &instance.executable
                    && let Some(original) = self.0.original(hash)
                {
                    instance.executable = original;
                }
            }
            ScVal::Bytes(bytes) => {
                let hash = <[u8; 32]>::try_from(bytes.as_slice()).map(Hash);
                if let Ok(hash) = hash
                    && let Some(ContractExecutable::Wasm(original)) = self.0.original(&hash)
                    && let Ok(original) = original.0.to_vec().try_into()
                {
                    *bytes = original;
                }
            }
            ScVal::Vec(Some(vec)) => {
                let mut items = match self.reference(vec) {
                    Some(reference) => reference,
                    None => vec.to_vec(),
                };
                items.iter_mut().for_each(|item| self.restore(item));
                if let Ok(items) = items.try_into() {
                    vec.0 = items;
                }
            }
            ScVal::Map(Some(map)) => {
                let mut entries = map.to_vec();
                entries.iter_mut().for_each(|entry| self.restore(&mut entry.val));
                if let Ok(entries) = entries.try_into() {
                    map.0 = entries;
                }
            }
            _ => {}
        }
    }
}
