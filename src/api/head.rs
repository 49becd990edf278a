//! The head of a request: what is known of it before its body arrives.

use std::sync::Arc;

use warp::http::header::ACCEPT;
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

impl Head {
    /// Whether the request comes from a browser, which shows the response as a page.
    pub(super) fn is_for_page(&self) -> bool {
        let mut accepted = self.headers.get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok());
        accepted.any(|kinds| kinds.contains("text/html"))
    }
}

/// Returns the path of a request. Clients that append `/api/…` to a base address with a slash at its
/// end send two slashes in a row, which stand for one below `/rest`. Other paths stay as they are:
/// a proxy may allow or refuse them by their beginning.
pub(super) fn merged_slashes(path: &str) -> String {
    const BASE: &str = "/rest/";
    let mut merged = path.to_owned();
    while merged.starts_with(BASE) && merged.contains("//") {
        merged = merged.replace("//", "/");
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_in_a_row_are_one_below_the_base() {
        for (sent, merged) in [
            ("/rest/smart-account-indexer//api/stats", "/rest/smart-account-indexer/api/stats"),
            ("/rest////health//", "/rest/health/"),
            ("/rest/health", "/rest/health"),
            ("//metrics", "//metrics"),
            ("//rest/health", "//rest/health"),
            ("/", "/"),
        ] {
            assert_eq!(merged_slashes(sent), merged);
        }
    }
}
