//! JSON-RPC in a running service, and the upstream server to which it forwards calls that it cannot
//! answer itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::kept_records::indexed_as;
use super::network_node::RunningCore;
use super::past_network::PastNetwork;
use super::sources::rpc_settings;
use super::{Node, RunningSandbox, ServiceError};
use crate::config::Config;
use crate::domain::Network;
use crate::rpc::envelope::Reply;
use crate::rpc::{HasRoom, LONGEST_ANSWER, Rpc, Settings, Upstream};
use crate::source::rpc::{Relayed, RpcRelay};
use crate::steady::unix_now;

/// How long the start waits for the network passphrase of the upstream server. A server that hangs
/// does not keep the service from starting.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Sets up JSON-RPC; `running` is the stellar-core that this process follows, and `address` that of
/// the service's HTTP interface.
///
/// # Errors
/// When the upstream server is of another network, its address is invalid, or the client that sends
/// requests to stellar-core cannot be set up. An upstream server that does not answer is asked for its
/// network again with the first call.
pub(super) async fn start(
    node: &Node,
    config: &Config,
    sandbox: Option<Arc<RunningSandbox>>,
    running: Option<&RunningCore>,
    address: SocketAddr,
) -> Result<Arc<Rpc>, ServiceError> {
    let normal = Settings::default();
    let settings = Settings {
        max_ledger_latency: sandbox.as_ref().map_or(normal.max_ledger_latency, |it| it.old_after()),
        retention_window: config.retention.raw_ledgers,
        indexed_as: indexed_as(config),
        friendbot_url: sandbox.as_ref().map(|_| format!("http://{address}/friendbot")),
    };
    let past = PastNetwork::new(Arc::clone(node.store()));
    let rpc = Rpc::new(Arc::clone(node.store()), settings, Arc::new(unix_now));
    let rpc = rpc.with_past(Arc::new(past));
    if let Some(sandbox) = sandbox {
        return Ok(Arc::new(rpc.with_live(sandbox)));
    }
    let rpc = match running {
        Some(core) => {
            let node = core.node(node.store()).map_err(|error| {
                ServiceError::Other(format!("requests to stellar-core cannot be sent: {error}"))
            })?;
            rpc.with_node(Arc::new(node))
        }
        None => rpc,
    };
    let Some(url) = config.rpc.upstream.as_option() else { return Ok(Arc::new(rpc)) };
    if let Some(caution) = config.rpc.caution() {
        tracing::warn!("{caution}");
    }
    let server = rpc_settings(url, &config.rpc.upstream_headers);
    let unusable =
        |reason: String| ServiceError::Other(format!("rpc.upstream cannot be used: {reason}"));
    let relay = RpcRelay::new(&server, LONGEST_ANSWER as u64);
    let relay = relay.map_err(|error| unusable(error.to_string()))?;
    let network = node.store().network().clone();
    let upstream = CheckedUpstream { relay, network, is_of_network: OnceCell::new() };
    match timeout(STARTUP_TIMEOUT, upstream.is_of_network()).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return Err(unusable(upstream.network_mismatch())),
        Ok(Err(reason)) => {
            tracing::warn!("calls cannot be forwarded to rpc.upstream yet: {reason}")
        }
        Err(_) => {
            tracing::warn!(
                "calls cannot be forwarded to rpc.upstream yet: {} does not respond",
                upstream.relay.name()
            );
        }
    }
    Ok(Arc::new(rpc.with_upstream(Arc::new(upstream))))
}

/// An upstream server that receives no calls before it is known to be of this network.
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

    fn network_mismatch(&self) -> String {
        format!("{} serves another network than '{}'", self.relay.name(), self.network.passphrase())
    }
}

impl Upstream for CheckedUpstream {
    fn forward<'a>(
        &'a self,
        method: &'static str,
        params: Option<&'a RawValue>,
        has_room: HasRoom<'a>,
    ) -> BoxFuture<'a, Option<Reply>> {
        async move {
            let answered = match self.is_of_network().await {
                Ok(true) => self.relay.call(method, params, has_room).await,
                Ok(false) => Err(self.network_mismatch()),
                Err(reason) => Err(reason),
            };
            match answered {
                Ok(Relayed::Result(result)) => Some(Reply::Result(result.into())),
                Ok(Relayed::Error(error)) => Some(Reply::UpstreamError(error)),
                Err(reason) => {
                    tracing::warn!(method, "a call was not forwarded: {reason}");
                    None
                }
            }
        }
        .boxed()
    }
}
