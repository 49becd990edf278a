//! Settings of the JSON-RPC interface.

use super::section::section;
use super::values::{Header, SecretUrl};

section! {
    /// `[rpc]`
    pub struct Rpc {
        /// Whether calls require a token.
        pub require_token: bool = false;
        /// RPC server of the same network to which calls that need the ledger's state are
        /// forwarded; empty for none.
        pub upstream: SecretUrl = SecretUrl::default(),
            "an address, such as \"https://rpc.example.org\"";
        /// HTTP headers sent to that server.
        pub upstream_headers: Vec<Header> = Vec::new();
        /// Calls per second of all clients together that are forwarded to that server; 0 for no
        /// limit.
        pub upstream_requests_per_second: u32 = 50,
            "a whole number from 0 (no limit) to 4294967295";
    }
}

impl Rpc {
    /// Returns an error message when there are headers for a server that is not given.
    pub(super) fn validation_error(&self) -> Option<String> {
        (!self.upstream_headers.is_empty() && self.upstream.as_option().is_none())
            .then(|| "rpc.upstream_headers are set without rpc.upstream".to_owned())
    }
}
