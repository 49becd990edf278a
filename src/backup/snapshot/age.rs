//! Encryption in the format of `age`, version 1 (<https://age-encryption.org/v1>), with a passphrase: what this
//! writes, `age --decrypt` opens, and the reverse.
//!
//! All files of one place have the same header: deriving a key from a passphrase takes a second on purpose,
//! and a snapshot has thousands of files. The format allows that: the key of a file's content is derived from
//! the key in the header and 16 random bytes before the content, so that no two files share one.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use rand::RngCore;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};

use crate::backup::BackupError;

/// First line of a file.
const VERSION: &str = "age-encryption.org/v1";
/// Beginning of the line with the parameters of the key derivation.
const STANZA: &str = "-> scrypt ";
/// Beginning of the last line of the header.
const MAC: &str = "---";
/// What precedes the salt in the key derivation.
const SALT_LABEL: &[u8] = b"age-encryption.org/v1/scrypt";
/// Length of the salt, of the key in the header and of the nonce before the content, in bytes.
const SHORT: usize = 16;
/// Length of an authentication tag, in bytes.
const TAG: usize = 16;
/// Number of bytes of the content that are encrypted together.
const CHUNK: usize = 64 << 10;
/// Cost of the key derivation, as the logarithm of its number of rounds: that of `age` itself, 256 MiB.
const COST: u8 = 18;
/// Cost for a key that protects nothing. It has as many digits, so that the header is as long.
const CHEAP: u8 = 10;
/// Largest cost that is accepted, 1 GiB: whoever can write the file could ask for any amount of memory.
const MOST_COST: u8 = 20;
/// Maximum length of a header in bytes: the only one that is written has 150.
const LONGEST_HEADER: usize = 512;
/// Fewest characters of a passphrase that encrypts.
const FEWEST_CHARACTERS: usize = 12;

/// Base64 as `age` writes it.
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, NO_PAD);

/// A passphrase. Its `Debug` output does not contain it.
pub struct Passphrase(String);

impl Passphrase {
    /// Wraps a passphrase that decrypts.
    pub fn given(text: String) -> Self {
        Self(text)
    }

    /// Returns why the passphrase is too weak to encrypt with, if it is.
    pub fn weakness(&self) -> Option<String> {
        (self.0.chars().count() < FEWEST_CHARACTERS).then(|| {
            format!("the passphrase is too short: give at least {FEWEST_CHARACTERS} characters")
        })
    }
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase(…)")
    }
}

/// Why a file cannot be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// The header is not one that this program writes.
    #[error("it is not encrypted with a passphrase in the format of age")]
    Header,
    /// The derivation of the key asks for too much memory.
    #[error("its key derivation asks for more than 1 GiB of memory")]
    Cost,
    /// The passphrase does not fit.
    #[error("the passphrase is not the one that it was encrypted with")]
    Passphrase,
    /// The content was changed.
    #[error("its content differs from what was encrypted")]
    Content,
}

/// Encrypts and decrypts the files of one place.
pub struct Sealing {
    header: Vec<u8>,
    file_key: [u8; SHORT],
}

impl Sealing {
    /// Begins with a new key, which this passphrase opens.
    ///
    /// # Errors
    /// When the passphrase is too short.
    pub fn begin(passphrase: &Passphrase) -> Result<Self, BackupError> {
        if let Some(weakness) = passphrase.weakness() {
            return Err(BackupError::Other(weakness));
        }
        let (mut salt, mut file_key) = ([0; SHORT], [0; SHORT]);
        rand::rng().fill_bytes(&mut salt);
        rand::rng().fill_bytes(&mut file_key);
        let failed = |_| BackupError::Other("the key cannot be encrypted".to_owned());
        Self::with(passphrase, salt, file_key, COST).map_err(failed)
    }

    /// Returns a key under no passphrase, to compute lengths and names that have the form of others.
    ///
    /// # Errors
    /// When the key cannot be encrypted.
    pub fn of_nobody() -> Result<Self, BackupError> {
        let mut file_key = [0; SHORT];
        rand::rng().fill_bytes(&mut file_key);
        let failed = |_| BackupError::Other("the key cannot be encrypted".to_owned());
        Self::with(&Passphrase(String::new()), [0; SHORT], file_key, CHEAP).map_err(failed)
    }

    fn with(
        passphrase: &Passphrase,
        salt: [u8; SHORT],
        file_key: [u8; SHORT],
        cost: u8,
    ) -> Result<Self, AgeError> {
        let key = derived(passphrase, &salt, cost)?;
        let mut wrapped = file_key.to_vec();
        let sealed =
            key.seal_in_place_append_tag(nonce([0; NONCE_LEN]), Aad::empty(), &mut wrapped);
        sealed.map_err(|_| AgeError::Header)?;
        let (salt, wrapped) = (BASE64.encode(salt), BASE64.encode(wrapped));
        let begin = format!("{VERSION}\n{STANZA}{salt} {cost}\n{wrapped}\n{MAC}");
        let mac = BASE64.encode(mac(&file_key, begin.as_bytes())?);
        Ok(Self { header: format!("{begin} {mac}\n").into_bytes(), file_key })
    }

    /// Reads the key in the header of an encrypted file.
    ///
    /// # Errors
    /// All of [`AgeError`] but [`AgeError::Content`].
    pub fn of(sealed: &[u8], passphrase: &Passphrase) -> Result<Self, AgeError> {
        let header = header_of(sealed).ok_or(AgeError::Header)?;
        let text = std::str::from_utf8(header).map_err(|_| AgeError::Header)?;
        let (salt, cost, wrapped) = parameters(text).ok_or(AgeError::Header)?;
        if !(1..=MOST_COST).contains(&cost) {
            return Err(AgeError::Cost);
        }
        let mut wrapped = wrapped;
        let key = derived(passphrase, &salt, cost)?;
        let opened = key.open_in_place(nonce([0; NONCE_LEN]), Aad::empty(), &mut wrapped);
        let opened = opened.map_err(|_| AgeError::Passphrase)?;
        let file_key = <[u8; SHORT]>::try_from(&*opened).map_err(|_| AgeError::Header)?;
        // The same key in the same form, so that the header of every file is compared as it is.
        let again = Self::with(passphrase, salt, file_key, cost)?;
        (again.header == header).then_some(again).ok_or(AgeError::Header)
    }

    /// Returns an encrypted file with this content.
    ///
    /// # Errors
    /// [`AgeError::Content`] when it is longer than the format allows.
    pub fn seal(&self, content: &[u8]) -> Result<Vec<u8>, AgeError> {
        let mut salt = [0; SHORT];
        rand::rng().fill_bytes(&mut salt);
        let key = self.content_key(&salt)?;
        let mut sealed = Vec::with_capacity(self.sealed_length(content.len()));
        sealed.extend_from_slice(&self.header);
        sealed.extend_from_slice(&salt);
        let chunks = content.len().div_ceil(CHUNK).max(1);
        for number in 0..chunks {
            let end = content.len().min((number + 1) * CHUNK);
            let chunk = &content[number * CHUNK..end];
            let from = sealed.len();
            sealed.extend_from_slice(chunk);
            let nonce = chunk_nonce(number, number + 1 == chunks);
            let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut sealed[from..]);
            sealed.extend_from_slice(tag.map_err(|_| AgeError::Content)?.as_ref());
        }
        Ok(sealed)
    }

    /// Returns the content of an encrypted file of the same place.
    ///
    /// # Errors
    /// [`AgeError::Content`].
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, AgeError> {
        let body = sealed.strip_prefix(&*self.header).ok_or(AgeError::Content)?;
        let (salt, body) = body.split_first_chunk::<SHORT>().ok_or(AgeError::Content)?;
        let key = self.content_key(salt)?;
        let mut content = Vec::with_capacity(body.len());
        let chunks = body.len().div_ceil(CHUNK + TAG);
        for (number, chunk) in body.chunks(CHUNK + TAG).enumerate() {
            let is_last = number + 1 == chunks;
            let mut chunk = chunk.to_vec();
            let opened = key.open_in_place(chunk_nonce(number, is_last), Aad::empty(), &mut chunk);
            let opened = opened.map_err(|_| AgeError::Content)?;
            if opened.is_empty() && number > 0 {
                return Err(AgeError::Content);
            }
            content.extend_from_slice(opened);
        }
        if chunks == 0 { Err(AgeError::Content) } else { Ok(content) }
    }

    /// Returns the length in bytes of an encrypted file with a content of this length.
    pub fn sealed_length(&self, content: usize) -> usize {
        let chunks = content.div_ceil(CHUNK).max(1);
        self.header.len() + SHORT + content + chunks * TAG
    }

    /// Returns a name for content with this hash: whoever does not know the key learns from it neither the hash nor
    /// whether it is that of something known.
    ///
    /// # Errors
    /// [`AgeError::Header`] when no key can be derived.
    pub fn name(&self, sha256: &[u8]) -> Result<String, AgeError> {
        let key = expanded(&self.file_key, &[], b"orrery object names")?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Ok(hex::encode(hmac::sign(&key, sha256)))
    }

    fn content_key(&self, salt: &[u8; SHORT]) -> Result<LessSafeKey, AgeError> {
        aead_key(&expanded(&self.file_key, salt, b"payload")?)
    }
}

/// Returns the part of a file before its content.
fn header_of(sealed: &[u8]) -> Option<&[u8]> {
    let begin = &sealed[..sealed.len().min(LONGEST_HEADER)];
    let mac = format!("\n{MAC} ");
    let at = begin.windows(mac.len()).position(|window| window == mac.as_bytes())?;
    let end = begin[at + 1..].iter().position(|byte| *byte == b'\n')?;
    Some(&begin[..at + 1 + end + 1])
}

/// Returns salt, cost and encrypted key of a header.
fn parameters(header: &str) -> Option<([u8; SHORT], u8, Vec<u8>)> {
    let rest = header.strip_prefix(VERSION)?.strip_prefix('\n')?.strip_prefix(STANZA)?;
    let (stanza, rest) = rest.split_once('\n')?;
    let (salt, cost) = stanza.split_once(' ')?;
    let (wrapped, _) = rest.split_once('\n')?;
    let salt = BASE64.decode(salt).ok()?.try_into().ok()?;
    let wrapped = BASE64.decode(wrapped).ok().filter(|it| it.len() == SHORT + TAG)?;
    Some((salt, cost.parse().ok()?, wrapped))
}

/// Derives the key that encrypts the key of the header.
fn derived(
    Passphrase(text): &Passphrase,
    salt: &[u8; SHORT],
    cost: u8,
) -> Result<LessSafeKey, AgeError> {
    // The format has these parameters: blocks of 1 KiB, no parallelism.
    let parameters = scrypt::Params::new(cost, 8, 1, 32).map_err(|_| AgeError::Cost)?;
    let salt = [SALT_LABEL, salt].concat();
    let mut key = [0; 32];
    scrypt::scrypt(text.as_bytes(), &salt, &parameters, &mut key).map_err(|_| AgeError::Cost)?;
    aead_key(&key)
}

fn aead_key(key: &[u8; 32]) -> Result<LessSafeKey, AgeError> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| AgeError::Header)?;
    Ok(LessSafeKey::new(key))
}

fn mac(file_key: &[u8], header: &[u8]) -> Result<hmac::Tag, AgeError> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &expanded(file_key, &[], b"header")?);
    Ok(hmac::sign(&key, header))
}

/// HKDF with SHA-256 (RFC 5869).
fn expanded(secret: &[u8], salt: &[u8], info: &[u8]) -> Result<[u8; 32], AgeError> {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let mut key = [0; 32];
    let info = [info];
    let filled = prk.expand(&info, hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut key));
    filled.map(|()| key).map_err(|_| AgeError::Header)
}

fn nonce(bytes: [u8; NONCE_LEN]) -> Nonce {
    Nonce::assume_unique_for_key(bytes)
}

/// Returns the nonce of a chunk: its number, and whether it is the last one.
fn chunk_nonce(number: usize, is_last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[3..NONCE_LEN - 1].copy_from_slice(&(number as u64).to_be_bytes());
    bytes[NONCE_LEN - 1] = u8::from(is_last);
    nonce(bytes)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// What `age --passphrase` 1.1.1 has made.
    const OF_AGE: &str = "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IHNjcnlwdCAybC9VRWtqRlNVMVRoVlVkZ3R3ajJBIDE4\
        CjlSZUYrV25xQ05HYnFPL0ptUG1LRjNrQlY2eGZZOG9aTmxNenR2dDAwNG8KLS0tIFFpZFNhMXBL\
        cGRhNzZXc3ltTlhWSnQwODF3eWhyaFJkSWliM0hQODkyVWcKYPY+V1sajOfSY+VUpw/8UfU0O6zF\
        0fTooNaqFLuzalAly4OX0YoCCUGe+lSqEdFfT3ky";

    fn passphrase() -> Passphrase {
        Passphrase::given("correct horse battery".to_owned())
    }

    /// A key that is derived quickly.
    fn cheap() -> Sealing {
        Sealing::with(&passphrase(), [7; SHORT], [9; SHORT], 2).unwrap()
    }

    #[test]
    fn a_file_of_age_is_opened() {
        let file = base64::engine::general_purpose::STANDARD.decode(OF_AGE).unwrap();
        let sealing = Sealing::of(&file, &passphrase()).unwrap();
        assert_eq!(sealing.open(&file).unwrap(), b"made by age itself\n");
        let other = Passphrase::given("another passphrase".to_owned());
        assert_eq!(Sealing::of(&file, &other).err(), Some(AgeError::Passphrase));
    }

    #[test]
    fn content_of_any_length_is_sealed_and_opened() {
        let sealing = cheap();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for length in [0, 1, 15, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 17] {
            let mut content = vec![0; length];
            random.fill(&mut content[..]);
            let sealed = sealing.seal(&content).unwrap();
            assert_eq!(sealed.len(), sealing.sealed_length(length), "{length}");
            assert_eq!(sealing.open(&sealed).unwrap(), content, "{length}");
            assert_ne!(sealed, sealing.seal(&content).unwrap(), "no two are encrypted alike");
            let again = Sealing::of(&sealed, &passphrase()).unwrap();
            assert_eq!(again.open(&sealed).unwrap(), content, "{length}");
        }
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let sealing = cheap();
        let sealed = sealing.seal(&[5; 40]).unwrap();
        for (at, bit) in (0..sealed.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = sealed.clone();
            changed[at] ^= 1 << bit;
            assert_eq!(sealing.open(&changed), Err(AgeError::Content), "byte {at}, bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(sealing.open(&sealed[..length]), Err(AgeError::Content), "{length} bytes");
        }
        let whole = sealing.seal(&vec![5; 2 * CHUNK]).unwrap();
        let cut = whole.len() - CHUNK - TAG;
        assert_eq!(sealing.open(&whole[..cut]), Err(AgeError::Content), "a chunk is missing");
        assert_eq!(sealing.open(&[&whole[..], b"x"].concat()), Err(AgeError::Content));
    }

    #[test]
    fn the_cost_of_a_header_is_bounded() {
        let sealed = cheap().seal(b"words").unwrap();
        let text = String::from_utf8_lossy(&sealed[..100]).into_owned();
        for (cost, expected) in [
            ("21", AgeError::Cost),
            ("63", AgeError::Cost),
            ("0", AgeError::Cost),
            ("256", AgeError::Header),
            ("", AgeError::Header),
            ("02", AgeError::Header),
        ] {
            let position = text.find(" 2\n").unwrap();
            let (before, after) = (&sealed[..position + 1], &sealed[position + 2..]);
            let changed = [before, cost.as_bytes(), after].concat();
            assert_eq!(Sealing::of(&changed, &passphrase()).err(), Some(expected), "{cost}");
        }
        for bytes in [&b""[..], b"age-encryption.org/v1\n", &[b'-'; 4096]] {
            assert_eq!(Sealing::of(bytes, &passphrase()).err(), Some(AgeError::Header));
        }
    }

    #[test]
    fn short_passphrases_do_not_encrypt() {
        assert!(Passphrase::given("eleven char".to_owned()).weakness().is_some());
        assert!(Passphrase::given("twelve chars".to_owned()).weakness().is_none());
        let debug = format!("{:?}", passphrase());
        assert!(!debug.contains("horse"), "{debug}");
    }
}
