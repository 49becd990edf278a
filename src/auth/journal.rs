//! The append-only file of issued and revoked tokens. Knows lines and locks, not signatures.
//!
//! One JSON object per line, and after a tab its checksum: the first 4 bytes of its SHA-256 in
//! hexadecimal. (A line without one is accepted, so that a line can be written by hand.) A line is on
//! disk before its writer is told so, and a writer holds the file's lock; whatever a crash left half
//! written is therefore a line that nobody relied on.

use std::collections::HashMap;
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
use super::{AuthError, secret};

const JOURNAL_FILE: &str = "tokens.jsonl";

/// How long a look at the file holds. A look costs more than the rest of verifying a token; a
/// writer waits twice as long before it says that a line is written, so that nobody who is told of
/// a revocation meets a reader that has not noticed it.
const LOOK_HOLDS: Duration = Duration::from_millis(1);

/// A token that was issued here, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// The token's id.
    pub jti: String,
    /// Its owner.
    pub sub: String,
    /// Its plan.
    pub plan: Plan,
    /// What it is narrowed to; empty when it is not.
    pub scopes: Vec<Scope>,
    /// Whether it was issued as a trial.
    pub trial: bool,
    /// Time of issue, UNIX seconds.
    pub issued_at: u64,
    /// Expiry, UNIX seconds.
    pub expires_at: u64,
    /// Time of revocation, UNIX seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<u64>,
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// A token was issued.
    Issued(TokenEntry),
    /// A token is no longer valid.
    Revoked { jti: String, at: u64 },
}

/// The file, and what was last read of it.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    known: RwLock<Known>,
    opened: Instant,
    /// Nanoseconds from `opened` to the moment before the last look.
    looked: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    stamp: Option<Stamp>,
    issued: Vec<TokenEntry>,
    /// Token id → time of revocation. Nothing is ever taken out: a process that has seen a
    /// revocation keeps to it, whatever happens to the file.
    revoked: HashMap<String, u64>,
}

/// Changes whenever the file does: appending moves the length and the time of change.
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
    /// Opens the file in `directory`, creating an empty one when there is none.
    pub(super) fn open(directory: &Path) -> Result<Self, AuthError> {
        let path = directory.join(JOURNAL_FILE);
        let (known, looked) = (RwLock::default(), AtomicU64::new(0));
        let journal = Self { path, known, opened: Instant::now(), looked };
        journal.look()?;
        Ok(journal)
    }

    /// Appends a line and waits until it is on disk and every reader has noticed.
    pub(super) fn append(&self, line: &Line) -> Result<(), AuthError> {
        let mut text = serde_json::to_vec(line)
            .map_err(|error| self.failed("cannot write", io::Error::from(error)))?;
        let check = checksum(&text);
        text.push(CHECK_FOLLOWS);
        text.extend_from_slice(check.as_bytes());
        text.push(b'\n');
        self.append_bytes(&text).map_err(|error| self.failed("cannot write", error))?;
        thread::sleep(2 * LOOK_HOLDS);
        self.look()
    }

    /// When the token was revoked, if it was. Looks first whether the file changed, unless it has
    /// just done so.
    pub(super) fn revoked_at(&self, jti: &str) -> Result<Option<u64>, AuthError> {
        let since_opened = self.nanoseconds();
        let held = since_opened.saturating_sub(self.looked.load(Ordering::Acquire));
        if u128::from(held) >= LOOK_HOLDS.as_nanos() {
            self.look()?;
        }
        Ok(self.known.read().revoked.get(jti).copied())
    }

    /// All tokens that were issued, in the order of issue.
    pub(super) fn issued(&self) -> Result<Vec<TokenEntry>, AuthError> {
        self.look()?;
        let known = self.known.read();
        let with_revocation = |entry: &TokenEntry| TokenEntry {
            revoked_at: known.revoked.get(&entry.jti).copied(),
            ..entry.clone()
        };
        Ok(known.issued.iter().map(with_revocation).collect())
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
                // Closes a line that a crash left half written.
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

    /// Looks whether the file changed, and reads it if it did.
    fn look(&self) -> Result<(), AuthError> {
        let before = self.nanoseconds();
        self.refresh()?;
        self.looked.fetch_max(before, Ordering::Release);
        Ok(())
    }

    fn refresh(&self) -> Result<(), AuthError> {
        let unreadable = |error| self.failed("cannot read", error);
        let stamp = Stamp::of(&fs::metadata(&self.path).map_err(unreadable)?);
        if self.known.read().stamp == Some(stamp) {
            return Ok(());
        }
        let mut known = self.known.write();
        let mut file = File::open(&self.path).map_err(unreadable)?;
        // Taken before reading, so that what is appended meanwhile is noticed at the next look.
        let stamp = Stamp::of(&file.metadata().map_err(unreadable)?);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        known.read_lines(&bytes, &self.path);
        known.stamp = Some(stamp);
        Ok(())
    }

    fn failed(&self, what: &'static str, error: io::Error) -> AuthError {
        AuthError::io(what, &self.path, error)
    }
}

/// Makes an empty file, unless there is one, and waits until it is on disk.
pub(super) fn create(directory: &Path) -> Result<(), AuthError> {
    let path = directory.join(JOURNAL_FILE);
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let created = file.and_then(|file| file.sync_all());
    let created = created.and_then(|()| File::open(directory)?.sync_all());
    created.map_err(|error| AuthError::io("cannot create", &path, error))
}

/// Whether the file is there; without it revocations would be forgotten.
pub(super) fn check(directory: &Path) -> Result<(), AuthError> {
    let list = directory.join(JOURNAL_FILE);
    match list.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(AuthError::MissingList { list, key: secret::path(directory) }),
        Err(error) => Err(AuthError::io("cannot look for", &list, error)),
    }
}

/// Stands between a line's JSON, in which it is always escaped, and its checksum.
const CHECK_FOLLOWS: u8 = b'\t';
const CHECK_DIGITS: usize = 8;

fn checksum(json: &[u8]) -> String {
    hex::encode(&Sha256::digest(json)[..CHECK_DIGITS / 2])
}

/// Lines with their numbers, from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|byte| *byte == b'\n').zip(1..).map(|(line, number)| (number, line));
    lines.filter(|(_, line)| !line.is_empty())
}

fn parse(line: &[u8]) -> Result<Line, String> {
    let json = match line.iter().rposition(|byte| *byte == CHECK_FOLLOWS) {
        None => line,
        Some(end) if checksum(&line[..end]).as_bytes() == &line[end + 1..] => &line[..end],
        Some(_) => return Err("its checksum is another".to_owned()),
    };
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// Whether a last line without an end is what a crash leaves of a write.
fn is_cut_short(line: &[u8]) -> bool {
    let end = line.iter().rposition(|byte| *byte == CHECK_FOLLOWS);
    end.is_none_or(|end| line.len() - end <= CHECK_DIGITS)
}

/// What in a directory's file, if there is one, cannot be read: one sentence for each line.
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

impl Known {
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
    fn a_torn_last_line_is_skipped_and_closed() {
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
    fn no_flipped_bit_changes_what_a_line_says_unnoticed() {
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
    fn writers_at_the_same_time_lose_nothing_and_readers_see_it_at_once() {
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
    fn a_vanished_file_is_an_error_rather_than_an_amnesty() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(directory.path());
        journal.append(&revoked("a")).unwrap();
        fs::remove_file(&journal.path).unwrap();
        while journal.revoked_at("a").is_ok() {}
        fs::write(&journal.path, "").unwrap();
        assert_eq!(journal.revoked_at("a").unwrap(), Some(7), "seen once, kept");
    }
}
