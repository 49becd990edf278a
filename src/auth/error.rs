//! Errors of tokens and of the directory of secrets.

use std::io;
use std::path::{Path, PathBuf};

/// Why a token cannot be issued, listed or revoked, or a key cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// An operation on a file or directory failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// Operation that failed, for the message.
        what: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The file of the signing key does not contain a key.
    #[error(
        "{0} does not hold a signing key of 64 hexadecimal digits: restore it from a backup, or remove it, which voids every token"
    )]
    DamagedSecret(PathBuf),
    /// The file of the key for webhook secrets does not contain a key.
    #[error(
        "{0} does not hold a key of 64 hexadecimal digits: restore it from a backup, or remove it, after which every webhook subscription must be created again"
    )]
    DamagedWebhookKey(PathBuf),
    /// There is a signing key, but no list of revoked tokens.
    #[error(
        "{} is missing beside the signing key, so it is not known which tokens are revoked: restore it \
         from a backup; or, if none was ever revoked, create it empty; or remove {} too, which voids every \
         token",
        list.display(),
        key.display()
    )]
    MissingList {
        /// Expected path of the list.
        list: PathBuf,
        /// Path of the signing key.
        key: PathBuf,
    },
    /// A configured public key cannot be parsed.
    #[error(
        "the public key '{kid}' cannot be read: give a PEM public key of its algorithm ({source})"
    )]
    PublicKey {
        /// Id of the key.
        kid: String,
        /// Error of the parser.
        source: jsonwebtoken::errors::Error,
    },
    /// Two configured public keys have the same id.
    #[error("the key id '{0}' is given twice: give every public key an id of its own")]
    RepeatedKeyId(String),
    /// The token could not be signed.
    #[error("the token cannot be signed: {0}")]
    Signing(jsonwebtoken::errors::Error),
    /// The text is not the name of a plan.
    #[error("'{0}' is not a plan: give dev, builder, pro or protocol")]
    UnknownPlan(String),
    /// The text is not the name of a scope.
    #[error("'{0}' is not a scope: give read, deploy, webhooks or admin")]
    UnknownScope(String),
    /// The text is not valid as an owner or a token id.
    #[error("'{0}' is not a name: give 1 to 256 characters without control characters")]
    Name(String),
    /// The number of days is not valid as a token's lifetime.
    #[error("a token cannot be valid for {0} days: give 1 to 36500")]
    Days(u32),
}

impl AuthError {
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
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
