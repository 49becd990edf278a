//! Where messages go, and in which form each service takes them. Addresses and tokens are secrets: they
//! are never shown.

use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::json;

use super::Message;
use crate::source::http::HttpError;

/// Until an attempt counts as failed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Telegram's interface for bots (core.telegram.org/bots/api).
const TELEGRAM: &str = "https://api.telegram.org";

/// A place for messages.
pub struct Target {
    form: Form,
    /// Holds the secret.
    url: Url,
}

enum Form {
    /// An incoming webhook of Discord (discord.com/developers/docs/resources/webhook#execute-webhook).
    Discord,
    /// An incoming webhook of Slack (api.slack.com/messaging/webhooks).
    Slack,
    /// `sendMessage` to this chat.
    Telegram { chat: String },
    /// Everything as JSON, for programs.
    Generic,
}

/// Why a message could not be sent. Holds no secret.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The address is none.
    #[error("the address of {0} is not understood")]
    Address(&'static str),
    /// Something between here and there.
    #[error(transparent)]
    Http(HttpError),
    /// It was refused.
    #[error("it answered with status {status}")]
    Refused {
        /// What it answered.
        status: u16,
        /// How long it asks to wait.
        wait: Option<Duration>,
    },
}

impl TargetError {
    /// Whether it is worth trying again.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Address(_) => false,
            Self::Http(_) => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }

    /// How long the service asks to wait.
    pub fn asked_wait(&self) -> Option<Duration> {
        match self {
            Self::Refused { wait, .. } => *wait,
            _ => None,
        }
    }
}

impl Target {
    /// A channel of Discord, by the address of its webhook.
    ///
    /// # Errors
    /// [`TargetError::Address`], as for the others.
    pub fn discord(url: &str) -> Result<Self, TargetError> {
        Self::new(Form::Discord, url)
    }

    /// A channel of Slack, by the address of its webhook.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn slack(url: &str) -> Result<Self, TargetError> {
        Self::new(Form::Slack, url)
    }

    /// A chat of Telegram, by the token of a bot and the chat's number or name, as `token:chat`.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn telegram(bot: &str) -> Result<Self, TargetError> {
        Self::telegram_at(TELEGRAM, bot)
    }

    /// The same, at another address of Telegram's interface.
    ///
    /// # Errors
    /// [`TargetError::Address`]
    pub fn telegram_at(base: &str, bot: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError::Address("the Telegram chat");
        // The token itself holds a colon.
        let (token, chat) = bot.rsplit_once(':').ok_or_else(wrong)?;
        Self::new(
            Form::Telegram { chat: chat.to_owned() },
            &format!("{base}/bot{token}/sendMessage"),
        )
    }

    /// An address that takes all of the message as JSON.
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

    /// What it is, without its address.
    pub fn name(&self) -> &'static str {
        self.form.name()
    }

    /// Sends a message once.
    ///
    /// # Errors
    /// [`TargetError`]; a status other than 2xx is one.
    pub async fn send(&self, client: &Client, message: &Message) -> Result<(), TargetError> {
        let answer = self.request(client, message).timeout(TIMEOUT).send().await;
        // The library's own error would name the address.
        let answer = answer.map_err(|error| TargetError::Http(error.without_url().into()))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let asked = (status == StatusCode::TOO_MANY_REQUESTS)
            .then(|| answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse::<f64>().ok())
            .flatten();
        let wait = asked.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Err(TargetError::Refused { status: status.as_u16(), wait })
    }

    fn request(&self, client: &Client, message: &Message) -> RequestBuilder {
        let text = &message.text;
        let body = match &self.form {
            // Reasons quote what others wrote: nobody is to be called by it.
            Form::Discord => json!({"content": text, "allowed_mentions": {"parse": []}}),
            Form::Slack => json!({"text": escaped(text)}),
            Form::Telegram { chat } => {
                json!({"chat_id": chat, "text": text, "link_preview_options": {"is_disabled": true}})
            }
            Form::Generic => generic(message),
        };
        client.post(self.url.clone()).json(&body)
    }
}

impl Form {
    fn name(&self) -> &'static str {
        match self {
            Self::Discord => "the Discord channel",
            Self::Slack => "the Slack channel",
            Self::Telegram { .. } => "the Telegram chat",
            Self::Generic => "the address of status.generic_url",
        }
    }
}

/// Slack's three special characters (api.slack.com/reference/surfaces/formatting#escaping).
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn generic(message: &Message) -> serde_json::Value {
    let Message { kind, network, text, time, reason, lag } = message;
    let mut body = json!({ "status": kind.word(), "network": network, "text": text, "time": time });
    if let Some(reason) = reason {
        body["reason"] = json!(reason);
    }
    if let Some(lag) = lag {
        body["service_latest_ledger"] = json!(lag.ledger);
        body["network_latest_ledger"] = json!(lag.network_latest);
    }
    body
}
