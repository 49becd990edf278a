//! Destinations of status messages, and the format that each service expects. Addresses and tokens
//! are secrets and never appear in output.

use std::time::Duration;

use serde_json::json;

use super::Message;
use crate::net::http::{self, HttpError};
use crate::net::reqwest::header::CONTENT_TYPE;
use crate::net::reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use crate::webhooks::message::format::Format;
use crate::webhooks::message::{Piece, written};
use crate::webhooks::target::chat;

/// Largest answer that is read, in bytes.
const LARGEST_ANSWER: u64 = 16 << 10;
/// Timeout of one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Base address of Telegram's Bot API (core.telegram.org/bots/api).
const TELEGRAM: &str = "https://api.telegram.org";

/// A destination of status messages.
#[derive(Clone)]
pub struct Target {
    form: Form,
    /// Contains the secret.
    url: Url,
}

#[derive(Clone)]
enum Form {
    /// The text, for people.
    Text(Format),
    /// The whole message as JSON, for programs.
    Generic,
}

/// Error while a message was sent. Contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The configured address cannot be parsed.
    #[error("the address of {0} is not valid")]
    Address(&'static str),
    /// The request failed before a response was received.
    #[error(transparent)]
    Http(HttpError),
    /// The service answered with a status other than 2xx.
    #[error("it answered with status {status}")]
    Refused {
        /// HTTP status of the response.
        status: u16,
        /// Delay that the service asks for with `Retry-After`.
        wait: Option<Duration>,
    },
}

impl TargetError {
    /// Returns whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Address(_) => false,
            Self::Http(_) => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }

    /// Returns the delay that the service asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { wait, .. } => *wait,
            _ => None,
        }
    }
}

impl Target {
    /// Creates a Discord destination from the address of a webhook.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn discord(url: &str) -> Result<Self, TargetError> {
        Self::new(Form::Text(Format::Discord), url)
    }

    /// Creates a Slack destination from the address of a webhook.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn slack(url: &str) -> Result<Self, TargetError> {
        Self::new(Form::Text(Format::Slack), url)
    }

    /// Creates a Telegram destination from a bot's token and the number or name of a chat, as
    /// `token:chat`.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn telegram(bot: &str) -> Result<Self, TargetError> {
        Self::telegram_at(TELEGRAM, bot)
    }

    /// Creates a Telegram destination that uses another base address of the Bot API.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn telegram_at(base: &str, bot: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError::Address("the Telegram chat");
        // The token itself contains a colon.
        let (token, chat) = bot.rsplit_once(':').ok_or_else(wrong)?;
        let mut target =
            Self::new(Form::Text(Format::Telegram), &format!("{base}/bot{token}/sendMessage"))?;
        target.url.query_pairs_mut().append_pair("chat_id", chat);
        Ok(target)
    }

    /// Creates a destination that receives the whole message as JSON.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn generic(url: &str) -> Result<Self, TargetError> {
        Self::new(Form::Generic, url)
    }

    fn new(form: Form, url: &str) -> Result<Self, TargetError> {
        let name = form.name();
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        Ok(Self { form, url: url.ok_or(TargetError::Address(name))? })
    }

    /// Returns a description of the destination without its address.
    pub fn name(&self) -> &'static str {
        self.form.name()
    }

    /// Attempts to send a message once.
    ///
    /// # Errors
    /// [`TargetError`], also for a status other than 2xx.
    pub async fn send(&self, client: &Client, message: &Message) -> Result<(), TargetError> {
        let answer = self.request(client, message).timeout(TIMEOUT).send().await;
        // The error of reqwest would contain the address.
        let answer = answer.map_err(|error| TargetError::Http(error.without_url().into()))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let wait = match status {
            StatusCode::TOO_MANY_REQUESTS => asked_wait(answer).await,
            _ => None,
        };
        Err(TargetError::Refused { status: status.as_u16(), wait })
    }

    fn request(&self, client: &Client, message: &Message) -> RequestBuilder {
        let request = client.post(self.url.clone());
        match self.form {
            Form::Text(format) => {
                // Reasons quote text of third parties, in which nothing may be more than text.
                let body = written(format, vec![Piece::Words(message.text.clone())]);
                request.header(CONTENT_TYPE, format.content_type()).body(body)
            }
            Form::Generic => request.json(&generic(message)),
        }
    }
}

impl Form {
    fn name(&self) -> &'static str {
        match self {
            Self::Text(Format::Discord) => "the Discord channel",
            Self::Text(Format::Slack) => "the Slack channel",
            Self::Text(Format::Telegram) => "the Telegram chat",
            Self::Text(_) | Self::Generic => "the address of status.generic_url",
        }
    }
}

/// Returns the delay that an answer asks for, in its header or in its body.
async fn asked_wait(answer: Response) -> Option<Duration> {
    let in_header = http::retry_after(answer.headers());
    // Without a body, what the header says counts.
    let body = http::read_capped(answer, LARGEST_ANSWER).await.unwrap_or_default();
    in_header.max(chat::asked_wait(&body))
}

fn generic(message: &Message) -> serde_json::Value {
    let Message { kind, network, text, time, reason, lag } = message;
    let mut body = json!({ "status": kind.name(), "network": network, "text": text, "time": time });
    if let Some(reason) = reason {
        body["reason"] = json!(reason);
    }
    if let Some(lag) = lag {
        body["service_latest_ledger"] = json!(lag.ledger);
        body["network_latest_ledger"] = json!(lag.network_latest);
    }
    body
}
