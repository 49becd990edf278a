//! Requests that are answered from the answers of other routes of this service: what a handler makes of
//! one. The gate asks the routes ([`super::gate`]), for the same caller and within the same limits as if
//! the caller had asked them itself.

use bytes::Bytes;
use warp::http::Method;

use super::ApiError;
use super::answer::Answer;

/// What a handler makes of a request.
pub(super) enum Relayed<'a> {
    /// The answer, for which no route is asked.
    Answer(Answer),
    /// Questions to routes, and what makes the answer of theirs.
    Ask(Vec<Question>, Tell<'a>),
}

/// Makes the answer to a request from those of the routes, which are in the order of the questions. Those
/// failures that are the caller's own are among them.
pub(super) type Tell<'a> =
    Box<dyn FnOnce(Vec<Result<Bytes, ApiError>>) -> Result<Answer, ApiError> + Send + 'a>;

/// A request to a route of this service.
#[derive(Debug)]
pub(super) struct Question {
    pub method: Method,
    /// Path, percent-encoded.
    pub path: String,
    /// Query string, percent-encoded.
    pub query: String,
    /// A JSON document, or empty.
    pub body: Bytes,
}
