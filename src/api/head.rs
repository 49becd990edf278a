//! The head of a request: what is known of it before its body arrives.

use std::sync::Arc;

use warp::http::{HeaderMap, Method};

use super::client::Client;

/// Maximum length of path and query, in bytes: enough for 200 contracts and for 16 long topics.
pub const LONGEST_URI: usize = 32 * 1024;

/// The head of a request.
pub(super) struct Head {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub client: Arc<Client>,
}
