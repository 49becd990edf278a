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
    /// It is malformed, not valid now or here, or revoked.
    #[error("{0}")]
    Refused(&'static str),
    /// A claim is missing or of the wrong type.
    #[error("the token's claims are incomplete or malformed: {0}")]
    Claims(String),
    /// The list of revoked tokens cannot be read. This is a failure of the service, not of the
    /// token.
    #[error("the list of revoked tokens cannot be read")]
    Unverifiable(#[source] AuthError),
}
