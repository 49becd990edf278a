//! Forwards calls to an RPC server and returns its results and errors unchanged.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;

use super::answers::NetworkAnswer;
use super::call::{CallError, Relayed, Server};
use super::settings::{RpcError, RpcSettings, SHORT_ANSWER_BYTES};

/// Timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// An RPC server to which calls are forwarded.
pub struct RpcRelay {
    server: Server,
    longest_answer: u64,
}

impl RpcRelay {
    /// Creates a relay to the server of `settings` that accepts responses of at most
    /// `longest_answer` bytes after decompression. Does not contact the server.
    ///
    /// # Errors
    /// When address or headers are malformed, or no HTTP client can be set up.
    pub fn new(settings: &RpcSettings, longest_answer: u64) -> Result<Self, RpcError> {
        Ok(Self { server: Server::new(settings)?, longest_answer })
    }

    /// Returns the server's name for messages, without secrets.
    pub fn name(&self) -> &str {
        self.server.name()
    }

    /// Returns the passphrase of the server's network.
    ///
    /// # Errors
    /// When the server does not return it: the reason, as a sentence.
    pub async fn passphrase(&self) -> Result<String, String> {
        let response = self.server.request::<NetworkAnswer>("getNetwork", SHORT_ANSWER_BYTES);
        self.with_timeout(response).await.map(|network| network.passphrase)
    }

    /// Forwards a call, whose response grows only as far as `has_room` permits.
    ///
    /// # Errors
    /// When there is no response: the reason, as a sentence.
    pub async fn call(
        &self,
        method: &'static str,
        params: Option<&RawValue>,
        has_room: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Relayed, String> {
        let response = async {
            let answer = self.server.send_within(method, params, self.longest_answer, has_room);
            answer.await?.relayed()
        };
        self.with_timeout(response).await
    }

    async fn with_timeout<T>(
        &self,
        response: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, String> {
        match timeout(CALL_TIMEOUT, response).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "{} does not answer within {} seconds",
                self.name(),
                CALL_TIMEOUT.as_secs()
            )),
        }
    }
}
