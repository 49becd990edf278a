//! Calls that are handed to an RPC server as they came, and its answers as they come.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;

use super::answers::NetworkAnswer;
use super::call::{CallError, Server};
use super::{RpcError, RpcSettings, SHORT_ANSWER_BYTES};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest answer that is handed on, in bytes: Stellar's command line takes no longer ones.
const LONGEST_ANSWER: u64 = 10 << 20;

/// An RPC server to which calls are handed.
pub struct RpcRelay(Server);

/// What it answered.
#[derive(Debug)]
pub enum Relayed {
    /// A result.
    Result(Box<RawValue>),
    /// An error, with code, message and data.
    Error(Box<RawValue>),
}

impl RpcRelay {
    /// Will ask the server of `settings`. Asks it nothing yet.
    ///
    /// # Errors
    /// When address or headers are malformed, or no HTTP client can be set up.
    pub fn new(settings: &RpcSettings) -> Result<Self, RpcError> {
        Ok(Self(Server::new(settings)?))
    }

    /// How it is called in messages, without secrets.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The passphrase of its network.
    ///
    /// # Errors
    /// Why it gives none, as a sentence.
    pub async fn passphrase(&self) -> Result<String, String> {
        let asked = self.0.ask::<NetworkAnswer>("getNetwork", SHORT_ANSWER_BYTES);
        self.in_time(asked).await.map(|network| network.passphrase)
    }

    /// Hands it a call.
    ///
    /// # Errors
    /// Why there is no answer, as a sentence.
    pub async fn call(
        &self,
        method: &'static str,
        params: Option<&RawValue>,
    ) -> Result<Relayed, String> {
        let asked = async { self.0.send(method, params, LONGEST_ANSWER).await?.relayed() };
        self.in_time(asked).await
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, String> {
        match timeout(PATIENCE, asked).await {
            Ok(answered) => answered.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "{} does not answer within {} seconds",
                self.name(),
                PATIENCE.as_secs()
            )),
        }
    }
}
