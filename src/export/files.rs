//! Writes Parquet files of bounded size. A file becomes part of the export only after it is
//! complete.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::{max, min};
use arrow::datatypes::{Int64Type, SchemaRef, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use orrery_iceberg::{Bounds, DataFile};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};

use super::destination::{LockedDestination, PendingFile};
use super::digest::{RowDigest, RowSum};
use super::error::{ExportError, Result};
use super::lake::{OF_CHAIN, OF_PROGRAMS};
use super::layout::{self, PROGRAMS};
use super::manifest::Manifest;
use orrery_ledger::domain::LedgerRange;

/// Size in bytes of buffered rows at which a row group is written out.
pub const ROW_GROUP_BYTES: usize = 32 << 20;

/// The export that files are written for.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub destination: &'a LockedDestination,
    /// Manifest before.
    pub manifest: &'a Manifest,
    /// Size in bytes at which a file is finished.
    pub file_bytes: usize,
}

/// Writes the rows of one table to as many files as needed.
pub struct TableWriter<'a> {
    target: Target<'a>,
    /// Directory of the files.
    kind: &'static str,
    schema: SchemaRef,
    has_digests: bool,
    /// Whether files are read back before they count.
    is_checked: bool,
    open: Option<Open>,
    done: Vec<DataFile>,
}

struct Open {
    ledgers: LedgerRange,
    rows: u64,
    seen: Seen,
    digest: Option<RowDigest>,
    writer: ArrowWriter<Hashed>,
}

/// What is recorded of the rows in a file.
struct Seen {
    /// Names of the columns with the ledger and its close time.
    times: [&'static str; 2],
    bounds: Option<Bounds>,
    /// Ledger of the last row.
    last: i64,
    is_sorted: bool,
}

/// A file being written, with the hash and the number of the bytes written so far.
struct Hashed {
    file: PendingFile,
    hash: Sha256,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seen {
    fn new(times: [&'static str; 2]) -> Self {
        Self { times, bounds: None, last: i64::MIN, is_sorted: true }
    }

    /// Adds rows. Without the two columns, nothing is known of a file.
    fn add(&mut self, batch: &RecordBatch) {
        let [ledger, time] = self.times.map(|name| batch.column_by_name(name));
        let ledgers = ledger.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let times = time.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
        let (Some(ledgers), Some(times)) = (ledgers, times) else {
            self.is_sorted = false;
            return;
        };
        for ledger in ledgers.values() {
            self.is_sorted &= *ledger >= self.last;
            self.last = *ledger;
        }
        let number = |ledger: Option<i64>| ledger.and_then(|it| u32::try_from(it).ok());
        let bounds = (number(min(ledgers)), number(max(ledgers)), min(times), max(times));
        if let (Some(first), Some(last), Some(earliest), Some(latest)) = bounds {
            let own = Bounds { ledgers: (first, last), times: (earliest, latest) };
            self.bounds = Some(self.bounds.map_or(own, |before| before.and(own)));
        }
    }
}

impl<'a> TableWriter<'a> {
    /// Creates a writer of files of this kind, which is one of [`layout::KINDS`], with this schema.
    pub fn new(target: Target<'a>, kind: &'static str, schema: impl Into<SchemaRef>) -> Self {
        // Rows of events and transactions are never derived anew.
        let has_digests = kind == PROGRAMS;
        let (schema, open, done) = (schema.into(), None, Vec::new());
        let is_checked = false;
        Self { target, kind, schema, has_digests, is_checked, open, done }
    }

    /// Returns the writer so that it records the digest of the rows of each file, and reads them back from it
    /// before it counts.
    pub fn checked(self) -> Self {
        Self { has_digests: true, is_checked: true, ..self }
    }

    /// Writes rows that belong to `ledgers`.
    pub fn write(&mut self, batch: &RecordBatch, ledgers: LedgerRange) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(ledgers)?,
        };
        open.ledgers.first = open.ledgers.first.min(ledgers.first);
        open.ledgers.last = open.ledgers.last.max(ledgers.last);
        open.seen.add(batch);
        if let Some(digest) = &mut open.digest {
            digest.add(batch)?;
        }
        open.writer.write(batch)?;
        open.rows += batch.num_rows() as u64;
        if open.writer.in_progress_size() >= ROW_GROUP_BYTES {
            open.writer.flush()?;
        }
        let full = open.writer.bytes_written() >= self.target.file_bytes;
        self.open = Some(open);
        if full { self.end() } else { Ok(()) }
    }

    /// Returns the size of the open file in bytes, and how many of these bytes are rows still
    /// buffered in memory.
    pub fn open_bytes(&self) -> (usize, usize) {
        let Some(Open { writer, .. }) = &self.open else { return (0, 0) };
        let in_memory = writer.in_progress_size();
        (writer.bytes_written() + in_memory, in_memory)
    }

    /// Writes the buffered rows out as a row group.
    pub fn write_out(&mut self) -> Result<()> {
        if let Some(open) = &mut self.open {
            open.writer.flush()?;
        }
        Ok(())
    }

    /// Finishes the open file and returns all files that were written.
    pub fn finish(mut self) -> Result<Vec<DataFile>> {
        self.end()?;
        Ok(self.done)
    }

    fn begin(&self, ledgers: LedgerRange) -> Result<Open> {
        let file = self.target.destination.begin(self.kind)?;
        let file = Hashed { file, hash: Sha256::new(), bytes: 0 };
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Names list elements and map entries as the Parquet format prescribes.
            .set_coerce_types(true)
            .build();
        let digest = self.has_digests.then(|| RowDigest::new(&self.schema)).transpose()?;
        let writer = ArrowWriter::try_new(file, Arc::clone(&self.schema), Some(properties))?;
        let seen = Seen::new(if self.kind == PROGRAMS { OF_PROGRAMS } else { OF_CHAIN });
        Ok(Open { ledgers, rows: 0, seen, digest, writer })
    }

    fn end(&mut self) -> Result<()> {
        let Some(Open { ledgers, rows, seen, digest, writer }) = self.open.take() else {
            return Ok(());
        };
        let Hashed { file, hash, bytes } = writer.into_inner()?;
        if let Some(digest) = digest.as_ref().filter(|_| self.is_checked) {
            self.check(&file, rows, digest.sum())?;
        }
        let sha256 = hex::encode(hash.finalize());
        let path = match self.known(&sha256) {
            Some(path) => path.to_owned(),
            None => {
                let path = layout::path_of(self.kind, &sha256, self.target.destination.mark());
                file.commit(&path)?;
                path
            }
        };
        self.done.push(DataFile {
            path,
            first_ledger: ledgers.first.0,
            last_ledger: ledgers.last.0,
            rows,
            bytes,
            sha256,
            columns: Some(self.schema.fields().len() as u32),
            bounds: seen.bounds,
            sorted: seen.is_sorted && seen.bounds.is_some(),
            digest: digest.map(|digest| digest.sum().text()),
            place: None,
        });
        Ok(())
    }

    /// Fails unless a file has rows with this digest.
    fn check(&self, file: &PendingFile, rows: u64, sum: RowSum) -> Result<()> {
        let mut found = RowDigest::new(&self.schema)?;
        let mut count = 0;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file.written()?)?;
        for batch in reader.build()? {
            let batch = batch?;
            found.add(&batch)?;
            count += batch.num_rows() as u64;
        }
        match count == rows && found.sum() == sum {
            true => Ok(()),
            false => {
                Err(ExportError::Unmerged("rows are not read as they were written".to_owned()))
            }
        }
    }

    /// Returns the path of a file of the export with this content, where an earlier opening has given it
    /// another path.
    fn known(&self, sha256: &str) -> Option<&'a str> {
        self.target.destination.mark()?;
        let begin = format!("{}/{}/", layout::DATA, self.kind);
        let is_it = |file: &&DataFile| file.sha256 == sha256 && file.path.starts_with(&begin);
        self.target.manifest.files().find(is_it).map(|file| &*file.path)
    }
}
