//! Keys and values of contract data in plain JSON, by the interfaces of the contract.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery_ledger::domain::text;
use serde::{Serialize, Serializer};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use stellar_xdr::{ContractExecutable, ScContractInstance, ScMapEntry, ScSpecTypeDef, ScVal};

use super::plain::Plain;
use super::storage::{StorageKeys, value_kind};
use super::types::{Definition, Types};

/// How the data of a contract is written: by the first of these interfaces that fits, each with its types
/// and its unions.
#[derive(Debug, Clone, Default)]
pub struct PlainData<'a>(pub Vec<(&'a Types, &'a StorageKeys)>);

type Written = Result<Box<RawValue>, serde_json::Error>;

impl PlainData<'_> {
    /// Writes a key.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn key(&self, key: &ScVal) -> Written {
        match (key, self.key_kind(key)) {
            (ScVal::LedgerKeyContractInstance, _) => to_raw_value("instance"),
            (_, Some((kind, types))) => to_raw_value(&Plain::new(key, kind, types)),
            (_, None) => undeclared(key),
        }
    }

    /// Writes the elements of a key after its symbol; `None` when it is found by no symbol.
    ///
    /// # Errors
    /// When one cannot be written as JSON.
    pub fn args(&self, key: &ScVal) -> Result<Option<Vec<Box<RawValue>>>, serde_json::Error> {
        let Some((name, args)) = data_name(key) else { return Ok(None) };
        let declared = self.key_kind(key).and_then(|(kind, types)| {
            let ScSpecTypeDef::Udt(named) = kind else { return None };
            match types.get(named.name.as_slice()) {
                Some(Definition::Union(union)) => Some((union.get(name)?, types)),
                _ => None,
            }
        });
        let args: Result<_, _> = match declared {
            Some((kinds, types)) => {
                let typed = args.iter().zip(kinds);
                typed.map(|(arg, kind)| to_raw_value(&Plain::new(arg, kind, types))).collect()
            }
            None => args.iter().map(undeclared).collect(),
        };
        args.map(Some)
    }

    /// Writes the value under a key.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn value(&self, key: &ScVal, value: &ScVal) -> Written {
        if let ScVal::ContractInstance(instance) = value {
            return self.instance(instance);
        }
        for (types, _) in &self.0 {
            if let Some(kind) = value_kind(key, value, types) {
                return to_raw_value(&Plain::new(value, &kind, types));
            }
        }
        undeclared(value)
    }

    fn key_kind(&self, key: &ScVal) -> Option<(&ScSpecTypeDef, &Types)> {
        self.0.iter().find_map(|(types, unions)| Some((unions.key_kind(key, types)?, *types)))
    }

    /// Writes an instance: its map is an object if all keys are text, else a list of pairs.
    fn instance(&self, instance: &ScContractInstance) -> Written {
        let mut items = Vec::new();
        for ScMapEntry { key, val } in instance_map(instance) {
            items.push((key, self.key(key)?, self.value(key, val)?));
        }
        let name = |key: &ScVal| match key {
            ScVal::Symbol(name) => Some(text(name.as_slice())),
            _ => None,
        };
        let names: Option<Vec<String>> = items.iter().map(|(key, ..)| name(key)).collect();
        let storage = match names {
            Some(names) => {
                let values = items.iter().map(|(_, _, value)| &**value);
                to_raw_value(&ObjectOf(names.into_iter().zip(values).collect()))?
            }
            None => {
                let pairs: Vec<_> = items.iter().map(|(_, key, value)| [key, value]).collect();
                to_raw_value(&pairs)?
            }
        };
        to_raw_value(&PlainInstance { executable: (&instance.executable).into(), storage })
    }
}

fn undeclared(value: &ScVal) -> Written {
    to_raw_value(&Plain::undeclared(value, &Types::default()))
}

/// Writes an XDR `ScVal` that the XDR crate cannot decode.
///
/// # Errors
/// None are known.
pub fn undecodable(xdr: &[u8]) -> Result<Box<RawValue>, serde_json::Error> {
    to_raw_value(&json!({ "xdr": STANDARD.encode(xdr) }))
}

/// Returns the symbol by which a key is found, which is the key itself or the first element of a vector,
/// and the elements after it.
pub fn data_name(key: &ScVal) -> Option<(&[u8], &[ScVal])> {
    match key {
        ScVal::Symbol(name) => Some((name.as_slice(), &[])),
        ScVal::Vec(Some(items)) => match items.split_first()? {
            (ScVal::Symbol(name), args) => Some((name.as_slice(), args)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the map of an instance.
pub fn instance_map(instance: &ScContractInstance) -> &[ScMapEntry] {
    instance.storage.as_ref().map_or(&[], |map| map.0.as_slice())
}

/// An instance in plain JSON.
#[derive(Serialize)]
struct PlainInstance {
    executable: PlainExecutable,
    storage: Box<RawValue>,
}

/// An object whose members have this order.
struct ObjectOf<'s>(Vec<(String, &'s RawValue)>);

impl Serialize for ObjectOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// What a contract runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlainExecutable {
    /// The module with this SHA-256.
    Wasm(String),
    /// The contract of an asset, which is built into the network.
    StellarAsset(bool),
    /// What an entry of another contract names (CAP-85).
    Reference {
        /// The contract.
        contract_id: String,
        /// The tag of the entry.
        tag: String,
    },
}

impl From<&ContractExecutable> for PlainExecutable {
    fn from(executable: &ContractExecutable) -> Self {
        match executable {
            ContractExecutable::Wasm(hash) => Self::Wasm(hash.to_string()),
            ContractExecutable::StellarAsset => Self::StellarAsset(true),
            ContractExecutable::ExternalRef(reference) => Self::Reference {
                contract_id: reference.executable_owner.to_string(),
                tag: text(reference.tag.as_slice()),
            },
        }
    }
}
