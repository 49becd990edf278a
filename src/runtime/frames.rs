//! Frames between the service and its child processes: each has a request number, a JSON head and a
//! binary body. Both ends are the same binary, so the format has no version.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Initial capacity for reading a frame, in bytes; the buffer then grows with the data that
/// arrives.
const INITIAL_CAPACITY: usize = 1 << 20;

/// A frame that was read.
#[derive(Debug)]
pub struct Frame<H> {
    /// Number of the request; its replies have the same number.
    pub id: u32,
    /// What the body is: a request or a reply.
    pub head: H,
    /// Binary data that belongs to it.
    pub body: Vec<u8>,
}

/// Writes a frame.
///
/// # Errors
/// When the stream cannot be written to, or the frame is longer than `u32::MAX` bytes.
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
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a frame"));
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
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Reply {
        Answered,
    }

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
