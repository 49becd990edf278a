//! A history archive: where its files are, and how they are named.
//!
//! Source of the layout: stellar-core, `docs/history.md`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use orrery_ledger::domain::{Hash32, LedgerSeq, Network};
use orrery_net::http::{Timeouts, client_of_files, redacted};
use orrery_net::reqwest::header::CONTENT_LENGTH;
use orrery_net::reqwest::{Method, Response, Url};
use tokio::runtime::Handle;

use crate::body::Body;
use crate::error::{CheckpointError, Result};
use crate::server::Server;
use crate::state::{Commitment, NetworkState, Newest, parsed};

/// Number of ledgers from one checkpoint to the next. Networks that are accelerated for tests have
/// more checkpoints; each ledger that has one can be read.
pub const CHECKPOINT_LEDGERS: u32 = 64;
/// File with the newest state of an archive.
const NEWEST: &str = ".well-known/stellar-history.json";
/// Maximum size of a state file, in bytes; it usually has some kilobytes.
const LONGEST_STATE: u64 = 1 << 20;

/// Returns the newest checkpoint that is not after a ledger; `None` before the first one.
pub fn checkpoint_at_or_before(ledger: LedgerSeq) -> Option<LedgerSeq> {
    let next = (u64::from(ledger.0) + 1) / u64::from(CHECKPOINT_LEDGERS);
    let checkpoint = (next * u64::from(CHECKPOINT_LEDGERS)).checked_sub(1)?;
    u32::try_from(checkpoint).ok().map(LedgerSeq)
}

/// A history archive. Its methods block; where the archive is on a web server, they may not be called
/// from a task of a runtime.
#[derive(Debug, Clone)]
pub struct Archive(Place);

#[derive(Debug, Clone)]
enum Place {
    Directory(PathBuf),
    Server(Server),
}

/// A file of an archive that is read from its beginning.
pub(crate) enum Source {
    Local(File),
    Remote(Box<Body>),
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(file) => file.read(buffer),
            Self::Remote(body) => body.read(buffer),
        }
    }
}

impl Archive {
    /// Opens the archive at an address: `http://…`, `https://…`, `file://…`, or the path of a
    /// directory. Requests run on `runtime`.
    ///
    /// # Errors
    /// When the address cannot be used. No request is sent.
    pub fn open(address: &str, runtime: &Handle, timeouts: Timeouts) -> Result<Self> {
        let path = match address.split_once("://") {
            Some(("file", path)) => path,
            None => address,
            Some(("http" | "https", _)) => {
                let base = Url::parse(address.trim_end_matches('/')).map_err(|error| {
                    CheckpointError::Failed(format!(
                        "the address of the history archive cannot be used: {error}"
                    ))
                })?;
                let client = client_of_files(timeouts)
                    .map_err(|error| CheckpointError::Failed(error.to_string()))?;
                return Ok(Self(Place::Server(Server { base, client, runtime: runtime.clone() })));
            }
            Some((scheme, _)) => {
                return Err(CheckpointError::Failed(format!(
                    "a history archive at a {scheme} address cannot be read: give its http or https \
                     address, or the path of a directory"
                )));
            }
        };
        Ok(Self::directory(path))
    }

    /// Opens the archive in a directory.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self(Place::Directory(path.into()))
    }

    /// Returns the newest checkpoint that the archive claims to have.
    ///
    /// # Errors
    /// When its `.well-known` file cannot be read.
    pub fn newest(&self) -> Result<LedgerSeq> {
        let shown = self.shown(NEWEST);
        let Some(text) = self.read_small(NEWEST)? else {
            return Err(CheckpointError::Absent(format!(
                "this is no history archive: there is no {shown}"
            )));
        };
        let newest: Newest = parsed(&shown, &text)?;
        Ok(LedgerSeq(newest.ledger))
    }

    /// Reads which buckets the state at a checkpoint consists of, and compares the hash over them with
    /// the one in the header of that ledger.
    ///
    /// # Errors
    /// [`CheckpointError::Absent`] when the archive has no checkpoint there, and
    /// [`CheckpointError::Refused`] when it has another state.
    pub fn state(&self, commitment: Commitment, network: &Network) -> Result<NetworkState> {
        let ledger = commitment.ledger;
        let digits = format!("{:08x}", ledger.0);
        let directory = nested(&digits);
        let file = format!("history/{directory}/history-{digits}.json");
        let shown = self.shown(&file);
        let Some(text) = self.read_small(&file)? else {
            return Err(CheckpointError::Absent(format!(
                "the history archive has no checkpoint at ledger {ledger}: there is no {shown}"
            )));
        };
        NetworkState::read(&shown, &text, commitment, network)
    }

    /// Whether files are read where they are, instead of being downloaded.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.0, Place::Directory(_))
    }

    /// Returns how a file is named in messages: without secrets of the address.
    pub(crate) fn shown(&self, file: &str) -> String {
        match &self.0 {
            Place::Directory(path) => path.join(file).display().to_string(),
            Place::Server(server) => format!("{}/{file}", redacted(&server.base)),
        }
    }

    /// Opens a file; `None` when it does not exist.
    pub(crate) fn source(&self, file: &str) -> Result<Option<Source>> {
        match &self.0 {
            Place::Directory(path) => Ok(open_file(&path.join(file))?.map(Source::Local)),
            Place::Server(server) => {
                let (url, shown) = (server.url(file), self.shown(file));
                let Some(response) = server.request(Method::GET, &url, &shown, 0)? else {
                    return Ok(None);
                };
                let body = Body::new(server.clone(), url, shown, response);
                Ok(Some(Source::Remote(Box::new(body))))
            }
        }
    }

    /// Returns the size that a server announces for a file; `None` when it announces none.
    pub(crate) fn length(&self, file: &str) -> Result<Option<u64>> {
        let Place::Server(server) = &self.0 else { return Ok(None) };
        let shown = self.shown(file);
        let response = server.request(Method::HEAD, &server.url(file), &shown, 0)?;
        let headers = response.as_ref().map(Response::headers);
        let length = headers.and_then(|headers| headers.get(CONTENT_LENGTH));
        Ok(length.and_then(|length| length.to_str().ok()?.parse().ok()))
    }

    /// Reads a whole file of at most [`LONGEST_STATE`] bytes; `None` when it does not exist.
    fn read_small(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let Some(source) = self.source(file)? else { return Ok(None) };
        let mut content = Vec::new();
        let read = source.take(LONGEST_STATE + 1).read_to_end(&mut content);
        let shown = self.shown(file);
        read.map_err(|error| of_source(&shown, error))?;
        if content.len() as u64 > LONGEST_STATE {
            let reason = format!("it is longer than {LONGEST_STATE} bytes");
            return Err(CheckpointError::refused(shown, reason));
        }
        Ok(Some(content))
    }
}

/// Returns the name of a bucket's file in an archive.
pub(crate) fn bucket_file(hash: &Hash32) -> String {
    let digits = hash.to_string();
    format!("bucket/{}/bucket-{digits}.xdr.gz", nested(&digits))
}

/// Returns the directories in which a file with these digits lies.
fn nested(digits: &str) -> String {
    [&digits[..2], &digits[2..4], &digits[4..6]].join("/")
}

/// Opens a regular file; `None` when there is none. Others, such as pipes, might never end.
pub(crate) fn open_file(path: &Path) -> Result<Option<File>> {
    let opened = std::fs::metadata(path).and_then(|found| {
        if found.is_file() { File::open(path) } else { Err(io::Error::other("it is no file")) }
    });
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CheckpointError::unreadable(path.display(), error)),
    }
}

/// Returns the error of this crate that a reader passed through, or the system's about a file.
pub(crate) fn of_source(shown: &str, error: io::Error) -> CheckpointError {
    error
        .downcast::<CheckpointError>()
        .unwrap_or_else(|error| CheckpointError::unreadable(shown, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_the_last_of_sixty_four_ledgers() {
        let of = |ledger| checkpoint_at_or_before(LedgerSeq(ledger)).map(|it| it.0);
        assert_eq!(
            [0, 62, 63, 64, 126, 127].map(of),
            [None, None, Some(63), Some(63), Some(63), Some(127)]
        );
        assert_eq!(of(u32::MAX), Some(u32::MAX));
    }

    #[test]
    fn files_are_named_as_stellar_core_names_them() {
        let hash = Hash32([0xab; 32]);
        let name = format!("bucket/ab/ab/ab/bucket-{}.xdr.gz", "ab".repeat(32));
        assert_eq!(bucket_file(&hash), name);
        assert_eq!(nested("0123feff"), "01/23/fe");
    }
}
