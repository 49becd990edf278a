//! Reads one bucket: decompresses and hashes it, and splits it into records. Refuses what is not well
//! formed, although its hash may fit.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use orrery_ledger::decode::{BucketList, BucketRecord};
use orrery_ledger::domain::Hash32;
use sha2::{Digest, Sha256};

use crate::archive::of_source;
use crate::error::{CheckpointError, Result};
use crate::state::Bucket;
use crate::work::Bounds;

/// Marks the last fragment of a record (RFC 5531, section 11); each record of a bucket is one fragment.
const LAST_FRAGMENT: u32 = 1 << 31;
/// Maximum size of a record, in bytes: entries of the network have at most some 130 kB.
const LONGEST_RECORD: u32 = 2 << 20;
/// Bytes that are decompressed and hashed at once.
const PIECE: usize = 128 << 10;

/// What is wrong with the file that is read.
enum Trouble {
    /// Its content.
    Content(String),
    /// The system, or what this crate says of its source.
    Source(io::Error),
}

/// Reader of the records of one bucket.
pub(crate) struct BucketReader<R> {
    /// How the file is named in messages.
    shown: String,
    bucket: Bucket,
    /// Protocol version of the ledger whose state this is.
    protocol: u32,
    decoder: GzDecoder<BufReader<Capped<R>>>,
    digest: Sha256,
    /// Decompressed bytes; those from `begin` on were not read yet.
    buffer: Vec<u8>,
    begin: usize,
    /// Bytes after decompression so far, and how many there may be.
    inflated: u64,
    most: u64,
    records: u64,
}

impl<R: Read> BucketReader<R> {
    /// Begins to read a file. After decompression it may have `most` bytes.
    pub fn new(
        shown: String,
        bucket: Bucket,
        protocol: u32,
        file: R,
        bounds: &Bounds,
        most: u64,
    ) -> Self {
        let most = most.min(bounds.bucket);
        let file = Capped { file, shown: shown.clone(), left: bounds.stored, most: bounds.stored };
        let decoder = GzDecoder::new(BufReader::with_capacity(PIECE, file));
        let buffer = Vec::with_capacity(2 * PIECE);
        let digest = Sha256::new();
        Self {
            shown,
            bucket,
            protocol,
            decoder,
            digest,
            buffer,
            begin: 0,
            inflated: 0,
            most,
            records: 0,
        }
    }

    /// Bytes after decompression so far.
    pub fn inflated(&self) -> u64 {
        self.inflated
    }

    /// Reads the next record. Returns false at the end, when the hash of the bytes is the bucket's name.
    /// `take` is called with the record unless it is the bucket's metadata.
    ///
    /// # Errors
    /// [`CheckpointError::Refused`] for what is not this bucket, the error of the source, and that of
    /// `take`.
    pub fn next(&mut self, take: &mut dyn FnMut(BucketRecord<'_>) -> Result<()>) -> Result<bool> {
        let at = self.inflated - (self.buffer.len() - self.begin) as u64;
        let record = self.advance(at).map_err(|trouble| self.error(trouble))?;
        let Some(length) = record else { return Ok(false) };
        let xdr = &self.buffer[self.begin - length..self.begin];
        let record = BucketRecord::read(self.bucket.list, xdr).map_err(|reason| {
            let reason = format!("its record at byte {at} is malformed: {reason}");
            CheckpointError::refused(&self.shown, reason)
        })?;
        self.check(&record, at)?;
        self.records += 1;
        if !matches!(record, BucketRecord::Metadata { .. }) {
            take(record)?;
        }
        Ok(true)
    }

    /// Moves behind the next record and returns its length; `None` at the end of a whole bucket.
    fn advance(&mut self, at: u64) -> Result<Option<usize>, Trouble> {
        if !self.fill(4)? {
            return match self.buffer.len() - self.begin {
                0 => self.finish().map(|()| None),
                _ => Err(Trouble::Content(format!("it ends inside the record at byte {at}"))),
            };
        }
        let mark = &self.buffer[self.begin..self.begin + 4];
        let mark = u32::from_be_bytes([mark[0], mark[1], mark[2], mark[3]]);
        let length = mark & !LAST_FRAGMENT;
        if mark & LAST_FRAGMENT == 0 || length > LONGEST_RECORD {
            let reason = format!(
                "at byte {at} no record begins of at most {LONGEST_RECORD} bytes in one fragment"
            );
            return Err(Trouble::Content(reason));
        }
        let length = length as usize;
        if !self.fill(4 + length)? {
            return Err(Trouble::Content(format!("it ends inside the record at byte {at}")));
        }
        self.begin += 4 + length;
        Ok(Some(length))
    }

    /// Decompresses until `count` bytes are there to read; returns false when there are fewer.
    fn fill(&mut self, count: usize) -> Result<bool, Trouble> {
        while self.buffer.len() - self.begin < count {
            self.buffer.drain(..self.begin);
            self.begin = 0;
            let start = self.buffer.len();
            self.buffer.resize(start + PIECE, 0);
            let read = self.decoder.read(&mut self.buffer[start..]);
            self.buffer.truncate(start + *read.as_ref().unwrap_or(&0));
            let read = match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Trouble::of(error)),
                Ok(read) => read,
            };
            if read == 0 {
                return Ok(false);
            }
            self.digest.update(&self.buffer[start..]);
            self.inflated += read as u64;
            if self.inflated > self.most {
                let most = self.most;
                let reason =
                    format!("it inflates to more than {most} bytes, the most that is read");
                return Err(Trouble::Content(reason));
            }
        }
        Ok(true)
    }

    /// Checks what is known at the end only: that nothing follows, and the hash.
    fn finish(&mut self) -> Result<(), Trouble> {
        let rest = self.decoder.get_mut().fill_buf().map_err(Trouble::of)?;
        if !rest.is_empty() {
            return Err(Trouble::Content("bytes follow the end of its compressed data".to_owned()));
        }
        let hash = Hash32(std::mem::take(&mut self.digest).finalize().into());
        if hash != self.bucket.hash {
            let reason = format!("the SHA-256 of its decompressed bytes is {hash}, not its name");
            return Err(Trouble::Content(reason));
        }
        if self.records == 0 {
            return Err(Trouble::Content("it does not begin with its METAENTRY".to_owned()));
        }
        Ok(())
    }

    /// Checks that the metadata stands at the beginning, and fits.
    fn check(&self, record: &BucketRecord<'_>, at: u64) -> Result<()> {
        let refused = |reason: String| Err(CheckpointError::refused(&self.shown, reason));
        match (record, self.records) {
            (BucketRecord::Metadata { protocol, list }, 0) => {
                if *protocol > self.protocol {
                    let own = self.protocol;
                    return refused(format!(
                        "it was made with protocol {protocol}, and the ledger is of protocol {own}"
                    ));
                }
                // Buckets of the live list say which list they belong to from protocol 23 on only.
                let fits = match self.bucket.list {
                    BucketList::Live => *list != Some(BucketList::HotArchive),
                    BucketList::HotArchive => *list == Some(BucketList::HotArchive),
                };
                let named = match self.bucket.list {
                    BucketList::Live => "live",
                    BucketList::HotArchive => "hot archive",
                };
                if !fits {
                    return refused(format!("its METAENTRY is not of the {named} list"));
                }
                Ok(())
            }
            (BucketRecord::Metadata { .. }, _) => {
                refused(format!("it has a second METAENTRY at byte {at}"))
            }
            (_, 0) => refused("it does not begin with its METAENTRY".to_owned()),
            _ => Ok(()),
        }
    }

    fn error(&self, trouble: Trouble) -> CheckpointError {
        match trouble {
            Trouble::Content(reason) => CheckpointError::refused(&self.shown, reason),
            Trouble::Source(error) => of_source(&self.shown, error),
        }
    }
}

impl Trouble {
    /// Distinguishes what the decompressor refuses from errors of the source.
    fn of(error: io::Error) -> Self {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match error.kind() {
            UnexpectedEof => Self::Content("its compressed data ends too early".to_owned()),
            InvalidData | InvalidInput => {
                Self::Content(format!("it is damaged, or not compressed with gzip: {error}"))
            }
            _ => Self::Source(error),
        }
    }
}

/// A file that may not be longer than its bound.
struct Capped<R> {
    file: R,
    shown: String,
    left: u64,
    most: u64,
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                let most = self.most;
                let reason = format!("it is longer than {most} bytes, the most that is read");
                return Err(io::Error::other(CheckpointError::refused(&self.shown, reason)));
            }
        }
        Ok(read)
    }
}
