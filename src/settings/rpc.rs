//! Settings of the JSON-RPC interface.

use crate::section;
use crate::values::{Header, SecretUrl};

/// Length in bytes from which a part of an address's path looks like a key.
const KEY_LENGTH: usize = 16;

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
        /// Calls per second of all clients together that are forwarded to that server, of which each
        /// has an equal part; 0 for no limit.
        pub upstream_requests_per_second: u32 = 50,
            "a whole number from 0 (no limit) to 4294967295";
    }
}

/// Whether an address may contain a key: it has user info, a query, or more of a path than is usual.
fn may_have_key(address: &str) -> bool {
    let (_, rest) = address.split_once("://").unwrap_or(("", address));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    host.contains('@') || rest.contains('?') || path.split('/').any(|part| part.len() >= KEY_LENGTH)
}

impl Rpc {
    /// Returns a sentence about keys that all who reach this service can use, if there are any.
    pub fn caution(&self) -> Option<String> {
        let upstream = self.upstream.as_option()?;
        let has_keys = !self.upstream_headers.is_empty() || may_have_key(upstream);
        (has_keys && !self.require_token).then(|| {
            "rpc.upstream is asked with its headers and address for everyone who reaches /rpc, because \
             rpc.require_token is false: set it to true if a key of yours is among them"
                .to_owned()
        })
    }

    /// Returns an error message when there are headers for a server that is not given.
    pub fn validation_error(&self) -> Option<String> {
        (!self.upstream_headers.is_empty() && self.upstream.as_option().is_none())
            .then(|| "rpc.upstream_headers are set without rpc.upstream".to_owned())
    }
}
