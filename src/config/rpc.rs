//! Settings of the JSON-RPC interface.

use serde::{Deserialize, Serialize};

use super::values::{Header, SecretUrl};

/// `[rpc]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rpc {
    /// Whether calls require a token.
    pub require_token: bool,
    /// RPC server of the same network to which calls that need the ledger's state are forwarded;
    /// empty for none.
    pub upstream: SecretUrl,
    /// HTTP headers sent to that server.
    pub upstream_headers: Vec<Header>,
}

/// Returns the description of a key's valid values; it follows "give" in an error message.
pub(super) fn expected_value(key: &str) -> &'static str {
    match key {
        "rpc.require_token" => "true or false",
        "rpc.upstream" => "an address, such as \"https://rpc.example.org\"",
        _ => "a list of headers, such as [\"Authorization: Bearer …\"]",
    }
}
