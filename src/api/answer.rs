//! What a handler hands back, and what becomes of it. Knows status, type and bytes; headers are added
//! by the gate.

use bytes::Bytes;
use warp::http::StatusCode;

/// Media type of every REST answer.
pub(super) const JSON: &str = "application/json";

/// Media type of server-sent events, which are UTF-8 always (html.spec.whatwg.org, section 9.2.5).
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// What a handler hands back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub media_type: &'static str,
    pub body: Vec<u8>,
    /// Whether it says all that was asked for. A page that ends early does not.
    pub is_complete: bool,
}

impl Answer {
    /// A JSON document with status 200.
    pub(super) fn json(body: Vec<u8>) -> Self {
        Self { status: StatusCode::OK, media_type: JSON, body, is_complete: true }
    }

    /// The head of a stream of events, whose body is made later.
    pub(super) fn stream() -> Self {
        Self { media_type: EVENT_STREAM, is_complete: false, ..Self::json(Vec::new()) }
    }
}

/// An answer as it goes out, perhaps compressed. A copy shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finished {
    pub status: StatusCode,
    pub media_type: &'static str,
    pub body: Bytes,
    pub gzipped: bool,
    pub is_complete: bool,
}

impl Finished {
    /// With this body, which stands for the answer's own when it is the compressed one. It takes no
    /// more memory than it has bytes, however much room it was written into.
    pub(super) fn new(answer: Answer, compressed: Option<Vec<u8>>) -> Self {
        let Answer { status, media_type, body, is_complete } = answer;
        let gzipped = compressed.is_some();
        let body = compressed.unwrap_or(body).into_boxed_slice().into();
        Self { status, media_type, body, gzipped, is_complete }
    }
}
