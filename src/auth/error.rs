//! Errors of tokens and of the directory of secrets.

use std::io;
use std::path::{Path, PathBuf};

/// Why a token cannot be issued, listed or revoked, or a key cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The file of the signing key does not contain a key.
    #[error(
        "{0} does not hold a signing key of 64 hexadecimal digits: restore it from a backup, or remove it, which voids every token"
    )]
    DamagedSecret(PathBuf),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl AuthError {
    /// Creates the error of an operation on a file or directory; `what` names the operation.
    pub(super) fn io(what: &str, path: &Path, error: io::Error) -> Self {
        Self::Other(format!("{what} {}: {error}", path.display()))
    }
}

/// Why a token is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The token is longer than [`LONGEST_TOKEN`](super::LONGEST_TOKEN).
    #[error("the token is longer than 8 KiB")]
    TooLong,
    /// The token is not a JWT, or has a critical extension.
    #[error("the token is not a JWT of three base64url parts")]
    Malformed,
    /// The header names a key that is not configured.
    #[error("the token names a key that this service does not know")]
    UnknownKey,
    /// The header names another algorithm than that of its key.
    #[error("the token is not signed with the algorithm of its key")]
    Algorithm,
    /// The signature does not match: signed with another key, or altered.
    #[error("the token's signature is wrong")]
    Signature,
    /// A claim is missing or of the wrong type.
    #[error("the token's claims are incomplete or malformed: {0}")]
    Claims(String),
    /// The key may not issue tokens for this owner.
    #[error("the token's key may not issue tokens for this owner")]
    Owner,
    /// The `iss` claim is not [`ISSUER`](super::ISSUER).
    #[error("the token's issuer is not this service")]
    Issuer,
    /// The token is for another network.
    #[error("the token is for another network")]
    Network,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The token is revoked.
    #[error("the token is revoked")]
    Revoked,
    /// The list of revoked tokens cannot be read. This is a failure of the service, not of the
    /// token.
    #[error("the list of revoked tokens cannot be read")]
    Unverifiable(#[source] AuthError),
}
