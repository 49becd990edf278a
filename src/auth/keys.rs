//! The keys that verify and sign tokens. Each key is bound to one algorithm. A token's header only
//! selects the key, never the algorithm.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};

use super::claims::Claims;
use super::error::{AuthError, TokenError};
use super::provider;

/// Algorithm of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicKeyAlgorithm {
    /// Ed25519 signatures (RFC 8037).
    EdDsa,
    /// RSASSA-PKCS1-v1_5 with SHA-256 (RFC 7518), with a modulus of 1024 to 8192 bits.
    Rs256,
}

/// A public key of another issuer, from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// Value of the `kid` header of the tokens that it verifies.
    pub kid: String,
    /// The only algorithm that is accepted with it.
    pub algorithm: PublicKeyAlgorithm,
    /// The key in PEM (`BEGIN PUBLIC KEY`).
    pub pem: String,
    /// Required prefix of the `sub` of its tokens; empty when it may issue tokens for any owner.
    pub sub_prefix: String,
}

/// Sizes of the moduli with which ring verifies RS256, in bits.
const RSA_BITS: RangeInclusive<usize> = 1024..=8192;

/// Returns the number of bits of the modulus of an RSA public key in DER (RFC 8017, appendix A.1.1).
fn modulus_bits(der: &[u8]) -> Option<usize> {
    let modulus = der_value(0x02, der_value(0x30, der)?)?;
    let zero_bytes = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(zero_bytes)?;
    Some((modulus.len() - zero_bytes) * 8 - first.leading_zeros() as usize)
}

/// Returns what the first value in the bytes contains, if it has that tag (X.690, section 8.1).
fn der_value(tag: u8, der: &[u8]) -> Option<&[u8]> {
    let (&[found, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match length {
        0..0x80 => (usize::from(length), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let longer =
                |length: usize, byte: &u8| length.checked_mul(256)?.checked_add(usize::from(*byte));
            (bytes.iter().try_fold(0, longer)?, rest)
        }
    };
    rest.get(..length).filter(|_| found == tag)
}

/// A key with the only algorithm that is accepted with it.
struct PinnedKey {
    key: DecodingKey,
    validation: Validation,
    sub_prefix: String,
}

impl PinnedKey {
    fn new(key: DecodingKey, algorithm: Algorithm, sub_prefix: &str) -> Self {
        let mut validation = Validation::new(algorithm);
        // `Tokens::check` checks the claims, with a clock that tests can set.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        Self { key, validation, sub_prefix: sub_prefix.to_owned() }
    }
}

/// All keys that verify tokens, and the key that signs them.
pub(super) struct KeyRing {
    signing: EncodingKey,
    /// Verifies tokens without a `kid` header, which are those issued here.
    own: PinnedKey,
    others: HashMap<String, PinnedKey>,
}

impl KeyRing {
    /// Creates the ring with the service's own key.
    pub(super) fn new(secret: &[u8]) -> Self {
        provider::install();
        Self {
            signing: EncodingKey::from_secret(secret),
            own: PinnedKey::new(DecodingKey::from_secret(secret), Algorithm::HS256, ""),
            others: HashMap::new(),
        }
    }

    /// Adds a public key.
    pub(super) fn add(&mut self, public: &PublicKey) -> Result<(), AuthError> {
        let pem = public.pem.as_bytes();
        let (parsed, algorithm) = match public.algorithm {
            PublicKeyAlgorithm::EdDsa => (DecodingKey::from_ed_pem(pem), Algorithm::EdDSA),
            PublicKeyAlgorithm::Rs256 => (DecodingKey::from_rsa_pem(pem), Algorithm::RS256),
        };
        let kid = public.kid.clone();
        let unreadable =
            |why| AuthError::Other(format!("the public key '{kid}' cannot be read: {why}"));
        let key = parsed.map_err(|error| {
            unreadable(format!("give a PEM public key of its algorithm ({error})"))
        })?;
        if algorithm == Algorithm::RS256 {
            let bits = key.try_get_as_bytes().ok().and_then(modulus_bits).unwrap_or(0);
            // As ring counts them.
            if !RSA_BITS.contains(&bits.next_multiple_of(8)) {
                let (least, most) = (RSA_BITS.start(), RSA_BITS.end());
                return Err(unreadable(format!(
                    "its modulus has {bits} bits: give an RSA public key of {least} to {most} bits"
                )));
            }
        }
        let pinned = PinnedKey::new(key, algorithm, &public.sub_prefix);
        if self.others.insert(kid.clone(), pinned).is_some() {
            return Err(AuthError::Other(format!(
                "the key id '{kid}' is given twice: give every public key an id of its own"
            )));
        }
        Ok(())
    }

    /// Returns the `kid` of a token if it has one that no key here has.
    pub(super) fn unknown(&self, token: &str) -> Option<String> {
        let kid = jsonwebtoken::decode_header(token).ok()?.kid?;
        (!self.others.contains_key(&kid)).then_some(kid)
    }

    /// Signs claims with the service's own key.
    pub(super) fn sign(&self, claims: &Claims) -> Result<String, AuthError> {
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &self.signing)
            .map_err(|error| AuthError::Other(format!("the token cannot be signed: {error}")))
    }

    /// Whether verifying the token needs a public key, which costs far more than the service's own.
    pub(super) fn is_costly(&self, token: &str) -> bool {
        let header = jsonwebtoken::decode_header(token).ok();
        header.and_then(|header| header.kid).is_some_and(|kid| self.others.contains_key(&kid))
    }

    /// Verifies the form and the signature of a token, and that its key may issue tokens for its
    /// owner. Returns the claims, which are not checked any further.
    pub(super) fn open(&self, token: &str) -> Result<Claims, TokenError> {
        let malformed = || TokenError::Refused("the token is not a JWT of three base64url parts");
        let header = jsonwebtoken::decode_header(token).map_err(|_| malformed())?;
        if header.crit.is_some() {
            // A token with a critical extension that is not supported is invalid (RFC 7515, section
            // 4.1.11).
            return Err(malformed());
        }
        let pinned = match &header.kid {
            None => &self.own,
            Some(kid) => self.others.get(kid).ok_or(TokenError::Refused(
                "the token names a key that this service does not know",
            ))?,
        };
        match jsonwebtoken::decode::<Claims>(token, &pinned.key, &pinned.validation) {
            Ok(data) if !data.claims.sub.starts_with(&pinned.sub_prefix) => {
                Err(TokenError::Refused("the token's key may not issue tokens for this owner"))
            }
            Ok(data) => Ok(data.claims),
            Err(error) => Err(match error.kind() {
                ErrorKind::InvalidAlgorithm => {
                    TokenError::Refused("the token is not signed with the algorithm of its key")
                }
                ErrorKind::InvalidSignature => {
                    TokenError::Refused("the token's signature is wrong")
                }
                ErrorKind::Json(error) => TokenError::Claims(without_position(error)),
                _ => malformed(),
            }),
        }
    }
}

/// Returns the message of the JSON parser without "at line 1 column 7", which is meaningless for a
/// token.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
