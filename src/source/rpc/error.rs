//! Why settings of an RPC server cannot be used.

/// Why settings cannot be used: a sentence, which quotes neither an address nor a header's value,
/// because they may hold a secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RpcError(pub(super) String);
