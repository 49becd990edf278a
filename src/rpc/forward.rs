//! Forwards the methods that need the current ledger state, as far as the store does not have it.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::envelope::Reply;
use super::ledger_entries::{self, EntriesQuery};
use super::live::{self, Node};
use super::simulation;
use super::xdr::with_stack;
use super::{Outcome, Params, Rpc, RpcError, at_ledger};

/// Methods that are forwarded.
const METHODS: [&str; 3] = [ledger_entries::METHOD, simulation::METHOD, "sendTransaction"];

/// Maximum size of a forwarded answer in bytes: Stellar's command line accepts no longer ones.
pub const LONGEST_ANSWER: usize = 10 << 20;

/// Whether an answer may grow to this length in bytes.
pub type HasRoom<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// An upstream server that answers calls.
pub trait Upstream: Send + Sync {
    /// Forwards a call with all its parameters, under a new id. Returns `None` when no answer of at
    /// most [`LONGEST_ANSWER`] bytes arrives within half a minute, or `has_room` does not permit the
    /// length that it is about to have.
    fn forward<'a>(
        &'a self,
        method: &'static str,
        params: Option<&'a RawValue>,
        has_room: HasRoom<'a>,
    ) -> BoxFuture<'a, Option<Reply>>;
}

/// A method that is forwarded, and its destinations.
pub struct Forwarding<'a> {
    method: &'static str,
    node: Option<&'a Arc<dyn Node>>,
    upstream: Option<&'a Arc<dyn Upstream>>,
}

impl Rpc {
    /// Returns how a method is forwarded, or `None` when it is always answered here.
    pub fn forwarded(&self, method: &str) -> Option<Forwarding<'_>> {
        if self.live.is_some() {
            return None;
        }
        let method = METHODS.into_iter().find(|name| *name == method)?;
        Some(Forwarding { method, node: self.node.as_ref(), upstream: self.upstream.as_ref() })
    }
}

impl Forwarding<'_> {
    /// Whether the store may know the answer to a call: then [`Rpc::call`] comes first, and the call is
    /// forwarded if its error says so ([`Otherwise::Forwarding`]).
    pub fn may_be_stored(&self, params: Params<'_>) -> bool {
        match self.method {
            // A call that gives a ledger is never forwarded.
            simulation::METHOD => at_ledger::is_given(params),
            ledger_entries::METHOD => {
                at_ledger::is_given(params) || with_stack(|| ledger_entries::may_be_stored(params))
            }
            _ => false,
        }
    }

    /// Returns the node's answer if there is a node and it supports the method, or else the
    /// upstream's answer, unchanged.
    pub fn forward<'a>(
        &'a self,
        params: Params<'a>,
        has_room: HasRoom<'a>,
    ) -> BoxFuture<'a, Reply> {
        async move {
            if let Some(node) = self.node {
                match self.method {
                    ledger_entries::METHOD => return reply(entries(&**node, params).await),
                    "sendTransaction" => return reply(send(&**node, params).await),
                    _ => {}
                }
            }
            let Some(upstream) = self.upstream else {
                return Reply::Error(RpcError::needs_network(self.method));
            };
            let answered = upstream.forward(self.method, params.0, has_room).await;
            answered.unwrap_or_else(|| Reply::Error(RpcError::internal("upstream rpc unavailable")))
        }
        .boxed()
    }
}

async fn entries(node: &dyn Node, params: Params<'_>) -> Outcome {
    let query = with_stack(|| EntriesQuery::read(params))?;
    let found = node.look_up(&query.keys).await.map_err(RpcError::internal)?;
    with_stack(|| query.response(found, None))
}

async fn send(node: &dyn Node, params: Params<'_>) -> Outcome {
    let (envelope, format) = with_stack(|| live::read_transaction(params))?;
    let submitted = node.send(envelope).await.map_err(RpcError::internal)?;
    with_stack(|| live::submission_response(&submitted, format))
}

fn reply(outcome: Outcome) -> Reply {
    match outcome {
        Ok(result) => Reply::Result(result),
        Err(error) => Reply::Error(error),
    }
}
