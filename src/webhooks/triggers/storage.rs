//! Changes of contract data by a transaction. An item of an instance's map that differs is a change of its
//! own.

use std::collections::BTreeMap;

use stellar_xdr::{ScContractInstance, ScMapEntry, ScVal, WriteXdr};

use super::body::{self, Scene};
use super::data_fields::{DataFields, TypedValue};
use super::upgrade::no_json;
use super::{LIMITS, Sources, decoded};
use crate::trigger::{Durability, Trigger};
use orrery_conditions::Condition;
use orrery_contract_data::{
    Before, CONSUMER as CONTRACT_DATA, DataChange, DataKey, KeyTag, Kind, Lookup, Written,
    data_changes, held,
};
use orrery_executables::DataForm;
use orrery_executables::transaction::RecordError;
use orrery_interfaces::{PlainData, data_name, instance_map, undecodable};
use orrery_ledger::domain::{ContractId, Hash32, text};
use orrery_store::{RowBounds, StoreError, TransactionRecord};

/// A change of contract data.
pub(super) struct Changed {
    /// The contract.
    pub contract: ContractId,
    /// Its 1-based number among the changes of the transaction.
    pub number: u64,
    key_hash: Hash32,
    /// XDR `ScVal` of the key.
    key: Vec<u8>,
    /// How long the entry can live.
    pub durability: Durability,
    change: &'static str,
    value: Option<Value>,
    previous: Option<Value>,
}

/// What stands under a key.
enum Value {
    Decoded(ScVal),
    /// XDR that cannot be decoded.
    Opaque(Vec<u8>),
}

impl Value {
    fn of(xdr: &[u8]) -> Self {
        decoded(xdr).map_or_else(|| Self::Opaque(xdr.to_vec()), Self::Decoded)
    }
}

impl Changed {
    /// Returns the key as XDR `ScVal`.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether a condition is true of the change, whose values are read in this form.
    pub fn meets(&self, condition: &Condition, form: &DataForm) -> bool {
        let (data, key) = (form.plain(), decoded(&self.key));
        condition.holds(&DataFields {
            change: self.change,
            key: key.as_ref(),
            value: typed(&data, key.as_ref(), self.value.as_ref()),
            previous: typed(&data, key.as_ref(), self.previous.as_ref()),
        })
    }

    /// Returns the body about the change, in this form.
    pub fn body(
        &self,
        trigger: &Trigger,
        scene: &Scene,
        form: &DataForm,
    ) -> Result<Vec<u8>, RecordError> {
        let (data, key) = (form.plain(), decoded(&self.key));
        let name = key.as_ref().and_then(data_name).map(|(name, _)| text(name));
        let args = key.as_ref().map(|key| data.args(key)).transpose().map_err(no_json)?.flatten();
        let shown = |value: &Option<Value>| {
            value.as_ref().map(|value| written(&data, key.as_ref(), value)).transpose()
        };
        let members = body::DataChanged {
            key_hash: self.key_hash,
            key: match &key {
                Some(key) => data.key(key),
                None => undecodable(&self.key),
            }
            .map_err(no_json)?,
            key_name: name,
            key_args: args,
            durability: self.durability.name(),
            change: self.change,
            value: shown(&self.value).map_err(no_json)?,
            previous: shown(&self.previous).map_err(no_json)?,
            names_pending: form.is_pending(),
        };
        body::body(trigger, scene, members).map_err(no_json)
    }
}

fn typed<'a>(
    data: &PlainData<'a>,
    key: Option<&ScVal>,
    value: Option<&'a Value>,
) -> Option<TypedValue<'a>> {
    match (value?, key?) {
        (Value::Decoded(value), key) => Some(TypedValue::of(data, key, value)),
        (Value::Opaque(_), _) => None,
    }
}

fn written(
    data: &PlainData<'_>,
    key: Option<&ScVal>,
    value: &Value,
) -> serde_json::Result<Box<serde_json::value::RawValue>> {
    match (key, value) {
        (Some(key), Value::Decoded(value)) => data.value(key, value),
        (None, Value::Decoded(value)) => data.value(&ScVal::Void, value),
        (_, Value::Opaque(xdr)) => undecodable(xdr),
    }
}

/// Returns the changes of contract data by a successful transaction, by the hashes of the keys, and of items
/// of an instance's map behind the instance; only those of contracts that are `wanted`.
///
/// # Errors
/// Errors of the database, or that the transaction is damaged.
pub(super) fn changes(
    sources: &Sources<'_>,
    record: &TransactionRecord<'_>,
    wanted: impl Fn(&ContractId) -> bool,
) -> Result<Vec<Changed>, RecordError> {
    let at = record.position;
    let all = data_changes(record.meta, record.envelope).map_err(|error| {
        let order = at.application_order;
        let reason = error.0;
        RecordError::Damaged(format!(
            "transaction {order} of ledger {} cannot be read: {reason}",
            at.ledger
        ))
    })?;
    let mut found = Vec::new();
    let mut number = 0;
    for (key_hash, change) in &all {
        let Some(kind) = change.kind(at.ledger).filter(|kind| kind.is_update()) else { continue };
        let key = &change.key;
        let (contract, key_hash) = (key.contract(), *key_hash);
        let is_wanted = wanted(&contract);
        let held = values(sources, record, (&key_hash, change, kind), is_wanted)?;
        if !is_wanted && !key.is_instance() {
            number += 1;
            continue;
        }
        for ChangeOf { key, durability, change, value, previous } in changes_of(key, kind, held) {
            number += 1;
            if is_wanted {
                found.push(Changed {
                    contract,
                    number,
                    key_hash,
                    key,
                    durability,
                    change,
                    value,
                    previous,
                });
            }
        }
    }
    Ok(found)
}

/// Values before and after, as XDR `ScVal`; `None` where there is none.
type Values = (Option<Vec<u8>>, Option<Vec<u8>>);

fn values(
    sources: &Sources<'_>,
    record: &TransactionRecord<'_>,
    (key_hash, change, kind): (&Hash32, &DataChange<'_>, Kind),
    is_wanted: bool,
) -> Result<Values, StoreError> {
    let key = &change.key;
    let value = |entry: &[u8]| held(entry, key).map(<[u8]>::to_vec);
    match change.written {
        Some(Written { before, after }) => {
            let before = match before {
                // A dead temporary entry did not exist any more.
                _ if kind == Kind::Created => None,
                Before::Held(entry) | Before::Archived(entry) => value(entry),
                Before::Unknown | Before::Absent => None,
            };
            Ok((before, after.and_then(value)))
        }
        // Restored by its time to live alone: an earlier transaction has the value.
        None if is_wanted && sources.store.consumer(CONTRACT_DATA).is_some() => {
            earlier(sources, record, key, key_hash)
        }
        // Without the index, it is not known.
        None => Ok((None, None)),
    }
}

fn earlier(
    sources: &Sources<'_>,
    record: &TransactionRecord<'_>,
    key: &DataKey<'_>,
    key_hash: &Hash32,
) -> Result<Values, StoreError> {
    let at = record.position;
    // Deliveries do not wait for the index for ever. Without this ledger it may have an older value.
    if sources.store.lacks(CONTRACT_DATA, at.ledger) != Some(false) {
        return Ok((None, None));
    }
    let lookup = Lookup::new(sources.store, at.ledger, RowBounds::none())?.without_updated();
    let of = (key.contract(), KeyTag::of(key_hash));
    let entry = lookup.written_before(of, at)?;
    let value = entry.and_then(|entry| held(&entry, key).map(<[u8]>::to_vec));
    Ok((value.clone(), value))
}

/// A change of an entry, or of an item of an instance's map.
struct ChangeOf {
    key: Vec<u8>,
    durability: Durability,
    change: &'static str,
    value: Option<Value>,
    previous: Option<Value>,
}

/// Returns the change of an entry, or those of an instance.
fn changes_of(key: &DataKey<'_>, kind: Kind, (before, after): Values) -> Vec<ChangeOf> {
    let (before, after) = (before.as_deref(), after.as_deref());
    if key.is_instance() {
        return of_instance(key, kind, before, after);
    }
    let durability = match key.durability() {
        orrery_contract_data::Durability::Temporary => Durability::Temporary,
        orrery_contract_data::Durability::Persistent => Durability::Persistent,
    };
    vec![whole(key, durability, kind, (before, after))]
}

/// The change of an entry as a whole.
fn whole(
    key: &DataKey<'_>,
    durability: Durability,
    kind: Kind,
    (before, after): (Option<&[u8]>, Option<&[u8]>),
) -> ChangeOf {
    ChangeOf {
        key: key.scval().to_vec(),
        durability,
        change: kind.name(),
        value: after.map(Value::of),
        previous: before.map(Value::of),
    }
}

/// Returns the changes of an instance: its own first, if there was none, is none, was archived, or runs
/// something else; then those of items, in the order of their keys.
fn of_instance(
    key: &DataKey<'_>,
    kind: Kind,
    before: Option<&[u8]>,
    after: Option<&[u8]>,
) -> Vec<ChangeOf> {
    let instance = |xdr: Option<&[u8]>| match decoded(xdr?)? {
        ScVal::ContractInstance(instance) => Some(instance),
        _ => None,
    };
    let (old, new) = (instance(before), instance(after));
    let runs = |of: &Option<ScContractInstance>| of.as_ref().map(|it| it.executable.clone());
    let mut changes = Vec::new();
    if kind != Kind::Updated || runs(&old) != runs(&new) {
        changes.push(whole(key, Durability::Instance, kind, (before, after)));
    }
    let (old, new) = (items(old.as_ref()), items(new.as_ref()));
    let mut keys: Vec<&Vec<u8>> = old.keys().chain(new.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let (previous, value) = (old.get(key), new.get(key));
        if previous == value {
            continue;
        }
        let change = match (previous, value) {
            (None, _) => Kind::Created,
            (_, None) => Kind::Removed,
            _ => Kind::Updated,
        };
        changes.push(ChangeOf {
            key: key.clone(),
            durability: Durability::Instance,
            change: change.name(),
            value: value.cloned().map(Value::Decoded),
            previous: previous.cloned().map(Value::Decoded),
        });
    }
    changes
}

/// Returns the items of an instance's map by the XDR of their keys.
fn items(instance: Option<&ScContractInstance>) -> BTreeMap<Vec<u8>, ScVal> {
    let each = instance.map_or(&[][..], instance_map).iter();
    let items =
        each.filter_map(|ScMapEntry { key, val }| Some((key.to_xdr(LIMITS).ok()?, val.clone())));
    items.collect()
}
