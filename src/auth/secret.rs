//! The directory of secrets, with the keys that sign tokens and snapshots, authenticate compiled programs
//! and seal webhook secrets. Handles files and their modes; does not depend on tokens.
//!
//! A key's file holds 64 hexadecimal digits, a space and 8 more digits: the first 4 bytes of the
//! key's SHA-256, so that a damaged key is not taken for another key. A key written by hand may
//! omit them.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rand::RngCore;
use sha2::{Digest, Sha256};

use super::error::AuthError;

/// Length of an HS256 key in bytes: that of its digest (RFC 7518, section 3.2).
pub(super) const SECRET_BYTES: usize = 32;

const SECRET_FILE: &str = "token-signing-key";
const CODE_KEY_FILE: &str = "compiled-code-key";
const WEBHOOK_KEY_FILE: &str = "webhook-secrets-key";
const DIRECTORY_KEY_FILE: &str = "directory-key";

/// Creates `directory` if necessary, and restricts access to its owner.
pub(super) fn prepare_directory(directory: &Path) -> Result<(), AuthError> {
    let failed = |error| AuthError::io("cannot prepare the directory", directory, error);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    fs::set_permissions(directory, Permissions::from_mode(0o700)).map_err(failed)
}

/// Returns the path of a directory's signing key.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(SECRET_FILE)
}

/// Whether the directory has a signing key.
pub(super) fn exists(directory: &Path) -> Result<bool, AuthError> {
    let path = path(directory);
    path.try_exists().map_err(|error| AuthError::io("cannot look for", &path, error))
}

/// Reads the signing key, and creates it first if there is none.
pub(super) fn load_or_create(directory: &Path) -> Result<[u8; SECRET_BYTES], AuthError> {
    load_or_create_named(directory, SECRET_FILE)
}

/// Reads the key for compiled code, and creates it first if there is none. A damaged key is
/// replaced, because the code that it authenticates can be compiled again.
pub(super) fn code_key(directory: &Path) -> Result<[u8; SECRET_BYTES], AuthError> {
    match load_or_create_named(directory, CODE_KEY_FILE) {
        Err(AuthError::DamagedSecret(path)) => {
            tracing::warn!("{} is damaged; programs are compiled again", path.display());
            fs::remove_file(&path)
                .map_err(|error| AuthError::io("cannot remove the damaged key", &path, error))?;
            load_or_create_named(directory, CODE_KEY_FILE)
        }
        read => read,
    }
}

/// Reads the key for webhook secrets, and creates it first if there is none.
pub(super) fn webhook_key(directory: &Path) -> Result<[u8; SECRET_BYTES], AuthError> {
    load_or_create_named(directory, WEBHOOK_KEY_FILE).map_err(|error| match error {
        AuthError::DamagedSecret(path) => AuthError::Other(format!(
            "{} does not hold a key of 64 hexadecimal digits: restore it from a backup, or remove it, \
             after which every webhook subscription must be created again",
            path.display()
        )),
        other => other,
    })
}

/// Reads the key of the data directory, and creates it first if there is none.
pub(super) fn directory_key(directory: &Path) -> Result<[u8; SECRET_BYTES], AuthError> {
    load_or_create_named(directory, DIRECTORY_KEY_FILE).map_err(damaged_directory_key)
}

/// Reads the key of the data directory; `None` when there is none.
pub(super) fn existing_directory_key(
    directory: &Path,
) -> Result<Option<[u8; SECRET_BYTES]>, AuthError> {
    let path = directory.join(DIRECTORY_KEY_FILE);
    match path.try_exists() {
        Ok(false) => Ok(None),
        Ok(true) => load(&path).map(Some).map_err(damaged_directory_key),
        Err(error) => Err(AuthError::io("cannot look for", &path, error)),
    }
}

fn damaged_directory_key(error: AuthError) -> AuthError {
    match error {
        AuthError::DamagedSecret(path) => AuthError::Other(format!(
            "{} does not hold a key of 64 hexadecimal digits: restore it from a backup, or remove it, after \
             which snapshots go to another place",
            path.display()
        )),
        other => other,
    }
}

fn load_or_create_named(directory: &Path, name: &str) -> Result<[u8; SECRET_BYTES], AuthError> {
    let path = directory.join(name);
    create_once(directory, &path)
        .map_err(|error| AuthError::io("cannot create the key", &path, error))?;
    load(&path)
}

fn load(path: &Path) -> Result<[u8; SECRET_BYTES], AuthError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        read => read.map_err(|error| AuthError::io("cannot read the key", path, error))?,
    };
    parse(&text).ok_or_else(|| AuthError::DamagedSecret(path.to_owned()))
}

fn parse(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let mut words = text.split_ascii_whitespace();
    let mut secret = [0; SECRET_BYTES];
    hex::decode_to_slice(words.next()?, &mut secret).ok()?;
    let fits = words.next().is_none_or(|check| check.eq_ignore_ascii_case(&checksum(&secret)));
    (fits && words.next().is_none()).then_some(secret)
}

fn checksum(secret: &[u8; SECRET_BYTES]) -> String {
    hex::encode(&Sha256::digest(secret)[..4])
}

/// Returns what is wrong with a directory's signing key; `None` when it is valid or there is none.
pub(super) fn problem(directory: &Path) -> Result<Option<String>, AuthError> {
    if !exists(directory)? {
        return Ok(None);
    }
    match load(&path(directory)) {
        Ok(_) => Ok(None),
        Err(damaged @ AuthError::DamagedSecret(_)) => Ok(Some(damaged.to_string())),
        Err(error) => Err(error),
    }
}

/// Writes a new key to a temporary file and hard-links it to `path`. The link fails when the key
/// exists, so of two processes that start at once only one creates the key, and both read the same
/// complete key.
fn create_once(directory: &Path, path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return fs::set_permissions(path, Permissions::from_mode(0o600));
    }
    let mut random = rand::rng();
    let mut secret = [0u8; SECRET_BYTES];
    random.fill_bytes(&mut secret);
    let draft = directory.join(format!("draft.{:016x}", random.next_u64()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = writeln!(file, "{} {}", hex::encode(secret), checksum(&secret));
    let written = written.and_then(|()| file.sync_all());
    let linked = written.and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    fs::remove_file(&draft)?;
    linked?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_first_starts_create_one_private_key() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("secrets");
        prepare_directory(&directory).unwrap();
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| load_or_create(&directory).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| key == &keys[0]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join(SECRET_FILE)), 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "drafts are removed");
    }

    #[test]
    fn refuses_a_damaged_key() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "abcd", &"zz".repeat(32), &"ab".repeat(33)] {
            fs::write(directory.path().join(SECRET_FILE), text).unwrap();
            let error = load_or_create(directory.path()).unwrap_err();
            assert!(matches!(error, AuthError::DamagedSecret(_)), "{text}");
            assert!(problem(directory.path()).unwrap().is_some());
        }
        fs::write(directory.path().join(SECRET_FILE), "ab".repeat(32)).unwrap();
        assert_eq!(load_or_create(directory.path()).unwrap(), [0xab; 32], "a key given by hand");
    }

    #[test]
    fn a_damaged_code_key_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let key = code_key(directory.path()).unwrap();
        assert_eq!(code_key(directory.path()).unwrap(), key);
        assert_ne!(load_or_create(directory.path()).unwrap(), key);
        let path = directory.path().join(CODE_KEY_FILE);
        fs::write(&path, "abcd").unwrap();
        let other = code_key(directory.path()).unwrap();
        assert_ne!(other, key);
        assert_eq!(code_key(directory.path()).unwrap(), other);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_webhook_key_is_refused_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let key = webhook_key(directory.path()).unwrap();
        assert_eq!(webhook_key(directory.path()).unwrap(), key);
        assert_ne!(code_key(directory.path()).unwrap(), key);
        fs::write(directory.path().join(WEBHOOK_KEY_FILE), "abcd").unwrap();
        let error = webhook_key(directory.path()).unwrap_err().to_string();
        assert!(error.contains("restore it from a backup"), "{error}");
    }

    #[test]
    fn flipped_bits_in_a_key_are_detected() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(problem(directory.path()).unwrap(), None, "there is none yet");
        let key = load_or_create(directory.path()).unwrap();
        assert_eq!(problem(directory.path()).unwrap(), None);
        let path = directory.path().join(SECRET_FILE);
        let bytes = fs::read(&path).unwrap();
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&path, &flipped).unwrap();
            let harmless = load(&path).is_ok_and(|found| found == key);
            assert_eq!(problem(directory.path()).unwrap().is_none(), harmless, "{at} {bit}");
        }
    }
}
