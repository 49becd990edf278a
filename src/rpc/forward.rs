//! Methods that need the state of the ledger, which no store of its history has: whom they are handed to.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::envelope::Reply;
use super::{Params, Rpc, RpcError};

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
    upstream: Option<&'a Arc<dyn Upstream>>,
}

impl Rpc {
    /// How a method is handed on; none when it is answered here.
    pub fn forwarded(&self, method: &str) -> Option<Forwarding<'_>> {
        if self.live.is_some() {
            return None;
        }
        let method = METHODS.into_iter().find(|name| *name == method)?;
        Some(Forwarding { method, upstream: self.upstream.as_ref() })
    }
}

impl Forwarding<'_> {
    /// What the other server answers, unchanged.
    pub fn forward<'a>(&'a self, params: Params<'a>) -> BoxFuture<'a, Reply> {
        async move {
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
