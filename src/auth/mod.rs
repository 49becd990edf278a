//! Tokens: who may ask what. Knows secrets, signatures, claims and revocations; nothing of HTTP.
//!
//! A token is a JWT. Those issued here are signed with a secret that is created on first start
//! (HS256); further issuers are admitted by public keys from the configuration. Issued and revoked
//! tokens are lines of one append-only file, so the command line works beside a running service.

mod claims;
mod journal;
mod keys;
mod secret;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

pub use claims::{Area, Claims, ISSUER, Plan, Refusal, Right, Scope, decide};
pub use journal::TokenEntry;
use journal::{Journal, Line};
use keys::KeyRing;
pub use keys::{PublicKey, PublicKeyAlgorithm};

use crate::domain::Network;

/// Longest token that is looked at, in bytes.
pub const LONGEST_TOKEN: usize = 8 * 1024;

/// How far a clock may be off, in seconds, before a token counts as expired or not yet valid.
pub const LEEWAY_SECONDS: u64 = 60;

/// Days that a trial lasts.
pub const TRIAL_DAYS: u32 = 14;

/// Days that a token is valid unless told otherwise.
pub const DEFAULT_DAYS: u32 = 365;

const LONGEST_NAME: usize = 256;
const LONGEST_LIFE_DAYS: u32 = 36_500;
const SECONDS_PER_DAY: u64 = 86_400;

/// Verified tokens remembered at the most. Only valid tokens get in, so a stranger cannot fill it.
const REMEMBERED_TOKENS: usize = 4096;

/// Why tokens cannot be issued, listed or revoked, or secrets not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A file or directory failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The signing key's file does not hold a key.
    #[error(
        "{0} does not hold a signing key of 64 hexadecimal digits: restore it from a backup, or remove it, which voids every token"
    )]
    DamagedSecret(PathBuf),
    /// The file of the key for webhook secrets does not hold a key.
    #[error(
        "{0} does not hold a key of 64 hexadecimal digits: restore it from a backup, or remove it, after which every webhook subscription has to be made anew"
    )]
    DamagedWebhookKey(PathBuf),
    /// There is a signing key, and no list of the tokens that were revoked.
    #[error(
        "{} is missing beside the signing key, so that which tokens are revoked is not known: restore it \
         from a backup; or, if none was ever revoked, create it empty; or remove {} too, which voids every \
         token",
        list.display(),
        key.display()
    )]
    MissingList {
        /// Where the list should be.
        list: PathBuf,
        /// The signing key.
        key: PathBuf,
    },
    /// A configured public key cannot be read.
    #[error(
        "the public key '{kid}' cannot be read: give a PEM public key of its algorithm ({source})"
    )]
    PublicKey {
        /// The key's id.
        kid: String,
        /// What the reader said.
        source: jsonwebtoken::errors::Error,
    },
    /// Two configured keys share an id.
    #[error("the key id '{0}' is given twice: give every public key an id of its own")]
    RepeatedKeyId(String),
    /// Signing failed.
    #[error("the token cannot be signed: {0}")]
    Signing(jsonwebtoken::errors::Error),
    /// Not a plan.
    #[error("'{0}' is not a plan: give dev, builder, pro or protocol")]
    UnknownPlan(String),
    /// Not a scope.
    #[error("'{0}' is not a scope: give read, deploy, webhooks or admin")]
    UnknownScope(String),
    /// Not usable as an owner or token id.
    #[error("'{0}' is not a name: give 1 to 256 characters without control characters")]
    Name(String),
    /// Not usable as a token's life.
    #[error("{0} days are not a token's life: give 1 to 36500")]
    Days(u32),
}

impl AuthError {
    fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Over [`LONGEST_TOKEN`].
    #[error("the token is longer than 8 KiB")]
    TooLong,
    /// Not a JWT.
    #[error("the token is not a JWT of three base64url parts")]
    Malformed,
    /// Its header names a key that is not configured.
    #[error("the token names a key that this service does not know")]
    UnknownKey,
    /// Its header asks for another algorithm than its key has.
    #[error("the token is not signed with the algorithm of its key")]
    Algorithm,
    /// Signed by somebody else, or altered.
    #[error("the token's signature is wrong")]
    Signature,
    /// A claim is missing or of the wrong type.
    #[error("the token's claims are incomplete or malformed: {0}")]
    Claims(String),
    /// Its key speaks for other owners.
    #[error("the token's key may not issue tokens for this owner")]
    Owner,
    /// Issued by another service.
    #[error("the token's issuer is not this service")]
    Issuer,
    /// Issued for another network.
    #[error("the token is for another network")]
    Network,
    /// Too late.
    #[error("the token has expired")]
    Expired,
    /// Too early.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Taken back.
    #[error("the token is revoked")]
    Revoked,
    /// Whether it is revoked cannot be found out. The fault is the service's, not the token's.
    #[error("the list of revoked tokens cannot be read")]
    Unverifiable(#[source] AuthError),
}

/// What a token shall say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueRequest {
    /// Owner.
    pub sub: String,
    /// Plan.
    pub plan: Plan,
    /// Days until it expires.
    pub days: u32,
    /// What it is narrowed to; nothing when empty.
    pub scopes: Vec<Scope>,
    /// A trial is a token of the plan `builder` for [`TRIAL_DAYS`], whatever else is asked.
    pub trial: bool,
}

impl IssueRequest {
    /// A token for `sub` with the defaults of a self-hoster: plan `pro`, a year, no scopes.
    pub fn for_owner(sub: impl Into<String>) -> Self {
        let (plan, days, scopes) = (Plan::default(), DEFAULT_DAYS, Vec::new());
        Self { sub: sub.into(), plan, days, scopes, trial: false }
    }
}

/// A token, just issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The token itself: the only time that it is shown.
    pub token: String,
    /// What it says.
    pub claims: Claims,
}

/// What a revocation found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// The token was valid until now.
    Revoked,
    /// It had been revoked before; nothing changed.
    AlreadyRevoked,
    /// No token of this id is in the list. It is refused from now on: another issuer may have made
    /// it, or the list may be older than the token.
    NotIssuedHere,
}

/// Issues and verifies tokens of one network.
pub struct Tokens {
    audience: String,
    keys: KeyRing,
    journal: Journal,
    /// Tokens whose signature was verified: checking one again costs no cryptography.
    verified: RwLock<HashMap<Box<str>, Arc<Claims>>>,
}

impl Tokens {
    /// Opens the directory of secrets, creating it, the signing key and the list of tokens when there is
    /// no key yet.
    ///
    /// # Errors
    /// [`AuthError::MissingList`] when there is a key without a list: revocations would be forgotten.
    pub fn open(directory: &Path, network: &Network) -> Result<Self, AuthError> {
        Self::open_with_keys(directory, network, &[])
    }

    /// Like [`Tokens::open`], and also accepts tokens signed by these keys.
    pub fn open_with_keys(
        directory: &Path,
        network: &Network,
        public_keys: &[PublicKey],
    ) -> Result<Self, AuthError> {
        secret::prepare_directory(directory)?;
        // In this order, and the list before the key: whoever sees a key sees a list, also when several
        // processes start at once, or one is killed in between.
        if !secret::exists(directory)? {
            journal::create(directory)?;
        }
        journal::check(directory)?;
        let mut keys = KeyRing::new(&secret::load_or_create(directory)?);
        for key in public_keys {
            keys.add(key)?;
        }
        Ok(Self {
            audience: network.id().to_string(),
            keys,
            journal: Journal::open(directory)?,
            verified: RwLock::default(),
        })
    }

    /// Issues a token and enters it in the list before it is returned.
    pub fn issue(&self, request: &IssueRequest) -> Result<Issued, AuthError> {
        self.issue_at(request, unix_now())
    }

    /// [`Tokens::issue`] at the time `now`, UNIX seconds.
    pub fn issue_at(&self, request: &IssueRequest, now: u64) -> Result<Issued, AuthError> {
        check_name(&request.sub)?;
        let (plan, days) = match request.trial {
            true => (Plan::Builder, TRIAL_DAYS),
            false => (request.plan, request.days),
        };
        if !(1..=LONGEST_LIFE_DAYS).contains(&days) {
            return Err(AuthError::Days(days));
        }
        let claims = Claims {
            sub: request.sub.clone(),
            exp: now + u64::from(days) * SECONDS_PER_DAY,
            iat: now,
            iss: ISSUER.to_owned(),
            aud: self.audience.clone(),
            jti: format!("{:032x}", rand::random::<u128>()),
            plan,
            scopes: (!request.scopes.is_empty()).then(|| request.scopes.clone()),
            nbf: None,
        };
        let token = self.keys.sign(&claims)?;
        self.journal.append(&Line::Issued(TokenEntry {
            jti: claims.jti.clone(),
            sub: claims.sub.clone(),
            plan,
            scopes: request.scopes.clone(),
            trial: request.trial,
            issued_at: now,
            expires_at: claims.exp,
            revoked_at: None,
        }))?;
        Ok(Issued { token, claims })
    }

    /// All tokens that were issued here, oldest first.
    pub fn list(&self) -> Result<Vec<TokenEntry>, AuthError> {
        self.journal.issued()
    }

    /// Revokes a token by its id. A running service refuses it from its next request on.
    pub fn revoke(&self, jti: &str) -> Result<Revocation, AuthError> {
        check_name(jti)?;
        if self.journal.revoked_at(jti)?.is_some() {
            return Ok(Revocation::AlreadyRevoked);
        }
        self.journal.append(&Line::Revoked { jti: jti.to_owned(), at: unix_now() })?;
        let issued_here = self.journal.issued()?.iter().any(|entry| entry.jti == jti);
        Ok(if issued_here { Revocation::Revoked } else { Revocation::NotIssuedHere })
    }

    /// Verifies a token and returns its claims.
    pub fn verify(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        self.verify_at(token, unix_now())
    }

    /// [`Tokens::verify`] at the time `now`, UNIX seconds.
    pub fn verify_at(&self, token: &str, now: u64) -> Result<Arc<Claims>, TokenError> {
        if token.len() > LONGEST_TOKEN {
            return Err(TokenError::TooLong);
        }
        let remembered = self.verified.read().get(token).cloned();
        let claims = match &remembered {
            Some(claims) => Arc::clone(claims),
            None => Arc::new(self.keys.open(token)?),
        };
        self.check(&claims, now)?;
        if remembered.is_none() {
            let mut verified = self.verified.write();
            if verified.len() >= REMEMBERED_TOKENS {
                verified.clear();
            }
            verified.insert(token.into(), Arc::clone(&claims));
        }
        Ok(claims)
    }

    /// Whether it would cost much to verify a token: it was not before, and its issuer has a public key.
    pub fn is_costly(&self, token: &str) -> bool {
        token.len() <= LONGEST_TOKEN
            && !self.verified.read().contains_key(token)
            && self.keys.is_costly(token)
    }

    fn check(&self, claims: &Claims, now: u64) -> Result<(), TokenError> {
        if claims.iss != ISSUER {
            return Err(TokenError::Issuer);
        }
        if claims.aud != self.audience {
            return Err(TokenError::Network);
        }
        for (name, value) in [("sub", &claims.sub), ("jti", &claims.jti)] {
            if check_name(value).is_err() {
                return Err(TokenError::Claims(format!("`{name}` is empty or not a name")));
            }
        }
        if claims.exp.saturating_add(LEEWAY_SECONDS) < now {
            return Err(TokenError::Expired);
        }
        let valid_from = claims.iat.max(claims.nbf.unwrap_or(0));
        if valid_from > now.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::NotYetValid);
        }
        match self.journal.revoked_at(&claims.jti) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(TokenError::Revoked),
            Err(error) => Err(TokenError::Unverifiable(error)),
        }
    }
}

/// The secret under which compiled programs are authenticated, 32 bytes. Creates it, and the directory of
/// secrets, when they are missing.
///
/// # Errors
/// [`AuthError::Io`]
pub fn code_key(directory: &Path) -> Result<[u8; 32], AuthError> {
    secret::prepare_directory(directory)?;
    secret::code_key(directory)
}

/// The key under which secrets of webhooks are sealed in the store, 32 bytes. Creates it, and the directory
/// of secrets, when they are missing.
///
/// # Errors
/// [`AuthError::Io`], [`AuthError::DamagedWebhookKey`]
pub fn webhook_key(directory: &Path) -> Result<[u8; 32], AuthError> {
    secret::prepare_directory(directory)?;
    secret::webhook_key(directory)
}

/// Says what in a directory of secrets is damaged: one sentence each. Changes and creates nothing.
///
/// # Errors
/// When a file that is there cannot be read at all.
pub fn problems(directory: &Path) -> Result<Vec<String>, AuthError> {
    let key = secret::problem(directory)?;
    let list = match secret::exists(directory)? {
        true => journal::check(directory).err().map(|missing| missing.to_string()),
        false => None,
    };
    Ok(key.into_iter().chain(list).chain(journal::problems(directory)?).collect())
}

fn check_name(name: &str) -> Result<(), AuthError> {
    let fits = !name.is_empty() && name.chars().count() <= LONGEST_NAME;
    match fits && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(AuthError::Name(crate::domain::excerpt(name))),
    }
}

fn unix_now() -> u64 {
    // A clock before 1970 makes every token "not valid yet", which is the safe answer.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

#[cfg(test)]
mod tests;
