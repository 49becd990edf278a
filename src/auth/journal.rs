//! The append-only file of issued and revoked tokens. Does not depend on signatures.
//!
//! Each line holds a JSON object, a tab and a checksum: the first 4 bytes of the SHA-256 of the
//! JSON, in hexadecimal. A line without a checksum is accepted, so that lines can be written by
//! hand. A writer holds the file's lock, and returns only after its line has been synced to disk. A
//! line that a crash cut short was therefore never acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::claims::{Plan, Scope};
use super::error::AuthError;
use super::secret;

const JOURNAL_FILE: &str = "tokens.jsonl";

/// Time for which a check of the file stays valid, because a check costs more than the rest of
/// verifying a token. A writer waits twice as long before it acknowledges a line, so that every
/// reader has noticed a revocation once it is acknowledged.
const CHECK_VALID_FOR: Duration = Duration::from_millis(1);

/// A token that was issued here, and its revocation if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// Id of the token.
    pub jti: String,
    /// Owner of the token.
    pub sub: String,
    /// Plan of the token.
    pub plan: Plan,
    /// Scopes that the token is restricted to; empty when it is not restricted.
    pub scopes: Vec<Scope>,
    /// Whether the token was issued as a trial.
    pub trial: bool,
    /// Time of issue in UNIX seconds.
    pub issued_at: u64,
    /// Expiry time in UNIX seconds.
    pub expires_at: u64,
    /// Time of revocation in UNIX seconds; `None` when the token is not revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<u64>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// A token was issued.
    Issued(TokenEntry),
    /// A token was revoked.
    Revoked { jti: String, at: u64 },
}

/// The file, and its content as last read.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    content: RwLock<Content>,
    opened: Instant,
    /// Time at which the last check began, in nanoseconds since `opened`.
    last_check: AtomicU64,
}

#[derive(Debug, Default)]
struct Content {
    stamp: Option<Stamp>,
    issued: Vec<TokenEntry>,
    /// Token id → time of revocation. Entries are never removed: a process that has read a
    /// revocation enforces it even if the file is changed or lost later.
    revoked: HashMap<String, u64>,
}

/// Identifies a version of the file: appending changes the length and the change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self { inode: metadata.ino(), length: metadata.len(), changed }
    }
}

impl Journal {
    /// Opens the file in `directory`, which must exist, and reads it.
    pub(super) fn open(directory: &Path) -> Result<Self, AuthError> {
        let path = directory.join(JOURNAL_FILE);
        let (content, last_check) = (RwLock::default(), AtomicU64::new(0));
        let journal = Self { path, content, opened: Instant::now(), last_check };
        journal.check_for_changes()?;
        Ok(journal)
    }

    /// Appends a line, and returns when it is on disk and every reader has noticed it.
    pub(super) fn append(&self, line: &Line) -> Result<(), AuthError> {
        self.append_all(std::slice::from_ref(line))
    }

    /// As [`Self::append`], for many lines, which are written together.
    pub(super) fn append_all(&self, lines: &[Line]) -> Result<(), AuthError> {
        let mut text = Vec::new();
        for line in lines {
            let json = serde_json::to_vec(line)
                .map_err(|error| self.failed("cannot write", io::Error::from(error)))?;
            text.extend_from_slice(&json);
            text.push(CHECKSUM_SEPARATOR);
            text.extend_from_slice(checksum(&json).as_bytes());
            text.push(b'\n');
        }
        self.append_bytes(&text).map_err(|error| self.failed("cannot write", error))?;
        thread::sleep(2 * CHECK_VALID_FOR);
        self.check_for_changes()
    }

    /// Returns when the token was revoked, or `None`. Checks first whether the file has changed,
    /// unless the last check is still valid.
    pub(super) fn revoked_at(&self, jti: &str) -> Result<Option<u64>, AuthError> {
        let since_opened = self.nanoseconds();
        let age = since_opened.saturating_sub(self.last_check.load(Ordering::Acquire));
        if u128::from(age) >= CHECK_VALID_FOR.as_nanos() {
            self.check_for_changes()?;
        }
        Ok(self.content.read().revoked.get(jti).copied())
    }

    /// Returns all issued tokens in the order of issue.
    pub(super) fn issued(&self) -> Result<Vec<TokenEntry>, AuthError> {
        self.check_for_changes()?;
        let content = self.content.read();
        let with_revocation = |entry: &TokenEntry| TokenEntry {
            revoked_at: content.revoked.get(&entry.jti).copied(),
            ..entry.clone()
        };
        Ok(content.issued.iter().map(with_revocation).collect())
    }

    /// Returns the ids of all revoked tokens, each with the time in UNIX seconds.
    pub(super) fn revocations(&self) -> Result<BTreeMap<String, u64>, AuthError> {
        self.check_for_changes()?;
        let content = self.content.read();
        Ok(content.revoked.iter().map(|(jti, at)| (jti.clone(), *at)).collect())
    }

    fn file(&self) -> io::Result<File> {
        OpenOptions::new().read(true).append(true).open(&self.path)
    }

    fn append_bytes(&self, line: &[u8]) -> io::Result<()> {
        let mut file = self.file()?;
        file.lock()?;
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                // Terminates a line that a crash cut short.
                file.write_all(b"\n")?;
            }
        }
        file.write_all(line)?;
        file.sync_all()
    }

    fn nanoseconds(&self) -> u64 {
        // 64 bits of nanoseconds last for centuries.
        self.opened.elapsed().as_nanos() as u64
    }

    /// Checks whether the file has changed, and reads it if so.
    fn check_for_changes(&self) -> Result<(), AuthError> {
        let before = self.nanoseconds();
        self.refresh()?;
        self.last_check.fetch_max(before, Ordering::Release);
        Ok(())
    }

    fn refresh(&self) -> Result<(), AuthError> {
        let unreadable = |error| self.failed("cannot read", error);
        let stamp = Stamp::of(&fs::metadata(&self.path).map_err(unreadable)?);
        if self.content.read().stamp == Some(stamp) {
            return Ok(());
        }
        let mut content = self.content.write();
        let mut file = File::open(&self.path).map_err(unreadable)?;
        // Taken before reading, so that the next check notices lines that are appended meanwhile.
        let stamp = Stamp::of(&file.metadata().map_err(unreadable)?);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        content.read_lines(&bytes, &self.path);
        content.stamp = Some(stamp);
        Ok(())
    }

    fn failed(&self, what: &'static str, error: io::Error) -> AuthError {
        AuthError::io(what, &self.path, error)
    }
}

/// Creates an empty file if there is none, and syncs it and its directory to disk.
pub(super) fn create(directory: &Path) -> Result<(), AuthError> {
    let path = directory.join(JOURNAL_FILE);
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let created = file.and_then(|file| file.sync_all());
    let created = created.and_then(|()| File::open(directory)?.sync_all());
    created.map_err(|error| AuthError::io("cannot create", &path, error))
}

/// Whether the file exists.
pub(super) fn exists(directory: &Path) -> Result<bool, AuthError> {
    let list = directory.join(JOURNAL_FILE);
    list.try_exists().map_err(|error| AuthError::io("cannot look for", &list, error))
}

/// Fails when the file does not exist: without it, revoked tokens would be accepted again.
pub(super) fn check(directory: &Path) -> Result<(), AuthError> {
    let list = directory.join(JOURNAL_FILE);
    match exists(directory)? {
        true => Ok(()),
        false => Err(AuthError::Other(format!(
            "{} is missing beside the signing key, so it is not known which tokens are revoked: \
             restore it from a backup; or, if none was ever revoked, create it empty; or remove {} \
             too, which voids every token",
            list.display(),
            secret::path(directory).display()
        ))),
    }
}

/// Separates the checksum from a line's JSON, in which a tab is always escaped.
const CHECKSUM_SEPARATOR: u8 = b'\t';
const CHECKSUM_DIGITS: usize = 8;

fn checksum(json: &[u8]) -> String {
    hex::encode(&Sha256::digest(json)[..CHECKSUM_DIGITS / 2])
}

/// Returns the lines with their numbers, from 1, without empty ones.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|byte| *byte == b'\n').zip(1..).map(|(line, number)| (number, line));
    lines.filter(|(_, line)| !line.is_empty())
}

fn parse(line: &[u8]) -> Result<Line, String> {
    let json = match line.iter().rposition(|byte| *byte == CHECKSUM_SEPARATOR) {
        None => line,
        Some(end) if checksum(&line[..end]).as_bytes() == &line[end + 1..] => &line[..end],
        Some(_) => return Err("its checksum differs".to_owned()),
    };
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// Whether a last line without a line break is the remainder of a write that a crash interrupted.
fn is_cut_short(line: &[u8]) -> bool {
    let end = line.iter().rposition(|byte| *byte == CHECKSUM_SEPARATOR);
    end.is_none_or(|end| line.len() - end <= CHECKSUM_DIGITS)
}

/// Returns one message for each line of a directory's file that cannot be parsed; none without a
/// file.
pub(super) fn problems(directory: &Path) -> Result<Vec<String>, AuthError> {
    let path = directory.join(JOURNAL_FILE);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| AuthError::io("cannot read", &path, error))?,
    };
    let unfinished = bytes.split(|byte| *byte == b'\n').next_back().unwrap_or_default();
    let unfinished = if is_cut_short(unfinished) { unfinished.len() } else { 0 };
    let problems = lines(&bytes[..bytes.len() - unfinished]).filter_map(|(number, line)| {
        let error = parse(line).err()?;
        Some(format!(
            "{} line {number}: it is damaged ({error}): if it revoked a token, revoke that again; \
             then remove the line",
            path.display()
        ))
    });
    Ok(problems.collect())
}

impl Content {
    fn read_lines(&mut self, bytes: &[u8], path: &Path) {
        self.issued.clear();
        for (line, text) in lines(bytes) {
            match parse(text) {
                Ok(Line::Issued(entry)) => self.issued.push(entry),
                Ok(Line::Revoked { jti, at }) => {
                    self.revoked.entry(jti).or_insert(at);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), line, error, "skipped a damaged line");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(directory: &Path) -> Journal {
        create(directory).unwrap();
        Journal::open(directory).unwrap()
    }

    fn revoked(jti: &str) -> Line {
        Line::Revoked { jti: jti.to_owned(), at: 7 }
    }

    #[test]
    fn a_torn_last_line_is_skipped_and_terminated() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(directory.path());
        journal.append(&revoked("a")).unwrap();
        let mut file = journal.file().unwrap();
        file.write_all(br#"{"revoked":{"jti":"torn","#).unwrap();
        assert_eq!(journal.revoked_at("a").unwrap(), Some(7));
        journal.append(&revoked("b")).unwrap();
        let again = opened(directory.path());
        assert_eq!(again.revoked_at("a").unwrap(), Some(7));
        assert_eq!(again.revoked_at("b").unwrap(), Some(7));
        assert_eq!(again.revoked_at("torn").unwrap(), None);
    }

    #[test]
    fn flipped_bits_in_a_line_are_detected() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(directory.path());
        journal.append(&revoked("a")).unwrap();
        journal.append(&revoked("b")).unwrap();
        let bytes = fs::read(&journal.path).unwrap();
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&journal.path, &flipped).unwrap();
            let problems = problems(directory.path()).unwrap();
            assert!(!problems.is_empty(), "byte {at}, bit {bit} of {:?}", flipped.escape_ascii());
        }
        for end in 0..=bytes.len() {
            fs::write(&journal.path, &bytes[..end]).unwrap();
            assert_eq!(problems(directory.path()).unwrap(), [""; 0], "cut off after {end} bytes");
        }
    }

    #[test]
    fn concurrent_writers_lose_no_lines_and_readers_see_them_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let reader = opened(directory.path());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let directory = directory.path();
                scope.spawn(move || {
                    let journal = opened(directory);
                    for number in 0..10 {
                        journal.append(&revoked(&format!("{writer}-{number}"))).unwrap();
                    }
                });
            }
        });
        for writer in 0..4 {
            for number in 0..10 {
                let jti = format!("{writer}-{number}");
                assert!(reader.revoked_at(&jti).unwrap().is_some(), "{jti}");
            }
        }
    }

    #[test]
    fn a_missing_file_is_an_error_and_known_revocations_stay() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(directory.path());
        journal.append(&revoked("a")).unwrap();
        fs::remove_file(&journal.path).unwrap();
        while journal.revoked_at("a").is_ok() {}
        fs::write(&journal.path, "").unwrap();
        assert_eq!(journal.revoked_at("a").unwrap(), Some(7), "seen once, kept");
    }
}
