//! Responses of handlers: status, media type and body. The gate adds the headers.

use bytes::Bytes;
use serde::Serialize;
use warp::http::StatusCode;

use orrery_executables::Lacking;

/// Media type of every REST response.
pub(super) const JSON: &str = "application/json";

/// Media type of server-sent events, which are always UTF-8 (html.spec.whatwg.org, section 9.2.5).
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// Response of a handler.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub media_type: &'static str,
    pub body: Vec<u8>,
    /// Whether the response contains everything that was requested; false for a page that ended
    /// early.
    pub is_complete: bool,
    /// What its names lack although it is stored.
    pub lacking: Lacking,
    /// Names and values of headers that other responses do not have.
    pub headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// Returns a JSON document with status 200.
    pub(super) fn json(body: Vec<u8>) -> Self {
        let (lacking, headers) = (Lacking::default(), Vec::new());
        Self { status: StatusCode::OK, media_type: JSON, body, is_complete: true, lacking, headers }
    }

    /// Returns a record of numbers, texts and lists as a JSON document with status 200.
    pub(super) fn of(record: &impl Serialize) -> Self {
        Self::json(serde_json::to_vec(record).expect("numbers, texts and lists serialise"))
    }

    /// Returns the head of an event stream, whose body is produced later.
    pub(super) fn stream() -> Self {
        Self { media_type: EVENT_STREAM, is_complete: false, ..Self::json(Vec::new()) }
    }
}

/// A response ready to be sent, possibly compressed. Clones share the body's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finished {
    pub status: StatusCode,
    pub media_type: &'static str,
    pub body: Bytes,
    pub gzipped: bool,
    pub is_complete: bool,
    pub headers: Vec<(&'static str, String)>,
}

impl Finished {
    /// Builds the response with the compressed body, if given, in place of the original one. The
    /// body is shrunk to its length, so it occupies no spare capacity.
    pub(super) fn new(answer: Answer, compressed: Option<Vec<u8>>) -> Self {
        let Answer { status, media_type, body, is_complete, headers, .. } = answer;
        let gzipped = compressed.is_some();
        let body = compressed.unwrap_or(body).into_boxed_slice().into();
        Self { status, media_type, body, gzipped, is_complete, headers }
    }
}
