//! Parameters of calls: passed by name; `null` is the same as omitting the parameter.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::RpcError;

/// The unparsed `params` of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Params<'a>(pub Option<&'a RawValue>);

impl Params<'_> {
    /// Parses the parameters of a method and ignores unknown ones.
    ///
    /// # Errors
    /// −32602 when they are passed by position or one of them is invalid.
    pub(super) fn read<T: DeserializeOwned + Default>(self) -> Result<T, RpcError> {
        let Some(text) = self.0.map(|raw| raw.get().trim_start()) else { return Ok(T::default()) };
        if text.starts_with('[') {
            return Err(RpcError::unreadable_params("parameters are named, not numbered"));
        }
        if text == "null" {
            return Ok(T::default());
        }
        serde_json::from_str(text).map_err(RpcError::unreadable_params)
    }
}

impl Params<'_> {
    /// Checks the parameters of a method that has none. Names are ignored, as unknown ones are.
    ///
    /// # Errors
    /// −32602 when some are passed by position, or they are neither an object nor a list.
    pub(super) fn none(self) -> Result<(), RpcError> {
        #[derive(Default, Deserialize)]
        struct None {}
        self.read::<None>().map(|None {}| ())
    }
}

/// A value that is parsed from an object and from nothing else: serde would also take a list, with
/// the members by position.
#[derive(Debug, Clone, Default)]
pub(super) struct Named<T>(pub T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        if !raw.get().trim_start().starts_with('{') {
            return Err(D::Error::custom("an object is expected"));
        }
        serde_json::from_str(raw.get()).map(Self).map_err(D::Error::custom)
    }
}

/// Encoding of XDR in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum XdrFormat {
    #[default]
    Base64,
    /// The JSON form of the XDR crate's serde implementation (SEP-51).
    Json,
}

impl XdrFormat {
    /// Parses an `xdrFormat`; the error says what is wrong with it.
    pub(super) fn parse(given: Option<&str>) -> Result<Self, String> {
        match given {
            None | Some("" | "base64") => Ok(Self::Base64),
            Some("json") => Ok(Self::Json),
            Some(other) => {
                let other = orrery_ledger::domain::excerpt(other);
                Err(format!("got '{other}': expected base64, json for optional 'xdrFormat'"))
            }
        }
    }
}

/// Parameters of the methods that page through ledgers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FromLedger {
    pub start_ledger: Option<u32>,
    pub pagination: Option<Named<Pagination>>,
    pub xdr_format: Option<String>,
}

/// The requested page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pagination {
    pub cursor: Option<String>,
    pub limit: Option<u64>,
}

impl FromLedger {
    /// Returns the cursor, or `None` when it is absent or empty.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.pagination.as_ref()?.0.cursor.as_deref().filter(|cursor| !cursor.is_empty())
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.pagination.as_ref()?.0.limit
    }
}
