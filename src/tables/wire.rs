//! What a service and its SQL worker say to each other: frames over one stream socket, each with a
//! number, a head in JSON and a body of bytes. Both ends are the same binary, so the form has no version.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::query::{Format, Numbers};
use super::schema::ProgramSchema;
use crate::confinement::Confinement;
use crate::domain::ProgramId;

/// Room for a frame that is read, in bytes, before it grows with what comes.
const AT_FIRST: usize = 1 << 20;

/// What the worker is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first: how to run, and to open the file.
    Open(Opening),
    /// Instead of the first: how it would run, to see what it can give up. It ends after that.
    Try(Opening),
    /// Begins a change. The next three belong to it, and nothing is answered but `Append`.
    Begin,
    /// A program as it is now.
    Define(Definition),
    /// Rows for a table, as an Arrow IPC stream.
    Append {
        /// The table.
        table: String,
    },
    /// A program is gone.
    Drop {
        /// The program.
        program: ProgramId,
    },
    /// Ends the change: all of it, or nothing.
    Commit {
        /// Number of this change in the life of the file.
        commit: u64,
        /// The last row log entry of each program whose rows came.
        watermarks: BTreeMap<ProgramId, u64>,
    },
    /// Forgets the change.
    Abort,
    /// A query.
    Query(Question),
    /// Nobody waits for the answer to a query: it ends as if its time were up. Not answered itself.
    Cancel {
        /// The number of its request.
        query: u32,
    },
    /// A digest of everything in the file.
    Digest,
    /// Closes the file and ends.
    Stop,
}

/// How a worker runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opening {
    /// Name of the database file in the worker's directory.
    pub file: String,
    /// Bytes of memory that DuckDB may use.
    pub memory: u64,
    /// Threads that DuckDB may use.
    pub threads: u32,
    /// Queries at a time.
    pub queries: usize,
    /// Bytes that the database file may grow to.
    pub file_bytes: u64,
    /// Whether the process gives up what it does not need.
    pub process_wall: bool,
    /// Whether statements are judged by what they name.
    pub gate: bool,
    /// Whether DuckDB is locked, and a query must be one statement that reads.
    pub lock: bool,
}

/// A program, for its tables and views.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The program.
    pub program: ProgramId,
    /// Its project, by which its views are called.
    pub project: String,
    /// Whether it belongs to the owner of the file; else it is someone's public one.
    pub own: bool,
    /// Its tables.
    pub schema: ProgramSchema,
}

/// A query, and how it is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// The statement.
    pub sql: String,
    /// Values of its parameters.
    pub params: Vec<serde_json::Value>,
    /// Rows of the longest answer.
    pub rows: usize,
    /// Bytes of the longest answer.
    pub bytes: usize,
    /// When it is interrupted, in milliseconds.
    pub milliseconds: u64,
    /// How integers are written.
    pub numbers: Numbers,
    /// What the answer is.
    pub format: Format,
}

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It has given up what it does not need, and will open the file.
    Ready(Confinement),
    /// The file is open.
    Opened {
        /// Number of the last change.
        commit: u64,
        /// What is in the file.
        programs: Vec<Definition>,
        /// The last row log entry of each program.
        watermarks: BTreeMap<ProgramId, u64>,
    },
    /// Rows are taken in; another frame of rows may come.
    Appended,
    /// The change is made.
    Committed,
    /// The answer is the body.
    Answered,
    /// The digest, in hexadecimal digits.
    Digest(String),
    /// It could not be done.
    Failed(Failure),
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "message")]
pub enum Failure {
    /// The statement is not one that is answered, or fails.
    Refused(String),
    /// The answer is larger than allowed.
    TooLarge(String),
    /// It took too long.
    TimedOut,
    /// Another process has the file.
    Locked(String),
    /// The file is damaged.
    Damaged(String),
    /// The transaction in which a query may only read was not there any more when the query had ended.
    TransactionEnded(String),
    /// Anything else, which may pass.
    Unavailable(String),
}

impl Failure {
    /// The same without the name of a directory.
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

/// A frame as it was read.
#[derive(Debug)]
pub struct Frame<H> {
    /// Number of the request; the reply to it has the same.
    pub id: u32,
    /// What it says.
    pub head: H,
    /// The bytes that belong to it.
    pub body: Vec<u8>,
}

/// Writes a frame.
///
/// # Errors
/// When the other end is gone.
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

/// Reads a frame of at most `longest` bytes; none at the end of the stream. Memory is taken for what comes,
/// not for what is announced.
///
/// # Errors
/// When the other end is gone in the middle of one, or does not speak like this.
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
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no frame of a SQL worker"));
    }
    let mut body = Vec::with_capacity(length.min(AT_FIRST));
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
    fn what_is_written_is_read_and_what_is_cut_off_is_not() {
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
    fn lengths_that_are_announced_cost_nothing_and_have_a_bound() {
        let announced = |length: u32, head: u32| {
            let mut start = length.to_le_bytes().to_vec();
            start.extend(7u32.to_le_bytes());
            start.extend(head.to_le_bytes());
            read::<Reply>(&mut &start[..], 1 << 30).unwrap_err().kind()
        };
        assert_eq!(announced(u32::MAX, 1), io::ErrorKind::InvalidData);
        assert_eq!(announced(5, 6), io::ErrorKind::InvalidData);
        // A gigabyte would not fit beside the other tests; none of it is taken.
        assert_eq!(announced(1 << 30, 1), io::ErrorKind::UnexpectedEof);
        let long = frame(b"\"answered\"", &[0; 100]);
        assert!(read::<Reply>(&mut &long[..], 109).is_err());
        assert!(read::<Reply>(&mut &long[..], 110).is_ok());
    }

    #[test]
    fn what_is_no_frame_is_an_error_whatever_it_is() {
        for head in [&b""[..], b"{", b"null", b"\"nonsense\"", b"\xff\xfe", b"[[[["] {
            assert!(read::<Reply>(&mut &frame(head, b"")[..], 1000).is_err(), "{head:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(read::<Reply>(&mut &frame(deep.as_bytes(), b"")[..], 1 << 20).is_err());
    }
}
