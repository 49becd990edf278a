//! Splits the content of a ledger file into the bytes of single ledgers. Recognises compression,
//! framing and batches by content and never by name. Does not depend on paths and networks.
//!
//! Formats (each plain, gzip or zstd): a stream framed with record marks of RFC 5531, as
//! stellar-core writes it; one `LedgerCloseMeta`; one `LedgerCloseMetaBatch` (SEP-54); JSON with
//! ledgers as base64 under `metadataXdr`, as RPC's `getLedgers` answers.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, BufReader, Cursor, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use orrery_ledger::decode::{XdrError, ledger_length};
use orrery_ledger::domain::{
    CompressedLedger, LAST_FRAGMENT, LONGEST_LEDGER, LedgerSeq, NEWEST_META_VERSION, sequence_of,
};

/// Number of bytes read at first to find the end of a ledger in a batch; each further read doubles
/// the buffer.
const FIRST_PIECE: usize = 256 << 10;
/// Expected ratio of a ledger's size to its compressed size; on the public network it is seven.
const EXPANSION: usize = 8;
/// Maximum number of bytes reserved for a ledger before its length is known.
const MAX_RESERVED: usize = 16 << 20;

/// Error while splitting a file. Offsets count bytes after decompression.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file ends inside a ledger.
    #[error("it is cut off: it ends inside the ledger that begins at byte {offset}")]
    Truncated {
        /// Offset of the unfinished ledger.
        offset: u64,
    },
    /// The operating system or the decompressor could not read the file, which may hold ledgers.
    #[error("{0}")]
    Unreadable(String),
    /// The content is invalid.
    #[error("{0}")]
    Invalid(String),
}

impl RecordError {
    pub(super) fn unreadable(offset: u64, error: impl Display) -> Self {
        Self::Unreadable(format!("it cannot be read past byte {offset}: {error}"))
    }

    pub(super) fn damaged(offset: u64, reason: impl Display) -> Self {
        Self::Invalid(format!("it is damaged at byte {offset}: {reason}"))
    }

    pub(super) fn too_long(offset: u64, longest: u64) -> Self {
        let longest = longest >> 20;
        Self::Invalid(format!(
            "the ledger at byte {offset} is longer than {longest} MiB, the most that is read"
        ))
    }

    fn empty() -> Self {
        Self::Invalid("it is empty".to_owned())
    }

    fn unrecognised() -> Self {
        Self::Invalid(
            "it holds no ledgers: expected a LedgerCloseMeta, a batch, a framed stream or JSON with \
             metadataXdr, plain or compressed with gzip or zstd"
                .to_owned(),
        )
    }
}

/// Iterator over the ledgers of one file. Except for JSON, only the current ledger is unpacked in
/// memory.
pub struct Records {
    content: Content,
    form: Form,
    /// The file itself, if all of it is in memory and compressed with zstd.
    frames: Option<Bytes>,
}

/// One ledger of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Sequence number, read from the ledger's header.
    pub sequence: LedgerSeq,
    /// The whole `LedgerCloseMeta` as XDR.
    pub xdr: Vec<u8>,
    /// The file's own compressed form of the ledger, if the file holds nothing else; otherwise
    /// `None`.
    pub compressed: Option<CompressedLedger>,
}

/// Decompressed bytes of a file, and the number of bytes consumed.
struct Content {
    bytes: Box<dyn Read + Send>,
    /// Bytes that were read from `bytes` and not consumed yet: those after a ledger of a batch.
    ahead: Vec<u8>,
    offset: u64,
    /// Maximum size of a ledger, in bytes.
    longest: u64,
    /// Expected number of bytes in total; 0 when it is unknown.
    expected: usize,
}

enum Form {
    Framed,
    Single,
    Batch { next: u32, remaining: u32 },
    Listed(VecDeque<Vec<u8>>),
    Done,
}

impl Records {
    /// Recognises the format of `file` and starts reading it.
    pub fn new(file: impl Read + Send + 'static) -> Result<Self, RecordError> {
        Self::no_longer_than(LONGEST_LEDGER, file)
    }

    /// Recognises the format of a file in memory and starts reading it. `longest` limits the size
    /// of a ledger, in bytes after decompression.
    pub fn of(file: Bytes, longest: u64) -> Result<Self, RecordError> {
        let frames = file.starts_with(&ZSTD).then(|| file.clone());
        let expected = file.len() * if frames.is_some() { EXPANSION } else { 1 };
        let mut records = Self::no_longer_than(longest, Cursor::new(file))?;
        records.content.expected = expected.min(MAX_RESERVED);
        Ok(Self { frames, ..records })
    }

    fn no_longer_than(longest: u64, file: impl Read + Send + 'static) -> Result<Self, RecordError> {
        let unread = |error| RecordError::unreadable(0, error);
        let mut file = BufReader::with_capacity(128 << 10, file);
        // A pipe may yield fewer bytes at first than it takes to recognise the compression.
        let mut start = Vec::with_capacity(ZSTD.len());
        file.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start).map_err(unread)?;
        let file = Cursor::new(start.clone()).chain(file);
        let mut bytes: Box<dyn Read + Send> = match &*start {
            [] => return Err(RecordError::empty()),
            [0x1f, 0x8b, ..] => Box::new(BufReader::new(MultiGzDecoder::new(file))),
            start if is_zstd(start) => {
                let decoder = zstd::Decoder::with_buffer(file).map_err(unread)?;
                Box::new(BufReader::new(decoder))
            }
            _ => Box::new(file),
        };
        let mut head = Vec::with_capacity(8);
        bytes.by_ref().take(8).read_to_end(&mut head).map_err(|error| cut_or_unread(error, 0))?;
        let first = Cursor::new(head.clone());
        let bytes = Box::new(first.chain(bytes));
        let mut content = Content { bytes, ahead: Vec::new(), offset: 0, longest, expected: 0 };
        let form = recognise(&head, &mut content)?;
        Ok(Self { content, form, frames: None })
    }

    /// Whether the file is read as its ledgers are taken, instead of being in memory.
    #[cfg(test)]
    pub(crate) fn is_streamed(&self) -> bool {
        self.content.expected == 0
    }

    fn next_record(&mut self) -> Result<Option<Record>, RecordError> {
        let offset = self.content.offset;
        let mut sole = false;
        let (xdr, expected) = match &mut self.form {
            Form::Done => return Ok(None),
            Form::Framed => match self.content.framed_record()? {
                None => return Ok(None),
                Some(record) => (record, None),
            },
            Form::Single => {
                (self.form, sole) = (Form::Done, true);
                (self.content.rest(offset)?, None)
            }
            Form::Batch { remaining: 0, .. } => {
                self.form = Form::Done;
                self.content.expect_end()?;
                return Ok(None);
            }
            Form::Batch { next, remaining } => {
                let expected = *next;
                *next = next.saturating_add(1);
                *remaining -= 1;
                // A batch of one, the usual case, needs no parsing to find where its ledger ends.
                sole = *remaining == 0 && offset == BATCH_HEADER;
                let record = if sole {
                    self.form = Form::Done;
                    self.content.rest(offset)?
                } else {
                    self.content.walked_record()?
                };
                (record, Some(LedgerSeq(expected)))
            }
            Form::Listed(records) => match records.pop_front() {
                None => return Ok(None),
                Some(record) => (record, None),
            },
        };
        let sequence = sequence_of(&xdr).map_err(|reason| RecordError::damaged(offset, reason))?;
        if let Some(expected) = expected.filter(|expected| *expected != sequence) {
            let reason = format!("the batch announces ledger {expected} and holds {sequence}");
            return Err(RecordError::damaged(offset, reason));
        }
        let compressed = self.frames.take().filter(|_| sole).and_then(|frames| {
            let offset = u8::try_from(offset).ok()?;
            Some(CompressedLedger { frames, offset })
        });
        Ok(Some(Record { sequence, xdr, compressed }))
    }
}

impl Iterator for Records {
    type Item = Result<Record, RecordError>;

    /// Returns the next ledger. Ends after the first error.
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.next_record().transpose();
        if matches!(item, Some(Err(_)) | None) {
            self.form = Form::Done;
        }
        item
    }
}

/// Magic number of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a file begins with a zstd frame, or with a skippable frame, which some compressors write
/// before it (RFC 8878, section 3.1.2).
fn is_zstd(start: &[u8]) -> bool {
    start.starts_with(&ZSTD) || matches!(start, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Length of a batch's header, in bytes: first and last sequence, number of ledgers.
const BATCH_HEADER: u64 = 12;

fn recognise(head: &[u8], content: &mut Content) -> Result<Form, RecordError> {
    if matches!(head.first(), Some(b'{' | b'[')) {
        return Ok(Form::Listed(content.json_records()?));
    }
    let [a, b, c, d, e, f, g, h] = *head else {
        return Err(if head.is_empty() {
            RecordError::empty()
        } else {
            RecordError::unrecognised()
        });
    };
    let first = u32::from_be_bytes([a, b, c, d]);
    let second = u32::from_be_bytes([e, f, g, h]);
    match first {
        mark if mark & LAST_FRAGMENT != 0 => {
            if second > NEWEST_META_VERSION {
                Err(RecordError::unrecognised())
            } else {
                Ok(Form::Framed)
            }
        }
        // In a batch that begins at ledger 2, the second word is its last ledger, 2 or later. In a
        // `LedgerCloseMeta` of version 2 it is the version of the extension, 0 or 1. No batch
        // begins before ledger 2.
        NEWEST_META_VERSION if second >= 2 => content.batch(),
        0..=NEWEST_META_VERSION => Ok(Form::Single),
        _ => content.batch(),
    }
}

impl Content {
    fn take_u32(&mut self) -> Result<u32, RecordError> {
        let mut word = [0; 4];
        let offset = self.offset;
        self.bytes.read_exact(&mut word).map_err(|error| cut_or_unread(error, offset))?;
        self.offset += 4;
        Ok(u32::from_be_bytes(word))
    }

    fn batch(&mut self) -> Result<Form, RecordError> {
        let (first, last, count) = (self.take_u32()?, self.take_u32()?, self.take_u32()?);
        let announced = last.checked_sub(first).and_then(|distance| distance.checked_add(1));
        if announced != Some(count) {
            return Err(RecordError::unrecognised());
        }
        Ok(Form::Batch { next: first, remaining: count })
    }

    /// Returns the next record of a framed stream, or `None` when the stream ends after a whole
    /// record.
    fn framed_record(&mut self) -> Result<Option<Vec<u8>>, RecordError> {
        let offset = self.offset;
        let mut mark = Vec::with_capacity(4);
        self.bytes
            .by_ref()
            .take(4)
            .read_to_end(&mut mark)
            .map_err(|error| cut_or_unread(error, offset))?;
        let mark = match *mark {
            [] => return Ok(None),
            [a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
            _ => return Err(RecordError::Truncated { offset }),
        };
        let length = record_length(mark, offset, self.longest)?;
        // Reserves at most 4 MiB, because the length may be false; the buffer then grows with the
        // bytes read.
        let mut record = Vec::with_capacity(usize::try_from(length.min(4 << 20)).unwrap_or(0));
        let read = self.bytes.by_ref().take(length).read_to_end(&mut record);
        read.map_err(|error| cut_or_unread(error, offset))?;
        if record.len() as u64 != length {
            return Err(RecordError::Truncated { offset });
        }
        self.offset += 4 + length;
        Ok(Some(record))
    }

    /// Reads all remaining bytes as one ledger.
    fn rest(&mut self, begin: u64) -> Result<Vec<u8>, RecordError> {
        let mut record = Vec::with_capacity(self.expected);
        let read = self.bytes.by_ref().take(self.longest + 1).read_to_end(&mut record);
        read.map_err(|error| cut_or_unread(error, begin))?;
        if record.len() as u64 > self.longest {
            return Err(self.too_long(begin));
        }
        record.shrink_to_fit();
        self.offset += record.len() as u64;
        Ok(record)
    }

    /// Reads one ledger whose end is found only by parsing it. Doubles the buffer each time the
    /// parser reaches its end, so that each byte is parsed about twice at most.
    fn walked_record(&mut self) -> Result<Vec<u8>, RecordError> {
        let offset = self.offset;
        loop {
            match ledger_length(&self.ahead) {
                Ok(length) => {
                    let rest = self.ahead.split_off(length);
                    self.offset += length as u64;
                    return Ok(std::mem::replace(&mut self.ahead, rest));
                }
                Err((XdrError::UnexpectedEnd, _)) if self.ahead.len() as u64 > self.longest => {
                    return Err(self.too_long(offset));
                }
                Err((XdrError::UnexpectedEnd, _)) => {
                    let piece = self.ahead.len().max(FIRST_PIECE) as u64;
                    let read = self.bytes.by_ref().take(piece).read_to_end(&mut self.ahead);
                    if read.map_err(|error| cut_or_unread(error, offset))? == 0 {
                        return Err(RecordError::Truncated { offset });
                    }
                }
                Err((reason, position)) => {
                    let offset = offset + position as u64;
                    return Err(RecordError::damaged(offset, reason));
                }
            }
        }
    }

    fn too_long(&self, offset: u64) -> RecordError {
        RecordError::too_long(offset, self.longest)
    }

    fn expect_end(&mut self) -> Result<(), RecordError> {
        let offset = self.offset;
        let mut one = [0; 1];
        let read = self.bytes.read(&mut one).map_err(|error| cut_or_unread(error, offset))?;
        match self.ahead.len() + read {
            0 => Ok(()),
            _ => {
                let reason = "more bytes follow the last ledger of the batch";
                Err(RecordError::damaged(offset, reason))
            }
        }
    }

    fn json_records(&mut self) -> Result<VecDeque<Vec<u8>>, RecordError> {
        let text = self.rest(0)?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| RecordError::damaged(0, error))?;
        let mut encoded = Vec::new();
        collect_metadata(&value, &mut encoded);
        if encoded.is_empty() {
            return Err(RecordError::unrecognised());
        }
        let decode = |text: &&str| {
            STANDARD.decode(text).map_err(|error| {
                RecordError::damaged(0, format_args!("a metadataXdr is not base64: {error}"))
            })
        };
        encoded.iter().map(decode).collect()
    }
}

/// Collects the `metadataXdr` strings of a JSON document in their order.
fn collect_metadata<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| collect_metadata(item, found))
        }
        serde_json::Value::Object(fields) => fields.iter().for_each(|(name, field)| match field {
            serde_json::Value::String(text) if name == "metadataXdr" => found.push(text),
            other => collect_metadata(other, found),
        }),
        _ => {}
    }
}

/// How zstd says that a frame needs a larger window than is allowed.
const WINDOW_TOO_LARGE: &str = "requires too much memory";

/// Converts an I/O error. Decompressors report a missing end as an unexpected end of file, as plain
/// reads do.
fn cut_or_unread(error: io::Error, offset: u64) -> RecordError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => RecordError::Truncated { offset },
        _ if error.to_string().contains(WINDOW_TOO_LARGE) => RecordError::Unreadable(
            "it is compressed with a window of more than 128 MiB: decompress it first, with \
             `zstd -d --long=31`"
                .to_owned(),
        ),
        _ => RecordError::unreadable(offset, error),
    }
}

/// Returns the length of the record that follows a mark (RFC 5531) at `offset`. stellar-core writes
/// every ledger as one whole record; here it may have at most `longest` bytes.
pub(super) fn record_length(mark: u32, offset: u64, longest: u64) -> Result<u64, RecordError> {
    if mark & LAST_FRAGMENT == 0 {
        let reason = format!("{mark:#010x} is not the mark of a whole record");
        return Err(RecordError::damaged(offset, reason));
    }
    let length = u64::from(mark & !LAST_FRAGMENT);
    if length > longest { Err(RecordError::too_long(offset, longest)) } else { Ok(length) }
}

#[cfg(test)]
pub(crate) mod generated;
#[cfg(test)]
mod tests;
