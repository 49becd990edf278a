//! What a handler hands back. Knows status, type and bytes; headers are added by the gate.

use warp::http::StatusCode;

/// Media type of every REST answer.
pub(super) const JSON: &str = "application/json";

/// A finished answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub media_type: &'static str,
    pub body: Vec<u8>,
}

impl Answer {
    /// A JSON document with status 200.
    pub(super) fn json(body: Vec<u8>) -> Self {
        Self { status: StatusCode::OK, media_type: JSON, body }
    }
}
