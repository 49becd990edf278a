//! Parameters of calls: passed by name; `null` is the same as omitting the parameter.

use serde::Deserialize;
use serde::de::DeserializeOwned;
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
                let other = crate::domain::excerpt(other);
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
    pub pagination: Option<Pagination>,
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
        self.pagination.as_ref()?.cursor.as_deref().filter(|cursor| !cursor.is_empty())
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.pagination.as_ref()?.limit
    }
}
