//! The stream of ledgers that a core writes: records, each after a record mark (RFC 5531), from a
//! pipe or from the end of a growing file.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use orrery_ledger::domain::LONGEST_LEDGER;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

use crate::records::{RecordError, record_length};

/// Number of bytes per read.
const CHUNK: usize = 256 << 10;
/// Interval between two checks whether a file has grown.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of reads after the writer has ended. Children of the writer may keep the pipe open, but
/// what it wrote itself is available at once.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Source of the bytes.
pub(super) enum Input {
    /// Ends when all write ends are closed.
    Pipe(pipe::Receiver),
    /// Ends when its writer has ended.
    File(File),
}

/// Splits a stream into records.
pub(super) struct Frames {
    input: Input,
    pending: BytesMut,
    /// Number of bytes before the next record.
    offset: u64,
    writer_ended: bool,
}

impl Frames {
    /// Reads from `input`, which begins with a record; `offset` is the number of bytes before it.
    pub fn new(input: Input, offset: u64) -> Self {
        Self { input, pending: BytesMut::new(), offset, writer_ended: false }
    }

    /// Records that the writer has ended, so that no more bytes follow.
    pub fn writer_ended(&mut self) {
        self.writer_ended = true;
    }

    /// Returns the number of bytes before the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next record, or `None` at a clean end. Cancel safe.
    ///
    /// # Errors
    /// When the stream ends inside a record, is damaged, or cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, RecordError> {
        loop {
            if let Some(record) = self.whole_record()? {
                return Ok(Some(record));
            }
            let offset = self.offset;
            let read = self.read_more().await;
            if read.map_err(|source| RecordError::unreadable(offset, source))? == 0 {
                let clean = self.pending.is_empty();
                return if clean { Ok(None) } else { Err(RecordError::Truncated { offset }) };
            }
        }
    }

    /// Returns the pending record if it is complete. The mark is checked as soon as it is there, so
    /// that an invalid one fails at once.
    fn whole_record(&mut self) -> Result<Option<Vec<u8>>, RecordError> {
        let Some(mark) = self.pending.first_chunk() else { return Ok(None) };
        let length = record_length(u32::from_be_bytes(*mark), self.offset, LONGEST_LEDGER)?;
        let Ok(whole) = usize::try_from(4 + length) else {
            return Err(RecordError::too_long(self.offset, LONGEST_LEDGER));
        };
        if self.pending.len() < whole {
            return Ok(None);
        }
        self.pending.advance(4);
        self.offset += 4 + length;
        Ok(Some(self.pending.split_to(whole - 4).to_vec()))
    }

    async fn read_more(&mut self) -> io::Result<usize> {
        match &mut self.input {
            Input::Pipe(pipe) => {
                self.pending.reserve(CHUNK);
                let read = pipe.read_buf(&mut self.pending);
                if self.writer_ended {
                    return timeout(DRAIN_TIMEOUT, read).await.unwrap_or(Ok(0));
                }
                read.await
            }
            Input::File(file) => loop {
                let before = self.pending.len();
                self.pending.resize(before + CHUNK, 0);
                let read = file.read(&mut self.pending[before..]);
                self.pending.truncate(before + *read.as_ref().unwrap_or(&0));
                if self.writer_ended || !matches!(read, Ok(0)) {
                    return read;
                }
                sleep(POLL_INTERVAL).await;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn record(content: &[u8]) -> Vec<u8> {
        [&(1 << 31 | content.len() as u32).to_be_bytes(), content].concat()
    }

    fn pipe() -> (Frames, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        let receiver = pipe::Receiver::from_owned_fd(reader.into()).unwrap();
        (Frames::new(Input::Pipe(receiver), 0), writer)
    }

    #[tokio::test]
    async fn records_are_found_wherever_reads_end() {
        let long = vec![7; 3 << 20];
        let bytes = [record(b"one"), record(b""), record(&long), record(b"two")].concat();
        let (mut frames, mut writer) = pipe();
        let writing = std::thread::spawn(move || {
            let (begin, rest) = bytes.split_at(17);
            for byte in begin {
                writer.write_all(&[*byte]).unwrap();
            }
            writer.write_all(rest).unwrap();
        });
        for expected in [&b"one"[..], b"", &long, b"two"] {
            assert_eq!(frames.next().await.unwrap().unwrap(), expected);
        }
        assert!(frames.next().await.unwrap().is_none());
        assert_eq!(frames.offset(), 4 * 4 + 6 + (3 << 20));
        writing.join().unwrap();
    }

    #[tokio::test]
    async fn invalid_record_marks_are_detected_at_once() {
        for (bytes, sentence) in [
            (&[0, 0, 0, 8][..], "0x00000008 is not the mark of a whole record"),
            (&[0xff, 0xff, 0xff, 0xff], "longer than 256 MiB"),
        ] {
            let (mut frames, mut writer) = pipe();
            writer.write_all(&record(b"good")).unwrap();
            writer.write_all(bytes).unwrap();
            assert_eq!(frames.next().await.unwrap().unwrap(), b"good");
            let error = frames.next().await.unwrap_err().to_string();
            assert!(error.contains(sentence) && error.contains("byte 8"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_end_inside_a_record_is_reported_as_truncation() {
        for cut in 1..8 {
            let (mut frames, mut writer) = pipe();
            writer.write_all(&record(b"four")[..cut]).unwrap();
            drop(writer);
            let error = frames.next().await.unwrap_err();
            assert!(matches!(error, RecordError::Truncated { offset: 0 }), "{error}");
        }
    }

    #[tokio::test]
    async fn a_pipe_ends_with_its_writer_although_others_hold_it_open() {
        let (mut frames, mut writer) = pipe();
        writer.write_all(&record(b"last")).unwrap();
        frames.writer_ended();
        assert_eq!(frames.next().await.unwrap().unwrap(), b"last");
        assert!(frames.next().await.unwrap().is_none());
        drop(writer);
    }

    #[tokio::test]
    async fn a_file_is_read_as_it_grows() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut frames = Frames::new(Input::File(file.reopen().unwrap()), 0);
        let bytes = record(b"growing");
        file.write_all(&bytes[..6]).unwrap();
        let cut = timeout(POLL_INTERVAL * 3, frames.next()).await;
        assert!(cut.is_err(), "it waits for the rest");
        file.write_all(&bytes[6..]).unwrap();
        assert_eq!(frames.next().await.unwrap().unwrap(), b"growing");
        frames.writer_ended();
        assert!(frames.next().await.unwrap().is_none());
    }
}
