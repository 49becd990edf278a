//! Protocol between the service and its SQL worker: frames over one stream socket, each with a
//! request number, a JSON head and a binary body. Both ends are the same binary, so the format has
//! no version.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use orrery_ledger::domain::ProgramId;
use orrery_runtime::confinement::Confinement;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::query::{Format, Numbers};
use super::schema::ProgramSchema;

/// Initial capacity for reading a frame, in bytes; the buffer then grows with the data that
/// arrives.
const INITIAL_CAPACITY: usize = 1 << 20;

/// A request to the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// First request: how to run, and to open the file.
    Open(Opening),
    /// Alternative first request: the worker confines itself, reports how far it could, and ends.
    Try(Opening),
    /// Begins a change. All up to `Drop` may follow; of all these only `Append` gets a reply.
    Begin,
    /// Creates a program's tables or alters them to match the definition.
    Define(Definition),
    /// Creates a program's tables of other columns beside those that queries see, or alters them.
    Fill(Filling),
    /// Removes the tables that are being filled beside those that queries see.
    Discard {
        /// The program.
        program: ProgramId,
    },
    /// Puts the tables that have been filled in the place of those that queries see.
    Swap {
        /// The program.
        program: ProgramId,
    },
    /// Appends rows to a table; the body is an Arrow IPC stream.
    Append {
        /// Name of the table.
        table: String,
    },
    /// Removes a program.
    Drop {
        /// The program.
        program: ProgramId,
    },
    /// Ends the change, and commits all of it or nothing.
    Commit {
        /// Number of this change, counted over the life of the file.
        commit: u64,
        /// Number of the last row log entry of each program with new rows.
        watermarks: BTreeMap<ProgramId, u64>,
    },
    /// Rolls the change back.
    Abort,
    /// Runs a query.
    Query(QuerySpec),
    /// Cancels a query, as if its time were up. Gets no reply of its own.
    Cancel {
        /// Request number of the query.
        query: u32,
    },
    /// Computes a digest of the tables, views, rows and watermarks in the file.
    Digest,
    /// Closes the file and ends the worker.
    Stop,
}

/// Settings of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opening {
    /// Name of the database file in the worker's directory.
    pub file: String,
    /// Bytes of memory that DuckDB may use.
    pub memory: u64,
    /// Threads that DuckDB may use.
    pub threads: u32,
    /// Number of concurrent queries.
    pub queries: usize,
    /// Maximum size of the database file in bytes.
    pub file_bytes: u64,
    /// Whether the process confines itself.
    pub process_wall: bool,
    /// Whether statements are checked against the functions and tables that they may name.
    pub gate: bool,
    /// Whether DuckDB's configuration is locked and a query must be one read-only statement.
    pub lock: bool,
}

/// A program's tables and views.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The program.
    pub program: ProgramId,
    /// Its project, after which its views are named; without views when it is empty.
    pub project: String,
    /// Whether the program belongs to the owner of the file; otherwise it is another owner's public
    /// program.
    pub own: bool,
    /// Its tables.
    pub schema: ProgramSchema,
}

/// Tables of a program that are filled anew beside those that queries see, because those cannot be
/// converted in place. Rows go into these, from the first one on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    /// The program.
    pub program: ProgramId,
    /// Its tables as they will be.
    pub schema: ProgramSchema,
    /// Number of the last row log entry in the tables that queries see. With it these tables are
    /// complete, and take the place of the others.
    pub complete_at: u64,
}

/// A query with its limits and the format of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuerySpec {
    /// The statement.
    pub sql: String,
    /// Values of its parameters.
    pub params: Vec<serde_json::Value>,
    /// Maximum number of rows in the answer.
    pub rows: usize,
    /// Maximum length of the answer in bytes.
    pub bytes: usize,
    /// Time limit in milliseconds.
    pub milliseconds: u64,
    /// How integers of 64 bits and more, and decimals, are written.
    pub numbers: Numbers,
    /// Format of the answer.
    pub format: Format,
}

/// A reply of the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The worker has confined itself as far as stated, and will open the file next.
    Ready(Confinement),
    /// The file is open.
    Opened {
        /// Number of the last change.
        commit: u64,
        /// Programs whose tables the file has.
        programs: Vec<Definition>,
        /// Number of the row log entry after which the rows of each program continue.
        watermarks: BTreeMap<ProgramId, u64>,
        /// Programs whose tables are being filled anew.
        fillings: Vec<Filling>,
    },
    /// A frame of rows was processed. Whether DuckDB accepted the rows is reported by the commit.
    Appended,
    /// The change is committed.
    Committed,
    /// The query was answered; the body is the answer.
    Answered,
    /// The digest, in hexadecimal digits.
    Digest(String),
    /// The request failed.
    Failed(Failure),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "message")]
pub enum Failure {
    /// The statement or the change is not accepted, or it fails.
    Refused(String),
    /// The answer exceeds the limit of rows or bytes.
    TooLarge(String),
    /// The query exceeded its time limit or was cancelled.
    TimedOut,
    /// Another process has locked the file.
    Locked(String),
    /// The file is damaged.
    Damaged(String),
    /// The read-only transaction of a query no longer existed when the query had ended.
    TransactionEnded(String),
    /// Any other failure, possibly temporary.
    Unavailable(String),
}

impl Failure {
    /// Returns the same failure with the directory removed from paths in its message.
    pub fn without(&self, directory: &str) -> Self {
        let hide = |message: &String| message.replace(&format!("{directory}/"), "");
        match self {
            Self::Refused(message) => Self::Refused(hide(message)),
            Self::TooLarge(message) => Self::TooLarge(hide(message)),
            Self::Locked(message) => Self::Locked(hide(message)),
            Self::Damaged(message) => Self::Damaged(hide(message)),
            Self::TransactionEnded(message) => Self::TransactionEnded(hide(message)),
            Self::Unavailable(message) => Self::Unavailable(hide(message)),
            Self::TimedOut => Self::TimedOut,
        }
    }
}

/// A frame that was read.
#[derive(Debug)]
pub struct Frame<H> {
    /// Number of the request; its replies have the same number.
    pub id: u32,
    /// The request or reply.
    pub head: H,
    /// Binary data that belongs to it.
    pub body: Vec<u8>,
}

/// Writes a frame.
///
/// # Errors
/// When the socket cannot be written to, or the frame is longer than `u32::MAX` bytes.
pub fn write<H: Serialize>(to: &mut impl Write, id: u32, head: &H, body: &[u8]) -> io::Result<()> {
    let head = serde_json::to_vec(head)?;
    let too_long = |_| io::Error::other("a frame is too long");
    let (head_length, length) = (u32::try_from(head.len()), u32::try_from(body.len() + head.len()));
    let mut start = Vec::with_capacity(12 + head.len());
    start.extend(length.map_err(too_long)?.to_le_bytes());
    start.extend(id.to_le_bytes());
    start.extend(head_length.map_err(too_long)?.to_le_bytes());
    start.extend(head);
    to.write_all(&start)?;
    to.write_all(body)
}

/// Reads a frame of at most `longest` bytes; `None` at the end of the stream. Memory is allocated
/// for the data that arrives, not for the announced length.
///
/// # Errors
/// When the stream ends within a frame, or the data is not a valid frame.
pub fn read<H: DeserializeOwned>(
    from: &mut impl Read,
    longest: usize,
) -> io::Result<Option<Frame<H>>> {
    let mut start = [0; 12];
    match from.read(&mut start)? {
        0 => return Ok(None),
        some => from.read_exact(&mut start[some..])?,
    }
    let word =
        |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    let (length, id, head_length) = (word(0) as usize, word(4), word(8) as usize);
    if length > longest || head_length > length {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a frame of a SQL worker"));
    }
    let mut body = Vec::with_capacity(length.min(INITIAL_CAPACITY));
    from.take(u64::from(word(0))).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let head = serde_json::from_slice(&body[..head_length])?;
    body.drain(..head_length);
    Ok(Some(Frame { id, head, body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(head: &[u8], body: &[u8]) -> Vec<u8> {
        let length = |part: usize| u32::try_from(part).unwrap().to_le_bytes();
        let mut frame = length(head.len() + body.len()).to_vec();
        frame.extend(7u32.to_le_bytes());
        frame.extend(length(head.len()));
        frame.extend([head, body].concat());
        frame
    }

    #[test]
    fn frames_round_trip_and_truncated_ones_are_errors() {
        let mut written = Vec::new();
        write(&mut written, 7, &Reply::Answered, b"answer").unwrap();
        assert_eq!(written, frame(b"\"answered\"", b"answer"));
        let read_all = |bytes: &[u8]| read::<Reply>(&mut &bytes[..], 16);
        let whole = read_all(&written).unwrap().unwrap();
        assert!(matches!(whole.head, Reply::Answered));
        assert_eq!((whole.id, &whole.body[..]), (7, &b"answer"[..]));
        assert!(read_all(&[]).unwrap().is_none());
        for end in 1..written.len() {
            assert!(read_all(&written[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn announced_lengths_are_bounded_and_not_preallocated() {
        let announced = |length: u32, head: u32| {
            let mut start = length.to_le_bytes().to_vec();
            start.extend(7u32.to_le_bytes());
            start.extend(head.to_le_bytes());
            read::<Reply>(&mut &start[..], 1 << 30).unwrap_err().kind()
        };
        assert_eq!(announced(u32::MAX, 1), io::ErrorKind::InvalidData);
        assert_eq!(announced(5, 6), io::ErrorKind::InvalidData);
        // The announced gigabyte is not allocated; it would not fit beside the other tests.
        assert_eq!(announced(1 << 30, 1), io::ErrorKind::UnexpectedEof);
        let long = frame(b"\"answered\"", &[0; 100]);
        assert!(read::<Reply>(&mut &long[..], 109).is_err());
        assert!(read::<Reply>(&mut &long[..], 110).is_ok());
    }

    #[test]
    fn malformed_frames_are_errors() {
        for head in [&b""[..], b"{", b"null", b"\"nonsense\"", b"\xff\xfe", b"[[[["] {
            assert!(read::<Reply>(&mut &frame(head, b"")[..], 1000).is_err(), "{head:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(read::<Reply>(&mut &frame(deep.as_bytes(), b"")[..], 1 << 20).is_err());
    }
}
