//! Settings for following an RPC server, and why they cannot be used.

use std::fmt;
use std::time::Duration;

use orrery_net::http::{self, Timeouts};
use orrery_net::reqwest::Url;

/// Lower bound of the limit on a response's length, whatever the settings say: one ledger of the
/// public network may have tens of megabytes in base64.
pub(super) const LEAST_ANSWER_BYTES: u64 = 64 << 20;

/// Maximum length in bytes of a response that holds no ledgers.
pub(super) const SHORT_ANSWER_BYTES: u64 = 1 << 20;

/// Settings for following an RPC server. The `Debug` output hides passwords and header values.
#[derive(Clone)]
pub struct RpcSettings {
    /// `http` or `https` URL; may contain a user and a password, or a key in its query or path.
    pub url: String,
    /// Names and values of headers to send, for example `Authorization`.
    pub headers: Vec<(String, String)>,
    /// HTTP timeouts; by default 5 seconds to connect and 8 seconds without data.
    pub timeouts: Timeouts,
    /// Maximum number of ledgers per page, 200 by default. Reduced when the server reports a lower
    /// limit.
    pub most_ledgers: u32,
    /// Maximum length of a response in bytes after decompression: 128 MiB by default, never below
    /// 64 MiB.
    pub most_bytes: u64,
    /// Minimum delay between two polls for a ledger that is not closed yet, 1 second by default.
    pub poll: Duration,
    /// Whether the server is used although it says that it is not healthy, as one that is behind its
    /// network does; false by default.
    pub may_be_behind: bool,
}

impl RpcSettings {
    /// Returns settings for the server at `url` with defaults for everything else.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            most_ledgers: 200,
            most_bytes: 128 << 20,
            poll: Duration::from_secs(1),
            may_be_behind: false,
        }
    }
}

impl fmt::Debug for RpcSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = Url::parse(&self.url).map_or_else(|_| "…".to_owned(), |url| http::redacted(&url));
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("RpcSettings")
            .field("url", &url)
            .field("headers", &headers)
            .field("timeouts", &self.timeouts)
            .field("most_ledgers", &self.most_ledgers)
            .field("most_bytes", &self.most_bytes)
            .field("poll", &self.poll)
            .field("may_be_behind", &self.may_be_behind)
            .finish()
    }
}

/// Why settings cannot be used: a sentence, which quotes neither an address nor a header's value,
/// because they may hold a secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RpcError(pub(super) String);
