//! Keys and values as answers show them: as base64 XDR, or as plain JSON by the contract's interface.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use stellar_xdr::{
    ContractExecutable, Limits, ReadXdr, ScContractInstance, ScMapEntry, ScSpecTypeDef, ScVal,
    WriteXdr,
};

use super::super::ApiError;
use orrery_executables::{InterfaceReader, Tried};
use orrery_interfaces::{Definition, Plain, StorageKeys, Types, value_kind};
use orrery_ledger::decode::DEEPEST;
use orrery_ledger::domain::{ContractId, Hash32, text};
use orrery_store::TransactionPosition;

/// Limits for reading and writing stored values: their depth, and 16 MiB.
const LIMITS: Limits = Limits { depth: DEEPEST + 20, len: 16 << 20 };
/// Maximum number of interfaces whose unions are kept.
const MOST_KEPT: usize = 16;

/// A key or a value in an answer.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Shown {
    /// Base64 XDR `ScVal`.
    Xdr(String),
    /// Plain JSON.
    Plain(Box<RawValue>),
}

/// What is shown of a key.
#[derive(Debug, Clone)]
pub(super) struct ShownKey {
    pub key: Shown,
    /// The symbol by which it is found.
    pub name: Option<String>,
    /// The elements after the symbol.
    pub args: Option<Vec<Shown>>,
}

/// Writes the keys and values of one answer.
pub(super) struct Writer<'a> {
    /// Interfaces of contracts; `None` for base64.
    names: Option<&'a InterfaceReader<'a>>,
    /// Unions of interfaces, by the hash of the module; zeros for the contract of an asset.
    unions: RefCell<HashMap<Hash32, Rc<StorageKeys>>>,
}

/// How the keys and values of a contract are written.
pub(super) enum Form {
    /// As base64 XDR.
    Xdr,
    /// As plain JSON, by the first of these interfaces that fits.
    Plain(Interfaces),
}

/// The interfaces by which a contract's data is written.
pub(super) struct Interfaces {
    tried: Vec<(Tried, Rc<StorageKeys>)>,
    /// Whether one lacks that is about to be there.
    is_pending: bool,
}

impl<'a> Writer<'a> {
    /// Begins an answer: with plain JSON if there are interfaces.
    pub fn new(names: Option<&'a InterfaceReader<'a>>) -> Self {
        Self { names, unions: RefCell::default() }
    }

    /// Returns how a contract's data is written that a transaction has changed.
    pub fn form(&self, contract: &ContractId, at: TransactionPosition) -> Form {
        let Some(names) = self.names else { return Form::Xdr };
        let lacked = names.lacked();
        let tried = names.tried(contract, at);
        let tried = tried.iter().map(|tried| (tried.clone(), self.unions_of(tried))).collect();
        Form::Plain(Interfaces { tried, is_pending: names.lacked() > lacked })
    }

    fn unions_of(&self, tried: &Tried) -> Rc<StorageKeys> {
        let module = match tried {
            Tried::Asset => Hash32::default(),
            Tried::Code(hash, _) => *hash,
        };
        let mut known = self.unions.borrow_mut();
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        let of = || Rc::new(StorageKeys::of(tried.interface()));
        Rc::clone(known.entry(module).or_insert_with(of))
    }
}

impl Form {
    /// Whether types may be known later that are not known now.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Plain(interfaces) if interfaces.is_pending)
    }

    /// Writes a key, given as XDR `ScVal`.
    pub fn key(&self, xdr: &[u8]) -> Result<ShownKey, ApiError> {
        match decoded(xdr) {
            Some(key) => self.key_of(&key),
            None => Ok(ShownKey { key: self.opaque(xdr)?, name: None, args: None }),
        }
    }

    /// Writes the value under a key, both given as XDR `ScVal`.
    pub fn value(&self, key: &[u8], value: &[u8]) -> Result<Shown, ApiError> {
        let Self::Plain(_) = self else { return Ok(Shown::Xdr(STANDARD.encode(value))) };
        match (decoded(key), decoded(value)) {
            (Some(key), Some(value)) => self.value_of(&key, &value),
            _ => self.opaque(value),
        }
    }

    /// Writes a key.
    pub fn key_of(&self, key: &ScVal) -> Result<ShownKey, ApiError> {
        let (name, args) = parts(key).unzip();
        let args = args.map(|args| self.args(key, args)).transpose()?;
        let shown = match (self, key) {
            (Self::Xdr, _) => xdr(key)?,
            (Self::Plain(_), ScVal::LedgerKeyContractInstance) => plain(&"instance")?,
            (Self::Plain(_), _) => match self.key_kind(key) {
                Some((kind, types)) => plain(&Plain::new(key, kind, types))?,
                None => undeclared(key)?,
            },
        };
        Ok(ShownKey { key: shown, name: name.map(text), args })
    }

    /// Writes the value under a key.
    pub fn value_of(&self, key: &ScVal, value: &ScVal) -> Result<Shown, ApiError> {
        let Self::Plain(interfaces) = self else { return xdr(value) };
        if let ScVal::ContractInstance(instance) = value {
            return self.instance(instance);
        }
        for (tried, _) in &interfaces.tried {
            let types = tried.interface().types();
            if let Some(kind) = value_kind(key, value, types) {
                return plain(&Plain::new(value, &kind, types));
            }
        }
        undeclared(value)
    }

    fn args(&self, key: &ScVal, args: &[ScVal]) -> Result<Vec<Shown>, ApiError> {
        let Self::Plain(_) = self else { return args.iter().map(xdr).collect() };
        let declared = self.key_kind(key).and_then(|(kind, types)| {
            let ScSpecTypeDef::Udt(named) = kind else { return None };
            let Some(Definition::Union(union)) = types.get(named.name.as_slice()) else {
                return None;
            };
            Some((union.get(parts(key)?.0)?, types))
        });
        match declared {
            Some((kinds, types)) => {
                let typed = args.iter().zip(kinds);
                typed.map(|(arg, kind)| plain(&Plain::new(arg, kind, types))).collect()
            }
            None => args.iter().map(undeclared).collect(),
        }
    }

    fn key_kind(&self, key: &ScVal) -> Option<(&ScSpecTypeDef, &Types)> {
        let Self::Plain(interfaces) = self else { return None };
        interfaces.tried.iter().find_map(|(tried, unions)| {
            let types = tried.interface().types();
            Some((unions.key_kind(key, types)?, types))
        })
    }

    /// Writes an instance: its map is an object if all keys are text, else a list of pairs.
    fn instance(&self, instance: &ScContractInstance) -> Result<Shown, ApiError> {
        let mut items = Vec::new();
        for ScMapEntry { key, val } in storage(instance) {
            items.push((key, self.key_of(key)?.key, self.value_of(key, val)?));
        }
        let name = |key: &ScVal| match key {
            ScVal::Symbol(name) => Some(text(name.as_slice())),
            _ => None,
        };
        let names: Option<Vec<String>> = items.iter().map(|(key, ..)| name(key)).collect();
        let storage = match names {
            Some(names) => {
                let values = items.iter().map(|(_, _, value)| value);
                to_raw(&ObjectOf(names.into_iter().zip(values).collect()))?
            }
            None => {
                let pairs: Vec<_> = items.iter().map(|(_, key, value)| [key, value]).collect();
                to_raw(&pairs)?
            }
        };
        plain(&PlainInstance { executable: executable(&instance.executable), storage })
    }

    /// Writes a value that the XDR crate cannot decode.
    fn opaque(&self, bytes: &[u8]) -> Result<Shown, ApiError> {
        let encoded = STANDARD.encode(bytes);
        match self {
            Self::Xdr => Ok(Shown::Xdr(encoded)),
            Self::Plain(_) => plain(&json!({ "xdr": encoded })),
        }
    }
}

/// An instance in plain JSON.
#[derive(Serialize)]
struct PlainInstance {
    executable: ShownExecutable,
    storage: Box<RawValue>,
}

/// An object whose members have this order.
struct ObjectOf<'s>(Vec<(String, &'s Shown)>);

impl Serialize for ObjectOf<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// What a contract runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShownExecutable {
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

/// Returns what an instance runs.
pub(super) fn executable(executable: &ContractExecutable) -> ShownExecutable {
    match executable {
        ContractExecutable::Wasm(hash) => ShownExecutable::Wasm(hash.to_string()),
        ContractExecutable::StellarAsset => ShownExecutable::StellarAsset(true),
        ContractExecutable::ExternalRef(reference) => ShownExecutable::Reference {
            contract_id: reference.executable_owner.to_string(),
            tag: text(reference.tag.as_slice()),
        },
    }
}

/// Returns the map of an instance.
pub(super) fn storage(instance: &ScContractInstance) -> &[ScMapEntry] {
    instance.storage.as_ref().map_or(&[], |map| map.0.as_slice())
}

/// Decodes XDR `ScVal`; `None` when that is not possible.
pub(super) fn decoded(xdr: &[u8]) -> Option<ScVal> {
    ScVal::from_xdr(xdr, LIMITS).ok()
}

/// Decodes an instance from its XDR `ScVal`.
pub(super) fn decoded_instance(xdr: &[u8]) -> Option<ScContractInstance> {
    match decoded(xdr)? {
        ScVal::ContractInstance(instance) => Some(instance),
        _ => None,
    }
}

/// Returns the symbol by which a key is found, and the elements after it.
fn parts(key: &ScVal) -> Option<(&[u8], &[ScVal])> {
    match key {
        ScVal::Symbol(name) => Some((name.as_slice(), &[])),
        ScVal::Vec(Some(items)) => match items.split_first()? {
            (ScVal::Symbol(name), args) => Some((name.as_slice(), args)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the symbol by which a key is found.
pub(super) fn name_of(key: &ScVal) -> Option<&[u8]> {
    parts(key).map(|(name, _)| name)
}

fn xdr(value: &ScVal) -> Result<Shown, ApiError> {
    let bytes = value.to_xdr(LIMITS).map_err(|error| {
        tracing::error!("a stored value cannot be written as XDR: {error}");
        ApiError::Encoding
    })?;
    Ok(Shown::Xdr(STANDARD.encode(bytes)))
}

fn undeclared(value: &ScVal) -> Result<Shown, ApiError> {
    plain(&Plain::undeclared(value, &Types::default()))
}

fn plain(value: &impl Serialize) -> Result<Shown, ApiError> {
    to_raw(value).map(Shown::Plain)
}

fn to_raw(value: &impl Serialize) -> Result<Box<RawValue>, ApiError> {
    to_raw_value(value).map_err(|error| {
        tracing::error!("a stored value cannot be written as JSON: {error}");
        ApiError::Encoding
    })
}
