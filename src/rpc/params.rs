//! Parameters of calls: by name, where `null` means as much as leaving them out.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::RpcError;

/// The `params` of a call, not yet looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Params<'a>(pub Option<&'a RawValue>);

impl Params<'_> {
    /// The parameters of a method; what it does not know is passed over.
    ///
    /// # Errors
    /// −32602 when they come by position or one of them cannot be read.
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

/// How XDR is spelled in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum XdrFormat {
    #[default]
    Base64,
    /// As the XDR crate's serde implementation spells it (SEP-51).
    Json,
}

impl XdrFormat {
    /// Reads an `xdrFormat`; otherwise what is wrong with it.
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

/// Parameters of the methods that go through ledgers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FromLedger {
    pub start_ledger: Option<u32>,
    pub pagination: Option<Pagination>,
    pub xdr_format: Option<String>,
}

/// Which page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pagination {
    pub cursor: Option<String>,
    pub limit: Option<u64>,
}

impl FromLedger {
    /// The cursor; an empty one is none.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.pagination.as_ref()?.cursor.as_deref().filter(|cursor| !cursor.is_empty())
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.pagination.as_ref()?.limit
    }
}
