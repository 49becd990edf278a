//! Errors of requests and of the server, with the status and body that the client receives. Does
//! not depend on handlers.

use warp::http::StatusCode;

use super::answer::Answer;
use super::storage::StorageError;
use orrery_auth::{Refusal, TokenError};
use orrery_ledger::domain::excerpt;
use orrery_programs::ProgramError;
use orrery_programs::engine::RunError;
use orrery_programs::engine::StateError;
use orrery_store::StoreError;
use orrery_tables::query::QueryError;
use orrery_webhooks::WebhookError;

/// Error of a request or of the server itself.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A path or query parameter is malformed.
    #[error("parameter '{name}' {problem}")]
    Parameter {
        /// Name of the parameter.
        name: &'static str,
        /// Rest of the sentence: what is wrong with the value, and what to give instead.
        problem: String,
    },
    /// The route has no parameter of this name.
    #[error("there is no parameter '{name}': {mend}")]
    UnknownParameter {
        /// Name as given, shortened.
        name: String,
        /// What to give instead.
        mend: String,
    },
    /// The transaction that the cursor of a transaction page names is not stored.
    #[error(
        "parameter 'cursor' names the transaction {0}, which is not stored: give the `tx` of a record that this service returned"
    )]
    UnknownCursor(String),
    /// The request carries no usable `Authorization` header.
    #[error("a token is needed: send the header 'Authorization: Bearer <JWT>' once")]
    NoToken,
    /// The ticket in the address of a stream has expired, or was never given out.
    #[error(
        "the ticket has expired or was not given out here: get another (POST /rest/events/stream/ticket)"
    )]
    Ticket,
    /// The token is invalid.
    #[error("{0}: use a valid token, or ask the operator for one")]
    Token(TokenError),
    /// The token does not grant the required right.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The looked-up value is malformed. The text is the one that clients of the account indexers
    /// expect.
    #[error("{0}")]
    InvalidValue(&'static str),
    /// The looked-up value was not found. The text is the one that clients of the account indexers
    /// expect.
    #[error("{0}")]
    NotFound(&'static str),
    /// The ledger is not stored. Contains the sentence that says why.
    #[error("{0}")]
    NoLedger(String),
    /// The transaction is not stored. Contains the sentence that says why.
    #[error("{0}")]
    NoTransaction(String),
    /// The metadata of the transaction is not stored any more. Contains the sentence that says why.
    #[error("{0}")]
    NoMetadata(String),
    /// The event, or the events of the transaction, are not stored any more. Contains the sentence that
    /// says why.
    #[error("{0}")]
    NoEvents(String),
    /// The record of the transaction is not stored any more. Contains the sentence that says why.
    #[error("{0}")]
    NoRecord(String),
    /// There is no answer about what a contract holds.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// No route has this path.
    #[error("there is no route '{path}': {}", which_exist(nearest))]
    UnknownRoute {
        /// Path of the request, shortened.
        path: String,
        /// Templates of routes that may be meant.
        nearest: Vec<&'static str>,
    },
    /// The route does not support this method.
    #[error("the method {method} is not available here: use {allow}")]
    Method {
        /// Method of the request.
        method: String,
        /// Value of the `Allow` header.
        allow: String,
        /// Whether the request comes from a browser, which shows the answer as a page.
        is_for_page: bool,
    },
    /// The request body exceeds the size limit.
    #[error("the request body is larger than {0} bytes: send less")]
    BodyTooLarge(usize),
    /// The request body did not arrive before its timeout.
    #[error(
        "the request body did not arrive within {0} seconds, or at less than 8 KiB per second: send it faster"
    )]
    BodyTooSlow(u64),
    /// The request body violates HTTP framing.
    #[error("the request body cannot be read: check Content-Length and chunk sizes")]
    BrokenBody,
    /// The request's path and query exceed their length limit.
    #[error("the path and query are longer than {0} bytes: ask for fewer values at a time")]
    UriTooLong(usize),
    /// The token or address has exceeded its rate limit.
    #[error("too many requests: try again in {retry_after} s")]
    TooManyRequests {
        /// Seconds until the next request will be accepted.
        retry_after: u64,
    },
    /// A shared budget is exhausted: slots, or memory for bodies and responses.
    #[error("the service is busy: try again in {retry_after} s")]
    Busy {
        /// Seconds after which the client should retry.
        retry_after: u64,
    },
    /// An owner, or an address without a token, has used up its own part of a shared budget.
    #[error(
        "too many {what} at a time: wait for one of yours to end, and try again in {retry_after} s"
    )]
    OverOwnLimit {
        /// Resource of which the caller holds too much, as a plural noun.
        what: &'static str,
        /// Seconds after which the client should retry.
        retry_after: u64,
    },
    /// The query reached the cost limit of one request before it found a row.
    #[error("{}", too_expensive(cursor, *skipped, *offset))]
    TooExpensive {
        /// Cursor from which the same query can be continued.
        cursor: serde_json::Value,
        /// Number of rows that `offset` has skipped so far.
        skipped: u64,
        /// Number of rows that `offset` was to skip.
        offset: u64,
    },
    /// The client closed its side of the connection while its request was processed.
    #[error(
        "the connection was closed on your side before the answer was ready: keep it open until then"
    )]
    HungUp,
    /// The caller may not read the metrics.
    #[error(
        "the metrics are for clients on the service's own machine that ask by its address or as localhost: set \
         http.metrics to \"all\" to change that"
    )]
    MetricsForbidden,
    /// The request names a host by which a service on this machine is not asked.
    #[error(
        "this service is for programs on its own machine and does not answer as '{0}': ask by its address or as \
         localhost, list http://{0} in http.cors_origins, or, behind a proxy, list that in http.trusted_proxies"
    )]
    UnknownHost(String),
    /// A web page from elsewhere sends a request that changes something.
    #[error(
        "web pages of other origins may not do this: open it on this machine, or list the page's origin in \
         http.cors_origins"
    )]
    ForeignPage,
    /// The request body is malformed. Contains the rest of the sentence that names the problem.
    #[error("the request body is malformed: {0}")]
    Body(String),
    /// An operation on programs failed. Internal reasons are only logged, for the operator.
    #[error("{}", .0.sentence())]
    Program(#[from] ProgramError),
    /// An operation on webhooks failed. Internal reasons are only logged, for the operator.
    #[error("{}", .0.sentence())]
    Webhook(#[from] WebhookError),
    /// There is no catalogue, because the service exports nothing.
    #[error(
        "this service has no catalogue, because it exports no tables: set export.to, and start it again"
    )]
    NoCatalogue,
    /// The service is not ready, with the reason; also the failure of `/rest/health/ready`.
    #[error("the service is not ready: {0}")]
    NotReady(String),
    /// The store failed. The reason is only logged, for the operator.
    #[error(
        "the store could not answer: try again, and give the operator the request id when it persists"
    )]
    Store(#[from] StoreError),
    /// A handler panicked. The location is only logged, for the operator.
    #[error("the service failed on this request: give the operator the request id")]
    Panic,
    /// A response cannot be encoded. The reason is only logged, for the operator.
    #[error("the service failed on this request: give the operator the request id")]
    Encoding,
    /// The listening socket failed.
    #[error("the API's listening socket failed: {0}")]
    Listener(std::io::Error),
    /// The API cannot start: its routes contradict each other, or the system refuses threads.
    #[error("the API cannot start: {0}")]
    Start(String),
}

impl ApiError {
    /// Creates the error for a malformed parameter; `problem` continues the sentence that begins
    /// with its name.
    pub(super) fn parameter(name: &'static str, problem: impl Into<String>) -> Self {
        Self::Parameter { name, problem: problem.into() }
    }

    /// Creates the error for a malformed body; `problem` continues the sentence.
    pub(super) fn body(problem: impl Into<String>) -> Self {
        Self::Body(problem.into())
    }

    /// Creates the error for an unknown path, of which an excerpt is shown.
    pub(super) fn unknown_route(path: &str) -> Self {
        Self::UnknownRoute { path: excerpt(path), nearest: Vec::new() }
    }

    /// Returns the HTTP status and the stable value of the `code` field.
    pub fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Parameter { .. } => (StatusCode::BAD_REQUEST, "bad_parameter"),
            Self::UnknownParameter { .. } => (StatusCode::BAD_REQUEST, "unknown_parameter"),
            Self::UnknownCursor(_) => (StatusCode::BAD_REQUEST, "unknown_cursor"),
            Self::BrokenBody => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Token(TokenError::Unverifiable(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
            }
            Self::NoToken | Self::Ticket | Self::Token(_) => {
                (StatusCode::UNAUTHORIZED, "unauthorized")
            }
            Self::Refused(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::InvalidValue(_) => (StatusCode::BAD_REQUEST, "bad_parameter"),
            Self::UnknownRoute { .. } | Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::NoCatalogue => (StatusCode::NOT_FOUND, "no_catalogue"),
            Self::NoLedger(_) => (StatusCode::NOT_FOUND, "no_ledger"),
            Self::NoTransaction(_) => (StatusCode::NOT_FOUND, "no_transaction"),
            Self::NoMetadata(_) => (StatusCode::GONE, "metadata_removed"),
            Self::NoEvents(_) => (StatusCode::GONE, "events_removed"),
            Self::NoRecord(_) => (StatusCode::GONE, "transaction_removed"),
            Self::Storage(error) => error.status_and_code(),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::BodyTooSlow(_) => (StatusCode::REQUEST_TIMEOUT, "request_timeout"),
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::UriTooLong(_) => (StatusCode::URI_TOO_LONG, "uri_too_long"),
            Self::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
            Self::OverOwnLimit { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
            Self::Busy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::TooExpensive { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "query_too_expensive"),
            Self::HungUp => (StatusCode::BAD_REQUEST, "client_closed"),
            Self::MetricsForbidden | Self::ForeignPage => (StatusCode::FORBIDDEN, "forbidden"),
            Self::UnknownHost(_) => (StatusCode::MISDIRECTED_REQUEST, "unknown_host"),
            Self::NotReady(_) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Program(error) => of_program(error),
            Self::Webhook(error) => of_webhook(error),
            Self::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "store_failed"),
            Self::Panic | Self::Encoding | Self::Listener(_) | Self::Start(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal")
            }
        }
    }

    /// Returns the JSON body that the client receives.
    fn to_json(&self) -> Vec<u8> {
        let (_, code) = self.status_and_code();
        let mut body = serde_json::json!({ "error": self.to_string(), "code": code });
        if let Self::TooExpensive { cursor, skipped, offset } = self {
            body["cursor"] = cursor.clone();
            if *offset > 0 {
                body["skipped"] = (*skipped).into();
            }
        }
        if let Self::Storage(error) = self {
            error.add_to(&mut body);
        }
        body.to_string().into_bytes()
    }

    /// Returns the seconds for the `Retry-After` header, if it is sent.
    pub(super) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests { retry_after }
            | Self::OverOwnLimit { retry_after, .. }
            | Self::Busy { retry_after } => Some(*retry_after),
            Self::NotReady(_) | Self::Token(TokenError::Unverifiable(_)) => Some(5),
            Self::Webhook(WebhookError::NotNamedYet(_)) => Some(5),
            Self::Program(error) => match of_program(error).0 {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some(1),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Says which routes there are instead of one that does not exist.
fn which_exist(nearest: &[&str]) -> String {
    match nearest {
        [] => "see /rest/openapi.json for those that exist".to_owned(),
        [one] => format!("did you mean {one}? /rest/openapi.json lists all"),
        [some @ .., last] => {
            format!("did you mean {} or {last}? /rest/openapi.json lists all", some.join(", "))
        }
    }
}

fn of_program(error: &ProgramError) -> (StatusCode, &'static str) {
    match error {
        ProgramError::Unknown(_)
        | ProgramError::NoBackfill(_)
        | ProgramError::NotPublic(_)
        | ProgramError::UnknownProject(_) => (StatusCode::NOT_FOUND, "not_found"),
        ProgramError::NotYours(_) => (StatusCode::FORBIDDEN, "forbidden"),
        ProgramError::ProjectExists(_) | ProgramError::OwnProject(_) => {
            (StatusCode::CONFLICT, "project_exists")
        }
        ProgramError::OthersProject(_) => (StatusCode::CONFLICT, "not_your_project"),
        ProgramError::ReplacementRunning { .. } => (StatusCode::CONFLICT, "replacement_running"),
        ProgramError::TooManyPrograms(_) => (StatusCode::CONFLICT, "too_many_programs"),
        ProgramError::TooManyMembers { .. } => (StatusCode::CONFLICT, "too_many_members"),
        ProgramError::TooManySubscriptions(_) => (StatusCode::CONFLICT, "too_many_subscriptions"),
        ProgramError::Registered(_) => (StatusCode::CONFLICT, "contract_registered"),
        ProgramError::BackfillRunning(_) => (StatusCode::CONFLICT, "backfill_running"),
        ProgramError::Full(_) => (StatusCode::CONFLICT, "storage_full"),
        ProgramError::StorageOff => (StatusCode::CONFLICT, "storage_off"),
        ProgramError::Value { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
        ProgramError::UnknownTransaction(_) => (StatusCode::BAD_REQUEST, "unknown_transaction"),
        ProgramError::SuppliedTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        ProgramError::Supplied(_) => (StatusCode::UNPROCESSABLE_ENTITY, "spec_refused"),
        ProgramError::Unfit { .. } => (StatusCode::BAD_REQUEST, "module_unfit"),
        ProgramError::Module(_) => (StatusCode::UNPROCESSABLE_ENTITY, "module_refused"),
        ProgramError::Interrupted => (StatusCode::BAD_REQUEST, "client_closed"),
        ProgramError::NotIndexed(_) => (StatusCode::UNPROCESSABLE_ENTITY, "contract_not_indexed"),
        ProgramError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        ProgramError::Query(error) => of_query(error),
        ProgramError::Tables(_) | ProgramError::DataNotIndexed(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
        }
        ProgramError::State(StateError::Upstream(_))
        | ProgramError::Run(RunError::State(StateError::Upstream(_))) => {
            (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
        }
        ProgramError::Engine(_)
        | ProgramError::State(_)
        | ProgramError::Transaction(_)
        | ProgramError::Run(_)
        | ProgramError::SchemaConflict(_)
        | ProgramError::NotReady(_)
        | ProgramError::Damaged(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        ProgramError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "store_failed"),
    }
}

fn of_webhook(error: &WebhookError) -> (StatusCode, &'static str) {
    match error {
        WebhookError::UnknownProject(_) => (StatusCode::NOT_FOUND, "not_found"),
        WebhookError::Unknown(_) | WebhookError::UnknownDelivery { .. } => {
            (StatusCode::NOT_FOUND, "not_found")
        }
        WebhookError::Duplicate(_) => (StatusCode::CONFLICT, "webhook_exists"),
        WebhookError::TooManySecrets { .. } => (StatusCode::CONFLICT, "too_many_secrets"),
        WebhookError::TooMany { .. } => (StatusCode::CONFLICT, "too_many_webhooks"),
        WebhookError::Disabled(_) => (StatusCode::CONFLICT, "webhook_disabled"),
        WebhookError::StorageOff(_) => (StatusCode::CONFLICT, "storage_off"),
        WebhookError::Endpoint(_) | WebhookError::Filter(_) | WebhookError::Value { .. } => {
            (StatusCode::BAD_REQUEST, "bad_request")
        }
        WebhookError::NotNamedYet(_) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
        WebhookError::Interrupted => (StatusCode::BAD_REQUEST, "client_closed"),
        WebhookError::Damaged(_) | WebhookError::Thread(_) | WebhookError::Seal => {
            (StatusCode::INTERNAL_SERVER_ERROR, "internal")
        }
        WebhookError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "store_failed"),
    }
}

fn of_query(error: &QueryError) -> (StatusCode, &'static str) {
    match error {
        QueryError::Refused(_) => (StatusCode::UNPROCESSABLE_ENTITY, "query_refused"),
        QueryError::TooLarge(_) => (StatusCode::UNPROCESSABLE_ENTITY, "result_too_large"),
        QueryError::TimedOut(_) => (StatusCode::UNPROCESSABLE_ENTITY, "query_timeout"),
        QueryError::Interrupted => (StatusCode::BAD_REQUEST, "client_closed"),
        QueryError::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
        QueryError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
        QueryError::Unconfined(_) => (StatusCode::SERVICE_UNAVAILABLE, "queries_unconfined"),
    }
}

/// Returns the sentence for a query that is too expensive.
fn too_expensive(cursor: &serde_json::Value, skipped: u64, offset: u64) -> String {
    // Without this, a string would be shown in quotes.
    let cursor = cursor.as_str().map_or_else(|| cursor.to_string(), str::to_owned);
    let passed = match offset {
        0 => String::new(),
        _ => format!(", after {skipped} of the {offset} rows of `offset`"),
    };
    format!(
        "no row was found within the cost limit of one request: narrow it by ledgers or contracts, or \
         continue with cursor={cursor}{passed}"
    )
}

/// Returns an error as a REST response.
pub(super) fn rest(error: &ApiError) -> Answer {
    Answer { status: error.status_and_code().0, ..Answer::json(error.to_json()) }
}

/// Returns the JSON body of an error with this code and sentence.
pub(super) fn body(code: &str, sentence: &str) -> Vec<u8> {
    // Serializing two strings cannot fail.
    serde_json::json!({ "error": sentence, "code": code }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;
    use orrery_programs::engine::EngineError;
    use orrery_programs::engine::UpstreamError;
    use orrery_tables::TablesError;

    #[test]
    fn internal_details_are_not_sent_to_clients() {
        let path = || PathBuf::from("/var/lib/orrery/compiled/abc");
        let io = || io::Error::other("/var/lib/orrery is full");
        let database = || StoreError::Database("IO error: /var/lib/orrery/raw/000012.log".into());
        let upstream = || UpstreamError::Unreachable("http://10.0.0.7/orrery: refused".into());
        let inside: [(ProgramError, u16); 9] = [
            (EngineError::Cache { path: path(), source: io() }.into(), 500),
            (EngineError::Wasmtime("/var/lib/orrery".into()).into(), 500),
            (TablesError::Other("/var/lib/orrery/tables".into()).into(), 503),
            (TablesError::Unavailable("/var/lib/orrery/tables".into()).into(), 503),
            (StoreError::Io { path: path(), source: io() }.into(), 500),
            (database().into(), 500),
            (StateError::store(database()).into(), 500),
            (RunError::State(StateError::Upstream(upstream())).into(), 503),
            (RunError::Internal("panicked at /home/orrery/src".into()).into(), 500),
        ];
        for (error, expected) in inside {
            assert!(error.is_internal());
            let logged = error.to_string();
            let error = ApiError::from(error);
            assert_eq!(error.status_and_code().0.as_u16(), expected, "{logged}");
            let message = error.to_string();
            for inside in ["/", "10.0.0.7", "orrery", "panicked", "IO error"] {
                assert!(!message.contains(inside), "'{message}' reveals {inside}: {logged}");
            }
        }
        let own = ApiError::from(ProgramError::ProjectExists("vault".into()));
        assert!(own.to_string().contains("'vault' is taken"));
    }

    #[test]
    fn a_supplied_interface_that_is_too_large_is_a_body_that_is() {
        let status = |error: ProgramError| ApiError::from(error).status_and_code();
        let large = ProgramError::SuppliedTooLarge("the interface has 3 bytes".into());
        assert_eq!(status(large), (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"));
        let unread = ProgramError::Supplied("it is no module".into());
        assert_eq!(status(unread), (StatusCode::UNPROCESSABLE_ENTITY, "spec_refused"));
    }
}
