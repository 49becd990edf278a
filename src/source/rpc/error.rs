//! Why settings of an RPC server cannot be used.

use orrery_net::http::HttpError;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The address is not an `http` or `https` URL. It is not quoted, because it may contain a
    /// password.
    #[error("the address of the RPC server is wrong ({0}): write it as https://HOST/PATH")]
    Address(String),
    /// The name or value of a header is invalid. The value is not quoted, because it may be a
    /// secret.
    #[error(
        "the header '{0}' for the RPC server is wrong: its name may hold letters, digits and '-', and \
         its value must be one line of ASCII"
    )]
    Header(String),
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(HttpError),
}
