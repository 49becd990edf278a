//! Calls that are handed to an RPC server as they came, and its answers as they come.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;

use super::answers::NetworkAnswer;
use super::call::{CallError, Server};
use super::{RpcError, RpcSettings, SHORT_ANSWER_BYTES};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// An RPC server to which calls are handed.
pub struct RpcRelay {
    server: Server,
    longest_answer: u64,
}

/// What it answered.
#[derive(Debug)]
pub enum Relayed {
    /// A result.
    Result(Box<RawValue>),
    /// An error, with code, message and data.
    Error(Box<RawValue>),
}

impl RpcRelay {
    /// Will ask the server of `settings`, and take answers of at most so many bytes. Asks it nothing yet.
    ///
    /// # Errors
    /// When address or headers are malformed, or no HTTP client can be set up.
    pub fn new(settings: &RpcSettings, longest_answer: u64) -> Result<Self, RpcError> {
        Ok(Self { server: Server::new(settings)?, longest_answer })
    }

    /// How it is called in messages, without secrets.
    pub fn name(&self) -> &str {
        self.server.name()
    }

    /// The passphrase of its network.
    ///
    /// # Errors
    /// Why it gives none, as a sentence.
    pub async fn passphrase(&self) -> Result<String, String> {
        let asked = self.server.ask::<NetworkAnswer>("getNetwork", SHORT_ANSWER_BYTES);
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
        let asked =
            async { self.server.send(method, params, self.longest_answer).await?.relayed() };
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
