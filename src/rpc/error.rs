//! Errors of calls, with the codes and messages of JSON-RPC 2.0 (section 5.1) and Stellar RPC.

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use orrery_store::StoreError;

/// A JSON-RPC `error` object.
#[derive(Debug, Clone, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// Error code.
    #[serde(serialize_with = "code")]
    pub code: Code,
    /// Human-readable message.
    pub message: String,
    /// Additional details. The Python client accepts only a string here; only errors of methods
    /// that it does not support have an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// What may answer the call nevertheless.
    #[serde(skip)]
    pub otherwise: Option<Otherwise>,
}

/// What may answer a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// The same call, once this consumer has processed all stored ledgers.
    Consumer(&'static str),
    /// The server to which the method is forwarded.
    Forwarding,
}

/// Error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The body is not JSON.
    Unparsable = -32700,
    /// The body is not a call. Stellar RPC also uses this code for some invalid parameters.
    InvalidRequest = -32600,
    /// The method does not exist.
    MethodNotFound = -32601,
    /// The parameters are invalid.
    InvalidParams = -32602,
    /// The service failed.
    Internal = -32603,
    /// The call exceeds its processing limit.
    TimedOut = -32001,
    /// The method panicked.
    Panicked = -32003,
}

fn code<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i32(*code as i32)
}

impl RpcError {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, otherwise: None }
    }

    /// The body is not JSON, or not an object.
    pub fn unparsable(message: impl Into<String>) -> Self {
        Self::new(Code::Unparsable, message)
    }

    /// The body is not a call, or the call asks for something that does not exist.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// The method does not exist.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(Code::MethodNotFound, "method not found").about(method)
    }

    /// The parameters are invalid.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidParams, message)
    }

    /// The parameters cannot be parsed.
    pub fn unreadable_params(why: impl ToString) -> Self {
        Self::invalid_params("invalid parameters").about(&why.to_string())
    }

    /// The service failed, or lacks what the call needs.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// What the call asks for may be in one of `ledgers` stored ledgers that a consumer has yet to
    /// process.
    pub fn not_indexed(consumer: &'static str, ledgers: u64) -> Self {
        let message =
            format!("{ledgers} stored ledgers are not indexed yet: try again in a moment");
        let otherwise = Some(Otherwise::Consumer(consumer));
        Self { otherwise, ..Self::internal(message) }
    }

    /// What the call asks for only a network tells, and there is none here: it may be forwarded.
    pub fn needs_network(method: &str) -> Self {
        let error = Self::internal(format!(
            "{method} needs state of the ledger that is not kept here: set [rpc] upstream to the address \
             of an RPC server of this network"
        ));
        Self { otherwise: Some(Otherwise::Forwarding), ..error }
    }

    /// The call exceeds its processing limit.
    pub fn too_expensive() -> Self {
        Self::new(Code::TimedOut, "request exceeded processing limit threshold")
    }

    /// The method panicked.
    pub fn panicked() -> Self {
        Self::new(Code::Panicked, "request failed to process due to internal issue")
    }

    /// Adds details to the error, as text.
    #[must_use]
    pub fn about(self, details: &str) -> Self {
        self.with_object(&details)
    }

    /// Adds details to the error, for methods whose clients read an object there.
    #[must_use]
    pub(super) fn with_object(mut self, details: &impl Serialize) -> Self {
        // Serialisation fails only for maps with non-string keys, and no caller passes any.
        self.data = to_raw_value(details).ok();
        self
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "a JSON-RPC call failed");
        Self::internal(
            "the service failed on this call: try again, and look into its log when it persists",
        )
    }
}

impl From<serde_json::Error> for RpcError {
    fn from(error: serde_json::Error) -> Self {
        tracing::error!(%error, "the result of a JSON-RPC call cannot be spelled");
        Self::internal("the result cannot be spelled as JSON")
    }
}
