//! Settings of JSON-RPC.

use serde::{Deserialize, Serialize};

use super::values::{Header, SecretUrl};

/// `[rpc]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rpc {
    /// Whether only owners of a token may call.
    pub require_token: bool,
    /// An RPC server of the same network, to which calls are handed on that need the state of the ledger; empty for
    /// none.
    pub upstream: SecretUrl,
    /// Headers that are sent to it.
    pub upstream_headers: Vec<Header>,
}

/// What a key takes, to be read after "give".
pub(super) fn expectation(key: &str) -> &'static str {
    match key {
        "rpc.require_token" => "true or false",
        "rpc.upstream" => "an address, such as \"https://rpc.example.org\"",
        _ => "a list of headers, such as [\"Authorization: Bearer …\"]",
    }
}
