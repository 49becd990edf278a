//! The key of a data directory, with which it signs what it writes elsewhere: Ed25519 (RFC 8032).

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde_json::json;

use super::claims::Claims;
use super::error::AuthError;
use super::keys::{PublicKey, PublicKeyAlgorithm};
use super::secret;

/// Length of a public key in bytes.
const PUBLIC_BYTES: usize = 32;
/// What precedes the bytes of a public key in DER (RFC 8410, section 4).
const DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The key of a data directory. Its `Debug` output shows the public half alone.
pub struct DirectoryKey(Ed25519KeyPair);

impl std::fmt::Debug for DirectoryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectoryKey({})", self.public())
    }
}

impl DirectoryKey {
    /// Reads the key in a directory of secrets; `None` when there is none yet.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn existing(directory: &Path) -> Result<Option<Self>, AuthError> {
        secret::existing_directory_key(directory)?.map(|seed| Self::of(&seed)).transpose()
    }

    /// Reads the key in a directory of secrets, and creates both first if there is none.
    ///
    /// # Errors
    /// When it cannot be read or created, or is damaged.
    pub fn open(directory: &Path) -> Result<Self, AuthError> {
        secret::prepare_directory(directory)?;
        Self::of(&secret::directory_key(directory)?)
    }

    fn of(seed: &[u8; secret::SECRET_BYTES]) -> Result<Self, AuthError> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(Self).map_err(|_| {
            AuthError::Other("the key of the data directory cannot be used".to_owned())
        })
    }

    /// Returns the public half, in hexadecimal.
    pub fn public(&self) -> String {
        hex::encode(self.0.public_key())
    }

    /// Signs a message, and returns the signature in hexadecimal.
    pub fn sign(&self, message: &[u8]) -> String {
        hex::encode(self.0.sign(message))
    }

    /// Signs the claims of a token (RFC 8037), which whoever has the public half verifies: its `kid` is that half.
    ///
    /// # Errors
    /// When the claims cannot be written as JSON.
    pub(super) fn token(&self, claims: &Claims) -> Result<String, AuthError> {
        let failed = |error| AuthError::Other(format!("the token cannot be signed: {error}"));
        let header = json!({ "typ": "JWT", "alg": "EdDSA", "kid": self.public() }).to_string();
        let claims = serde_json::to_vec(claims).map_err(failed)?;
        let (header, claims) = (URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signed = format!("{header}.{claims}");
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        Ok(format!("{signed}.{signature}"))
    }
}

impl PublicKey {
    /// Returns the key with which tokens are verified that the data directory with this key has signed; `None` when
    /// the text is no public key in hexadecimal.
    pub fn of_directory(public: &str) -> Option<Self> {
        let bytes = hex::decode(public).ok().filter(|_| is_public_key(public))?;
        let der = STANDARD.encode([&DER[..], &bytes].concat());
        Some(Self {
            kid: public.to_owned(),
            algorithm: PublicKeyAlgorithm::EdDsa,
            pem: format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n"),
            sub_prefix: String::new(),
        })
    }
}

/// Whether a text is a public key in hexadecimal, in lower case.
pub fn is_public_key(text: &str) -> bool {
    text.len() == 2 * PUBLIC_BYTES
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Whether a signature of a message is that of the key with this public half. Anything that is not hexadecimal
/// is not.
pub fn is_signed_by(public: &str, message: &[u8], signature: &str) -> bool {
    let (Ok(public), Ok(signature)) = (hex::decode(public), hex::decode(signature)) else {
        return false;
    };
    UnparsedPublicKey::new(&ED25519, public).verify(message, &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_one_key_and_message() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(DirectoryKey::existing(one.path()).unwrap().is_none());
        let key = DirectoryKey::open(one.path()).unwrap();
        let again = DirectoryKey::existing(one.path()).unwrap().unwrap();
        assert_eq!(again.public(), key.public());
        let stranger = DirectoryKey::open(other.path()).unwrap();
        assert!(is_public_key(&key.public()) && key.public() != stranger.public());
        let signature = key.sign(b"words");
        assert!(is_signed_by(&key.public(), b"words", &signature));
        assert!(!is_signed_by(&key.public(), b"word", &signature));
        assert!(!is_signed_by(&stranger.public(), b"words", &signature));
        for wrong in ["", "zz", &signature[2..]] {
            assert!(!is_signed_by(&key.public(), b"words", wrong), "{wrong}");
            assert!(!is_signed_by(wrong, b"words", &signature), "{wrong}");
        }
        assert!(
            !format!("{key:?}").contains(
                &std::fs::read_to_string(one.path().join("directory-key")).unwrap()[..64]
            )
        );
    }
}
