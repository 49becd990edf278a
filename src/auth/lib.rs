//! Tokens: issues, verifies and revokes them, and decides what they permit. Does not depend on
//! HTTP.
//!
//! A token is a JWT. Tokens issued here are signed with a secret that is created on first start
//! (HS256); tokens of other issuers are verified with public keys from the configuration. Issued
//! and revoked tokens are lines of one append-only file, so the command line works while a service
//! runs.

mod claims;
mod directory_key;
mod error;
mod journal;
mod keys;
mod provider;
mod secret;
pub mod section;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

pub use claims::{Area, Claims, ISSUER, Plan, Refusal, Right, Scope, decide, has_programs};
pub use directory_key::{DirectoryKey, is_public_key, is_signed_by};
pub use error::{AuthError, TokenError};
pub use journal::TokenEntry;
use journal::{Journal, Line};
use keys::KeyRing;
pub use keys::{PublicKey, PublicKeyAlgorithm};

use orrery_ledger::domain::Network;

/// Maximum length of a token in bytes; a longer one is refused without parsing it.
pub const LONGEST_TOKEN: usize = 8 * 1024;

/// Tolerated clock difference in seconds when expiry and start of validity are checked.
pub const LEEWAY_SECONDS: u64 = 60;

/// Validity of a trial token in days.
pub const TRIAL_DAYS: u32 = 14;

/// Default validity of a token in days.
pub const DEFAULT_DAYS: u32 = 365;

const LONGEST_NAME: usize = 256;
const LONGEST_LIFE_DAYS: u32 = 36_500;
const SECONDS_PER_DAY: u64 = 86_400;

/// Maximum number of verified tokens that are cached. Only valid tokens are cached, so strangers
/// cannot fill the cache.
const MAX_CACHED_TOKENS: usize = 4096;

/// Parameters of a new token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueRequest {
    /// Owner of the token.
    pub sub: String,
    /// Plan of the token.
    pub plan: Plan,
    /// Validity in days.
    pub days: u32,
    /// Scopes that the token is restricted to; empty for no restriction.
    pub scopes: Vec<Scope>,
    /// Whether this is a trial: a token of the plan `builder` for [`TRIAL_DAYS`], regardless of
    /// `plan` and `days`.
    pub trial: bool,
}

impl IssueRequest {
    /// Returns the request for a token of `sub` with the defaults: plan `pro`, a year, no scopes.
    pub fn for_owner(sub: impl Into<String>) -> Self {
        let (plan, days, scopes) = (Plan::default(), DEFAULT_DAYS, Vec::new());
        Self { sub: sub.into(), plan, days, scopes, trial: false }
    }
}

/// A newly issued token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The token itself, which is not stored and cannot be retrieved later.
    pub token: String,
    /// Claims of the token.
    pub claims: Claims,
}

/// Outcome of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// The token was issued here and is now revoked.
    Revoked,
    /// The token was revoked before; nothing changed.
    AlreadyRevoked,
    /// The list has no token of this id. The id is refused from now on: the token may be from
    /// another issuer, or older than the list.
    NotIssuedHere,
}

/// Issues and verifies the tokens of one network.
pub struct Tokens {
    audience: String,
    directory: PathBuf,
    keys: RwLock<KeyRing>,
    journal: Journal,
    /// Cache of claims by token, so that the signature of a token is verified only once.
    verified: RwLock<HashMap<Box<str>, Arc<Claims>>>,
}

impl Tokens {
    /// Opens the directory of secrets. Creates the directory, the signing key and the list of
    /// tokens if there is no key yet.
    ///
    /// # Errors
    /// When there is a key without a list, because revoked tokens would be accepted again.
    pub fn open(directory: &Path, network: &Network) -> Result<Self, AuthError> {
        Self::open_with_keys(directory, network, &[])
    }

    /// Like [`Tokens::open`], and also accepts tokens that are signed with these keys.
    pub fn open_with_keys(
        directory: &Path,
        network: &Network,
        public_keys: &[PublicKey],
    ) -> Result<Self, AuthError> {
        secret::prepare_directory(directory)?;
        // The list is created before the key, and checked before the key is loaded. A process that
        // finds a key therefore also finds a list, even if several processes start at once or one
        // is killed in between.
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
            directory: directory.to_owned(),
            keys: RwLock::new(keys),
            journal: Journal::open(directory)?,
            verified: RwLock::default(),
        })
    }

    /// Issues a token. It has been added to the list when this returns.
    pub fn issue(&self, request: &IssueRequest) -> Result<Issued, AuthError> {
        self.issue_at(request, unix_now())
    }

    /// Like [`Tokens::issue`], for a token that is signed with the key of the data directory, which is made first if
    /// there is none: whoever has the public half accepts it, such as a reader of its snapshots.
    pub fn issue_portable(&self, request: &IssueRequest) -> Result<Issued, AuthError> {
        let key = DirectoryKey::open(&self.directory)?;
        self.issue_signed(request, unix_now(), |claims| key.token(claims))
    }

    /// Like [`Tokens::issue`], at the time `now` in UNIX seconds.
    pub fn issue_at(&self, request: &IssueRequest, now: u64) -> Result<Issued, AuthError> {
        self.issue_signed(request, now, |claims| self.keys.read().sign(claims))
    }

    fn issue_signed(
        &self,
        request: &IssueRequest,
        now: u64,
        sign: impl FnOnce(&Claims) -> Result<String, AuthError>,
    ) -> Result<Issued, AuthError> {
        check_name(&request.sub)?;
        let (plan, days) =
            if request.trial { (Plan::Builder, TRIAL_DAYS) } else { (request.plan, request.days) };
        if !(1..=LONGEST_LIFE_DAYS).contains(&days) {
            return Err(AuthError::Other(format!(
                "a token cannot be valid for {days} days: give 1 to {LONGEST_LIFE_DAYS}"
            )));
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
        let token = sign(&claims)?;
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

    /// Returns all tokens that were issued here, oldest first.
    pub fn list(&self) -> Result<Vec<TokenEntry>, AuthError> {
        self.journal.issued()
    }

    /// Revokes a token by its id. Running services refuse it once this returns.
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

    /// Like [`Tokens::verify`], at the time `now` in UNIX seconds.
    pub fn verify_at(&self, token: &str, now: u64) -> Result<Arc<Claims>, TokenError> {
        if token.len() > LONGEST_TOKEN {
            return Err(TokenError::Refused("the token is longer than 8 KiB"));
        }
        let cached = self.verified.read().get(token).cloned();
        let claims = match &cached {
            Some(claims) => Arc::clone(claims),
            None => {
                self.learn_own_key(token);
                Arc::new(self.keys.read().open(token)?)
            }
        };
        self.check(&claims, now)?;
        if cached.is_none() {
            let mut verified = self.verified.write();
            if verified.len() >= MAX_CACHED_TOKENS {
                verified.clear();
            }
            verified.insert(token.into(), Arc::clone(&claims));
        }
        Ok(claims)
    }

    /// Whether verifying the token is expensive: it is not cached, and its issuer has a public key.
    pub fn is_costly(&self, token: &str) -> bool {
        token.len() <= LONGEST_TOKEN
            && !self.verified.read().contains_key(token)
            && self.keys.read().is_costly(token)
    }

    /// Adds the key of the data directory once a token names it: it may have been made since the start. Otherwise the
    /// token is refused as one of an unknown key.
    fn learn_own_key(&self, token: &str) {
        let unknown = self.keys.read().unknown(token).filter(|kid| is_public_key(kid));
        let Some(kid) = unknown else { return };
        let own = DirectoryKey::existing(&self.directory);
        let is_own = own.is_ok_and(|own| own.is_some_and(|own| own.public() == kid));
        if let Some(key) = PublicKey::of_directory(&kid).filter(|_| is_own)
            && let Err(error) = self.keys.write().add(&key)
        {
            // Another request has added it meanwhile, or the log says why its tokens are refused.
            tracing::debug!("{error}");
        }
    }

    fn check(&self, claims: &Claims, now: u64) -> Result<(), TokenError> {
        if claims.iss != ISSUER {
            return Err(TokenError::Refused("the token's issuer is not this service"));
        }
        if claims.aud != self.audience {
            return Err(TokenError::Refused("the token is for another network"));
        }
        for (name, value) in [("sub", &claims.sub), ("jti", &claims.jti)] {
            if check_name(value).is_err() {
                return Err(TokenError::Claims(format!("`{name}` is empty or not a name")));
            }
        }
        if claims.exp.saturating_add(LEEWAY_SECONDS) < now {
            return Err(TokenError::Refused("the token has expired"));
        }
        let valid_from = claims.iat.max(claims.nbf.unwrap_or(0));
        if valid_from > now.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::Refused("the token is not valid yet"));
        }
        match self.journal.revoked_at(&claims.jti) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(TokenError::Refused("the token is revoked")),
            Err(error) => Err(TokenError::Unverifiable(error)),
        }
    }
}

/// Returns the 32-byte key that authenticates compiled programs. Creates the key and the directory
/// of secrets if they are missing.
pub fn code_key(directory: &Path) -> Result<[u8; 32], AuthError> {
    secret::prepare_directory(directory)?;
    secret::code_key(directory)
}

/// Returns the 32-byte key that encrypts webhook secrets in the store. Creates the key and the
/// directory of secrets if they are missing.
pub fn webhook_key(directory: &Path) -> Result<[u8; 32], AuthError> {
    secret::prepare_directory(directory)?;
    secret::webhook_key(directory)
}

/// Returns all tokens that were issued in a directory of secrets, oldest first. Changes and creates
/// nothing.
///
/// # Errors
/// When there is a key without a list, or a file cannot be read.
pub fn issued(directory: &Path) -> Result<Vec<TokenEntry>, AuthError> {
    if !secret::exists(directory)? {
        return Ok(Vec::new());
    }
    journal::check(directory)?;
    Journal::open(directory)?.issued()
}

/// Returns the ids of the tokens that are revoked in a directory of secrets, each with the UNIX time in seconds.
/// Changes and creates nothing.
///
/// # Errors
/// When the list cannot be read.
pub fn revocations(directory: &Path) -> Result<BTreeMap<String, u64>, AuthError> {
    if secret::exists(directory)? {
        journal::check(directory)?;
    } else if !journal::exists(directory)? {
        return Ok(BTreeMap::new());
    }
    // A reader that has issued no token has the list that it has taken over, and no key.
    Journal::open(directory)?.revocations()
}

/// Revokes tokens in a directory of secrets that were revoked elsewhere. Creates the directory and the list if they are
/// missing.
///
/// # Errors
/// When the list cannot be written.
pub fn take_over(directory: &Path, revoked: &BTreeMap<String, u64>) -> Result<(), AuthError> {
    if revoked.is_empty() {
        return Ok(());
    }
    secret::prepare_directory(directory)?;
    journal::create(directory)?;
    let journal = Journal::open(directory)?;
    let known = journal.revocations()?;
    let mut lines = Vec::new();
    for (jti, at) in revoked.iter().filter(|(jti, _)| !known.contains_key(*jti)) {
        check_name(jti)?;
        lines.push(Line::Revoked { jti: jti.clone(), at: *at });
    }
    if lines.is_empty() { Ok(()) } else { journal.append_all(&lines) }
}

/// Returns one message for each damage in a directory of secrets. Changes and creates nothing.
///
/// # Errors
/// When an existing file cannot be read at all.
pub fn problems(directory: &Path) -> Result<Vec<String>, AuthError> {
    let key = secret::problem(directory)?;
    let list = if secret::exists(directory)? {
        journal::check(directory).err().map(|missing| missing.to_string())
    } else {
        None
    };
    Ok(key.into_iter().chain(list).chain(journal::problems(directory)?).collect())
}

fn check_name(name: &str) -> Result<(), AuthError> {
    let fits = !name.is_empty() && name.chars().count() <= LONGEST_NAME;
    if fits && !name.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(AuthError::Other(format!(
            "'{}' is not a name: give 1 to {LONGEST_NAME} characters without control characters",
            orrery_ledger::domain::excerpt(name)
        )))
    }
}

fn unix_now() -> u64 {
    // With a clock before 1970, every token is "not valid yet", which is the safe outcome.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

#[cfg(test)]
mod tests;
