//! Submission of transactions to the stellar-core that this process runs, at its HTTP interface
//! (stellar-core, `docs/software/commands.md`, "tx").

use std::fmt::Display;

use orrery_ledger::domain::Submission;
use orrery_net::http::{self, HttpError, Timeouts};
use orrery_net::reqwest;
use orrery_net::reqwest::header::CONNECTION;
use orrery_net::reqwest::{Client, StatusCode};
use serde::Deserialize;
use stellar_xdr::{Limits, TransactionEnvelope, WriteXdr};

use super::query::QueryPort;
use crate::xdr::{all_from_base64, from_base64};

/// Maximum size of an answer in bytes: a result, and the diagnostic events of a failure.
const MAX_BYTES: u64 = 4 << 20;

/// Why a transaction could not be submitted. Each message begins as that of the reference
/// implementation does.
#[derive(Debug, thiserror::Error)]
pub enum SubmissionError {
    /// Core was not asked, or its response could not be read.
    #[error("could not submit transaction to stellar-core: {0}")]
    NotSent(String),
    /// Core returned an exception instead of a result.
    #[error("received exception from stellar-core")]
    Exception(String),
    /// The answer is unknown or invalid.
    #[error("invalid status from stellar-core")]
    Status(String),
}

/// Core's answer to `GET /tx`.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: String,
    error: Option<String>,
    diagnostic_events: Option<String>,
    exception: Option<String>,
}

/// Client that submits transactions to a core.
pub struct CoreSubmission {
    client: Client,
    port: QueryPort,
}

impl CoreSubmission {
    /// Creates a client for the core at `port`. Sends no request yet.
    ///
    /// # Errors
    /// When no HTTP client can be set up.
    pub fn new(port: QueryPort, timeouts: Timeouts) -> Result<Self, HttpError> {
        Ok(Self { client: http::local_client(timeouts)?, port })
    }

    /// Submits a transaction. Returns before the transaction is in a ledger.
    pub async fn send(
        &self,
        envelope: &TransactionEnvelope,
    ) -> Result<Submission, SubmissionError> {
        let off = || not_sent("it does not run, or its HTTP_PORT is 0");
        let port = self.port.http().ok_or_else(off)?;
        let blob = envelope.to_xdr_base64(Limits::none()).map_err(not_sent)?;
        let query =
            form_urlencoded::Serializer::new(String::new()).append_pair("blob", &blob).finish();
        let failed = |error: reqwest::Error| not_sent(HttpError::from(error));
        let request = self.client.get(format!("http://127.0.0.1:{port}/tx?{query}"));
        let response = request.header(CONNECTION, "close").send().await.map_err(failed)?;
        let status = response.status();
        let body = http::read_capped(response, MAX_BYTES).await.map_err(not_sent)?;
        if status != StatusCode::OK {
            return Err(SubmissionError::Status(format!("HTTP {}", status.as_u16())));
        }
        read(&body)
    }
}

fn not_sent(reason: impl Display) -> SubmissionError {
    SubmissionError::NotSent(reason.to_string())
}

fn read(body: &[u8]) -> Result<Submission, SubmissionError> {
    let unknown = |what: String| SubmissionError::Status(what);
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| unknown(format!("no JSON: {error}")))?;
    if let Some(exception) = answer.exception {
        return Err(SubmissionError::Exception(exception));
    }
    match answer.status.as_str() {
        "PENDING" => Ok(Submission::Pending),
        "DUPLICATE" => Ok(Submission::Duplicate),
        "TRY_AGAIN_LATER" => Ok(Submission::TryAgainLater),
        "ERROR" => {
            let result = answer.error.as_deref().and_then(from_base64);
            let result = result.ok_or_else(|| unknown("ERROR without a result".to_owned()))?;
            let events = match answer.diagnostic_events.as_deref() {
                None | Some("") => Some(Vec::new()),
                Some(text) => all_from_base64(text),
            };
            let events =
                events.ok_or_else(|| unknown("unreadable diagnostic events".to_owned()))?;
            Ok(Submission::Invalid { result: Box::new(result), events })
        }
        other => Err(unknown(other.to_owned())),
    }
}
