//! Keys and values as answers show them: as base64 XDR, or as plain JSON by the contract's interface.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use stellar_xdr::{Limits, ReadXdr, ScContractInstance, ScVal, WriteXdr};

use super::super::ApiError;
use orrery_executables::{DataForm, DataForms, InterfaceReader};
use orrery_interfaces::{PlainData, data_name, undecodable};
use orrery_ledger::decode::DEEPEST;
use orrery_ledger::domain::{ContractId, text};
use orrery_store::TransactionPosition;

/// Limits for reading and writing stored values: their depth, and 16 MiB.
const LIMITS: Limits = Limits { depth: DEEPEST + 20, len: 16 << 20 };

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
    /// The interfaces of contracts; `None` for base64.
    forms: Option<DataForms<'a>>,
}

/// How the keys and values of a contract are written.
pub(super) enum Form {
    /// As base64 XDR.
    Xdr,
    /// As plain JSON, by the first of these interfaces that fits.
    Plain(DataForm),
}

impl<'a> Writer<'a> {
    /// Begins an answer: with plain JSON if there are interfaces.
    pub fn new(names: Option<&'a InterfaceReader<'a>>) -> Self {
        Self { forms: names.map(DataForms::new) }
    }

    /// Returns how a contract's data is written that a transaction has changed.
    pub fn form(&self, contract: &ContractId, at: TransactionPosition) -> Form {
        self.forms.as_ref().map_or(Form::Xdr, |forms| Form::Plain(forms.of(contract, at)))
    }
}

impl Form {
    /// Whether types may be known later that are not known now.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Plain(form) if form.is_pending())
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
        let (name, args) = data_name(key).unzip();
        let (shown, args) = match self.plain() {
            None => {
                let args = args.map(|args| args.iter().map(xdr).collect::<Result<Vec<_>, _>>());
                (xdr(key)?, args.transpose()?)
            }
            Some(data) => {
                let args = data.args(key).map_err(no_json)?;
                let args = args.map(|args| args.into_iter().map(Shown::Plain).collect());
                (Shown::Plain(data.key(key).map_err(no_json)?), args)
            }
        };
        Ok(ShownKey { key: shown, name: name.map(text), args })
    }

    /// Writes the value under a key.
    pub fn value_of(&self, key: &ScVal, value: &ScVal) -> Result<Shown, ApiError> {
        match self.plain() {
            Some(data) => data.value(key, value).map(Shown::Plain).map_err(no_json),
            None => xdr(value),
        }
    }

    fn plain(&self) -> Option<PlainData<'_>> {
        match self {
            Self::Plain(form) => Some(form.plain()),
            Self::Xdr => None,
        }
    }

    /// Writes a value that the XDR crate cannot decode.
    fn opaque(&self, bytes: &[u8]) -> Result<Shown, ApiError> {
        match self {
            Self::Xdr => Ok(Shown::Xdr(STANDARD.encode(bytes))),
            Self::Plain(_) => undecodable(bytes).map(Shown::Plain).map_err(no_json),
        }
    }
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

/// Returns the symbol by which a key is found.
pub(super) fn name_of(key: &ScVal) -> Option<&[u8]> {
    data_name(key).map(|(name, _)| name)
}

fn xdr(value: &ScVal) -> Result<Shown, ApiError> {
    let bytes = value.to_xdr(LIMITS).map_err(|error| {
        tracing::error!("a stored value cannot be written as XDR: {error}");
        ApiError::Encoding
    })?;
    Ok(Shown::Xdr(STANDARD.encode(bytes)))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn no_json(error: serde_json::Error) -> ApiError {
    tracing::error!("a stored value cannot be written as JSON: {error}");
    ApiError::Encoding
}
