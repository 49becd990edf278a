//! Transactions handed to the stellar-core that this process runs, at its HTTP interface (stellar-core,
//! `docs/software/commands.md`, "tx").

use reqwest::header::CONNECTION;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use stellar_xdr::{DiagnosticEvent, Limits, TransactionEnvelope, TransactionResult, WriteXdr};

use super::QueryPort;
use crate::source::entries::{all_from_base64, from_base64};
use crate::source::http::{self, HttpError, Timeouts};

/// Bytes of the longest answer: a result, and what a contract host says of a failure.
const MOST_BYTES: u64 = 4 << 20;

/// What core did with a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It was taken.
    Pending,
    /// It was there already.
    Duplicate,
    /// It may be sent again in a while.
    TryAgainLater,
    /// It is invalid.
    Error {
        /// Why.
        result: Box<TransactionResult>,
        /// What the contract host said of it.
        events: Vec<DiagnosticEvent>,
    },
}

/// Why a transaction could not be handed to a core. The first sentence of each is the reference's.
#[derive(Debug, thiserror::Error)]
pub enum SubmissionError {
    /// Core does not run now, or its HTTP interface is off.
    #[error("could not submit transaction to stellar-core: it does not run, or its HTTP_PORT is 0")]
    NotRunning,
    /// It cannot be written as XDR.
    #[error("could not submit transaction to stellar-core: {0}")]
    Xdr(stellar_xdr::Error),
    /// No answer came.
    #[error("could not submit transaction to stellar-core: {0}")]
    Http(HttpError),
    /// Core says no without a result.
    #[error("received exception from stellar-core")]
    Exception(String),
    /// The answer is none of those that are known.
    #[error("invalid status from stellar-core")]
    Status(String),
}

/// `GET /tx`: what core answers.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: String,
    error: Option<String>,
    diagnostic_events: Option<String>,
    exception: Option<String>,
}

/// Hands transactions to a core.
pub struct CoreSubmission {
    client: Client,
    port: QueryPort,
}

impl CoreSubmission {
    /// Will hand them to the core that `port` tells of. Asks it nothing yet.
    ///
    /// # Errors
    /// When no HTTP client can be set up.
    pub fn new(port: QueryPort, timeouts: Timeouts) -> Result<Self, HttpError> {
        Ok(Self { client: http::local_client(timeouts)?, port })
    }

    /// Hands a transaction over. It is not in a ledger when this returns.
    ///
    /// # Errors
    /// [`SubmissionError`]
    pub async fn send(&self, envelope: &TransactionEnvelope) -> Result<Answered, SubmissionError> {
        let port = self.port.http().ok_or(SubmissionError::NotRunning)?;
        let blob = envelope.to_xdr_base64(Limits::none()).map_err(SubmissionError::Xdr)?;
        let query =
            form_urlencoded::Serializer::new(String::new()).append_pair("blob", &blob).finish();
        let failed = |error: reqwest::Error| SubmissionError::Http(error.into());
        let request = self.client.get(format!("http://127.0.0.1:{port}/tx?{query}"));
        let response = request.header(CONNECTION, "close").send().await.map_err(failed)?;
        let status = response.status();
        let body = http::read_capped(response, MOST_BYTES).await.map_err(SubmissionError::Http)?;
        if status != StatusCode::OK {
            return Err(SubmissionError::Status(format!("HTTP {}", status.as_u16())));
        }
        read(&body)
    }
}

fn read(body: &[u8]) -> Result<Answered, SubmissionError> {
    let unknown = |what: String| SubmissionError::Status(what);
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| unknown(format!("no JSON: {error}")))?;
    if let Some(exception) = answer.exception {
        return Err(SubmissionError::Exception(exception));
    }
    match answer.status.as_str() {
        "PENDING" => Ok(Answered::Pending),
        "DUPLICATE" => Ok(Answered::Duplicate),
        "TRY_AGAIN_LATER" => Ok(Answered::TryAgainLater),
        "ERROR" => {
            let result = answer.error.as_deref().and_then(from_base64);
            let result = result.ok_or_else(|| unknown("ERROR without a result".to_owned()))?;
            let events = match answer.diagnostic_events.as_deref() {
                None | Some("") => Some(Vec::new()),
                Some(text) => all_from_base64(text),
            };
            let events =
                events.ok_or_else(|| unknown("unreadable diagnostic events".to_owned()))?;
            Ok(Answered::Error { result: Box::new(result), events })
        }
        other => Err(unknown(other.to_owned())),
    }
}
