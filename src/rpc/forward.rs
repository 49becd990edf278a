//! Methods that need the state of the ledger, which no store of its history has: whom they are handed to.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::envelope::Reply;
use super::live::{self, AskedEntries, Node};
use super::xdr::with_stack;
use super::{Outcome, Params, Rpc, RpcError};

/// The methods that are handed on.
const METHODS: [&str; 3] = ["getLedgerEntries", "simulateTransaction", "sendTransaction"];

/// Bytes of the longest answer that is handed on: Stellar's command line takes no longer ones.
pub const LONGEST_ANSWER: usize = 10 << 20;

/// Another server that answers calls.
pub trait Upstream: Send + Sync {
    /// Hands on a call with all its parameters, under an id of its own. None when there is no answer of at most
    /// [`LONGEST_ANSWER`] bytes within half a minute.
    fn forward<'a>(
        &'a self,
        method: &'static str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Option<Reply>>;
}

/// A method that is handed on, and to whom.
pub struct Forwarding<'a> {
    method: &'static str,
    node: Option<&'a Arc<dyn Node>>,
    upstream: Option<&'a Arc<dyn Upstream>>,
}

impl Rpc {
    /// How a method is handed on; none when it is answered here.
    pub fn forwarded(&self, method: &str) -> Option<Forwarding<'_>> {
        if self.live.is_some() {
            return None;
        }
        let method = METHODS.into_iter().find(|name| *name == method)?;
        Some(Forwarding { method, node: self.node.as_ref(), upstream: self.upstream.as_ref() })
    }
}

impl Forwarding<'_> {
    /// What the node answers, where it knows; else what the other server answers, unchanged.
    pub fn forward<'a>(&'a self, params: Params<'a>) -> BoxFuture<'a, Reply> {
        async move {
            if let Some(node) = self.node {
                match self.method {
                    "getLedgerEntries" => return reply(entries(&**node, params).await),
                    "sendTransaction" => return reply(send(&**node, params).await),
                    _ => {}
                }
            }
            let Some(upstream) = self.upstream else {
                return Reply::Error(RpcError::internal(format!(
                    "{} needs the state of the ledger, which is not kept here: set [rpc] upstream to the \
                     address of an RPC server of this network",
                    self.method
                )));
            };
            let answered = upstream.forward(self.method, params.0).await;
            answered.unwrap_or_else(|| Reply::Error(RpcError::internal("upstream rpc unavailable")))
        }
        .boxed()
    }
}

async fn entries(node: &dyn Node, params: Params<'_>) -> Outcome {
    let asked = with_stack(|| AskedEntries::read(params))?;
    let found = node.entries(&asked.keys).await.map_err(RpcError::internal)?;
    with_stack(|| asked.told(found))
}

async fn send(node: &dyn Node, params: Params<'_>) -> Outcome {
    let (envelope, format) = with_stack(|| live::sent(params))?;
    let submitted = node.send(envelope).await.map_err(RpcError::internal)?;
    with_stack(|| live::told_of_submitted(&submitted, format))
}

fn reply(outcome: Outcome) -> Reply {
    match outcome {
        Ok(result) => Reply::Result(result),
        Err(error) => Reply::Error(error),
    }
}
