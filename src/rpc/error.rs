//! How a call fails, as JSON-RPC 2.0 (section 5.1) and Stellar RPC spell it.

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::store::StoreError;

/// An `error` object.
#[derive(Debug, Clone, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// Which kind of failure.
    #[serde(serialize_with = "code")]
    pub code: Code,
    /// For people.
    pub message: String,
    /// More about it. The Python client takes nothing but text here; only errors of methods that it does not know
    /// have an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// What came is no JSON.
    Unparsable = -32700,
    /// What came is no call; Stellar RPC also says so of some parameters.
    InvalidRequest = -32600,
    /// There is no such method.
    MethodNotFound = -32601,
    /// The parameters are wrong.
    InvalidParams = -32602,
    /// The service fails.
    Internal = -32603,
    /// It takes longer than a call may take.
    TimedOut = -32001,
    /// The method panicked.
    Panicked = -32003,
}

fn code<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i32(*code as i32)
}

impl RpcError {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// What came is no JSON, or no object.
    pub fn unparsable(message: impl Into<String>) -> Self {
        Self::new(Code::Unparsable, message)
    }

    /// What came is no call, or asks for what there is not.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// There is no method of this name.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(Code::MethodNotFound, "method not found").with(&method)
    }

    /// The parameters are wrong.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidParams, message)
    }

    /// The parameters cannot be read.
    pub fn unreadable_params(why: impl ToString) -> Self {
        Self::invalid_params("invalid parameters").with(&why.to_string())
    }

    /// The service fails, or lacks what the call needs.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// The call costs more than one may.
    pub fn too_expensive() -> Self {
        Self::new(Code::TimedOut, "request exceeded processing limit threshold")
    }

    /// The method panicked.
    pub fn panicked() -> Self {
        Self::new(Code::Panicked, "request failed to process due to internal issue")
    }

    /// The error with something more about it.
    #[must_use]
    pub fn with(mut self, data: &impl Serialize) -> Self {
        // What is passed here has no keys that are no text, the only thing that JSON cannot spell.
        self.data = to_raw_value(data).ok();
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
