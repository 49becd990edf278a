//! JSON-RPC in a running service, and the server to which it hands on what it does not know itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::ledgers::indexed_as;
use super::sources::rpc_settings;
use super::{Ledgers, RunningCore, RunningSandbox, ServiceError, unix_now};
use crate::config::{Config, SourceKind};
use crate::domain::Network;
use crate::rpc::envelope::Reply;
use crate::rpc::{LONGEST_ANSWER, Rpc, Settings, Upstream};
use crate::source::rpc::{Relayed, RpcRelay};

/// How long the start waits to hear of which network the server is that calls are handed to. One that hangs does not
/// keep the service from its own work.
const START_WAITS: Duration = Duration::from_secs(3);

/// Sets JSON-RPC up; `address` is the service's own.
///
/// # Errors
/// [`ServiceError::RpcUpstream`] when the server to which calls are handed on is of another network, or its address is
/// none. One that cannot be asked is asked again with the first call.
pub(super) async fn start(
    ledgers: &Ledgers,
    config: &Config,
    sandbox: Option<Arc<RunningSandbox>>,
    address: SocketAddr,
) -> Result<Arc<Rpc>, ServiceError> {
    let normal = Settings::default();
    let settings = Settings {
        max_ledger_latency: sandbox.as_ref().map_or(normal.max_ledger_latency, |it| it.old_after()),
        retention_window: config.retention.raw_ledgers,
        indexed_as: indexed_as(config),
        friendbot_url: sandbox.as_ref().map(|_| format!("http://{address}/friendbot")),
    };
    let rpc = Rpc::new(Arc::clone(ledgers.store()), settings, Arc::new(unix_now));
    if let Some(sandbox) = sandbox {
        return Ok(Arc::new(rpc.with_live(sandbox)));
    }
    let rpc = match config.source.kind {
        SourceKind::Core => rpc.with_node(Arc::new(RunningCore::new(ledgers)?)),
        _ => rpc,
    };
    let Some(url) = config.rpc.upstream.given() else { return Ok(Arc::new(rpc)) };
    let server = rpc_settings(url, &config.rpc.upstream_headers);
    let relay = RpcRelay::new(&server, LONGEST_ANSWER as u64)
        .map_err(|error| ServiceError::RpcUpstream(error.to_string()))?;
    let network = ledgers.store().network().clone();
    let upstream = CheckedUpstream { relay, network, is_of_network: OnceCell::new() };
    match timeout(START_WAITS, upstream.is_of_network()).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return Err(ServiceError::RpcUpstream(upstream.is_of_another_network())),
        Ok(Err(reason)) => tracing::warn!("calls cannot be handed on yet: {reason}"),
        Err(_) => {
            tracing::warn!(
                "calls cannot be handed on yet: {} does not answer",
                upstream.relay.name()
            );
        }
    }
    Ok(Arc::new(rpc.with_upstream(Arc::new(upstream))))
}

/// A server that is asked nothing before it is known to be of this network.
struct CheckedUpstream {
    relay: RpcRelay,
    network: Network,
    is_of_network: OnceCell<bool>,
}

impl CheckedUpstream {
    async fn is_of_network(&self) -> Result<bool, String> {
        let ask = || async {
            let passphrase = self.relay.passphrase().await?;
            Ok(passphrase == self.network.passphrase())
        };
        self.is_of_network.get_or_try_init(ask).await.copied()
    }

    fn is_of_another_network(&self) -> String {
        format!("{} is of another network than '{}'", self.relay.name(), self.network.passphrase())
    }
}

impl Upstream for CheckedUpstream {
    fn forward<'a>(
        &'a self,
        method: &'static str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Option<Reply>> {
        async move {
            let answered = match self.is_of_network().await {
                Ok(true) => self.relay.call(method, params).await,
                Ok(false) => Err(self.is_of_another_network()),
                Err(reason) => Err(reason),
            };
            match answered {
                Ok(Relayed::Result(result)) => Some(Reply::Result(result.into())),
                Ok(Relayed::Error(error)) => Some(Reply::OthersError(error)),
                Err(reason) => {
                    tracing::warn!(method, "a call was not handed on: {reason}");
                    None
                }
            }
        }
        .boxed()
    }
}
