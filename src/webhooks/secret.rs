//! Secrets that sign deliveries: generated, encrypted for the store, and never displayed.
//!
//! In the store, a secret is encrypted with ChaCha20-Poly1305 (RFC 8439) under a key from the
//! directory of secrets, so that a copy of the store alone reveals none. The subscription's tag is
//! authenticated with it (associated data): an encrypted secret cannot be decrypted for another
//! subscription.

use std::fmt;

use rand::RngCore;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use serde::{Deserialize, Serialize};

use super::WebhookError;

/// Prefix of generated secrets, from Standard Webhooks.
pub const SECRET_PREFIX: &str = "whsec_";
/// Length of a generated secret, in bytes.
const GENERATED_BYTES: usize = 32;

/// Longest secret that a user may choose, in bytes.
pub const LONGEST_SECRET: usize = 512;

/// A secret in the form that the receiver has. Its `Debug` output does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Checks and wraps a secret that a user chose.
    ///
    /// # Errors
    /// [`WebhookError::Value`] when it is empty or too long; the message does not contain the
    /// secret.
    pub fn chosen(text: String) -> Result<Self, WebhookError> {
        let problem = match text.len() {
            0 => "is empty: give a secret, or leave it out to get one".to_owned(),
            1..=LONGEST_SECRET => return Ok(Self(text)),
            long => format!("is {long} bytes long: give {LONGEST_SECRET} at the most"),
        };
        Err(WebhookError::Value { name: "webhook_secret", problem })
    }

    /// Generates a secret: `whsec_` and 64 hexadecimal digits.
    pub fn generate() -> Self {
        let mut bytes = [0; GENERATED_BYTES];
        rand::rng().fill_bytes(&mut bytes);
        Self(format!("{SECRET_PREFIX}{}", hex::encode(bytes)))
    }

    /// Returns the secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The secrets of a subscription as they are stored: encrypted, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSecrets {
    /// The present one.
    pub secret: String,
    /// Those before it that sign beside it for a while, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub previous_secrets: Vec<Previous<String>>,
}

/// A secret that another one has taken the place of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous<S> {
    /// The secret.
    pub secret: S,
    /// UNIX time in milliseconds from which on it signs nothing.
    pub until: u64,
}

/// The secrets of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets {
    /// The present one.
    pub present: Secret,
    /// Those before it that sign beside it for a while, oldest first.
    pub previous: Vec<Previous<Secret>>,
}

impl Secrets {
    /// Returns the secrets that sign at `now`, in UNIX milliseconds, oldest first.
    pub fn signing(&self, now: u64) -> impl Iterator<Item = &Secret> {
        let previous = self.previous.iter().filter(move |it| now < it.until);
        previous.map(|it| &it.secret).chain([&self.present])
    }
}

/// Encrypts secrets for the store, and decrypts them.
pub struct Sealer(LessSafeKey);

impl Sealer {
    /// Returns a sealer that uses this key.
    ///
    /// # Errors
    /// [`WebhookError::Seal`]
    pub fn new(key: &[u8; 32]) -> Result<Self, WebhookError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| WebhookError::Seal)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Encrypts a secret of the subscription with this tag. Returns nonce and ciphertext in
    /// hexadecimal digits.
    ///
    /// # Errors
    /// [`WebhookError::Seal`]
    pub fn seal(&self, tag: &str, secret: &Secret) -> Result<String, WebhookError> {
        self.seal_text(tag, &secret.0)
    }

    /// Encrypts the address that the subscription with this tag sends to.
    ///
    /// # Errors
    /// [`WebhookError::Seal`]
    pub fn seal_endpoint(&self, tag: &str, endpoint: &str) -> Result<String, WebhookError> {
        self.seal_text(&of_endpoint(tag), endpoint)
    }

    /// Decrypts the address that the subscription with this tag sends to, as [`Self::open`] does secrets.
    pub fn open_endpoint(&self, tag: &str, sealed: &str) -> Option<String> {
        self.open(&of_endpoint(tag), sealed).map(|Secret(endpoint)| endpoint)
    }

    fn seal_text(&self, bound_to: &str, text: &str) -> Result<String, WebhookError> {
        // One key encrypts far fewer than the 2^32 secrets up to which random nonces are safe.
        let mut nonce = [0; NONCE_LEN];
        rand::rng().fill_bytes(&mut nonce);
        let mut sealed = text.as_bytes().to_vec();
        let under = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(under, Aad::from(bound_to.as_bytes()), &mut sealed)
            .map_err(|_| WebhookError::Seal)?;
        Ok(format!("{}{}", hex::encode(nonce), hex::encode(sealed)))
    }

    /// Encrypts the secrets of the subscription with this tag.
    ///
    /// # Errors
    /// [`WebhookError::Seal`]
    pub fn seal_all(&self, tag: &str, secrets: &Secrets) -> Result<SealedSecrets, WebhookError> {
        let seal = |it: &Previous<Secret>| {
            let secret = self.seal(tag, &it.secret)?;
            Ok::<_, WebhookError>(Previous { secret, until: it.until })
        };
        Ok(SealedSecrets {
            secret: self.seal(tag, &secrets.present)?,
            previous_secrets: secrets.previous.iter().map(seal).collect::<Result<_, _>>()?,
        })
    }

    /// Decrypts the secrets of the subscription with this tag; `None` when the present one cannot be.
    pub fn open_all(&self, tag: &str, sealed: &SealedSecrets) -> Option<Secrets> {
        let open = |it: &Previous<String>| {
            Some(Previous { secret: self.open(tag, &it.secret)?, until: it.until })
        };
        Some(Secrets {
            present: self.open(tag, &sealed.secret)?,
            previous: sealed.previous_secrets.iter().filter_map(open).collect(),
        })
    }

    /// Decrypts a secret; `None` when it was encrypted under another key or for another
    /// subscription, or is damaged.
    pub fn open(&self, tag: &str, sealed: &str) -> Option<Secret> {
        let mut bytes = hex::decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.0.open_in_place(nonce, Aad::from(tag.as_bytes()), sealed).ok()?;
        String::from_utf8(opened.to_vec()).ok().map(Secret)
    }
}

/// What the sealed address of the subscription with this tag is bound to, so that it opens as nothing else.
fn of_endpoint(tag: &str) -> String {
    format!("{tag}/endpoint")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_only_with_its_tag_and_key() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let secret = Secret::chosen("correct horse".to_owned()).unwrap();
        let sealed = sealer.seal("tag", &secret).unwrap();
        assert!(!sealed.contains(&hex::encode("horse")));
        assert_ne!(sealer.seal("tag", &secret).unwrap(), sealed);
        assert_eq!(sealer.open("tag", &sealed), Some(secret));
        assert_eq!(sealer.open("gat", &sealed), None);
        assert_eq!(Sealer::new(&[8; 32]).unwrap().open("tag", &sealed), None);
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            let other = if altered.as_bytes()[at] == b'0' { "1" } else { "0" };
            altered.replace_range(at..=at, other);
            assert_eq!(sealer.open("tag", &altered), None);
        }
        assert_eq!(sealer.open("tag", "00"), None);
        let endpoint = sealer.seal_endpoint("tag", "https://example.com/token").unwrap();
        let opened = sealer.open_endpoint("tag", &endpoint);
        assert_eq!(opened.as_deref(), Some("https://example.com/token"));
        assert_eq!(sealer.open("tag", &endpoint), None);
        assert_eq!(sealer.open_endpoint("tag", &sealed), None);
    }

    #[test]
    fn generated_secrets_are_unique_and_never_displayed() {
        let (one, other) = (Secret::generate(), Secret::generate());
        assert_ne!(one, other);
        let digits = one.reveal().strip_prefix("whsec_").unwrap();
        assert!(digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit()));
        assert!(!format!("{one:?}").contains(&digits[..8]));
        assert!(Secret::chosen(String::new()).is_err());
        let long = "s".repeat(LONGEST_SECRET + 1);
        let error = Secret::chosen(long.clone()).unwrap_err().to_string();
        assert!(error.contains("513 bytes") && !error.contains("sss"), "{error}");
        assert!(Secret::chosen(long[1..].to_owned()).is_ok());
    }
}
