//! Writes Parquet files of bounded size. A file becomes part of the export only after it is
//! complete.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};

use super::destination::{LockedDestination, PendingFile};
use super::error::Result;
use super::layout;
use super::manifest::DataFile;
use orrery_ledger::domain::LedgerRange;

/// Size in bytes of buffered rows at which a row group is written out.
pub const ROW_GROUP_BYTES: usize = 32 << 20;

/// Writes the rows of one table and one portion to as many files as needed.
pub struct TableWriter<'a> {
    destination: &'a LockedDestination,
    /// Directory of the files.
    kind: &'static str,
    schema: SchemaRef,
    open: Option<Open>,
    done: Vec<DataFile>,
}

struct Open {
    ledgers: LedgerRange,
    rows: u64,
    writer: ArrowWriter<Hashed>,
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

impl<'a> TableWriter<'a> {
    /// Creates a writer of files of this kind, which is one of [`layout::KINDS`], with this schema.
    pub fn new(
        destination: &'a LockedDestination,
        kind: &'static str,
        schema: impl Into<SchemaRef>,
    ) -> Self {
        Self { destination, kind, schema: schema.into(), open: None, done: Vec::new() }
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
        open.writer.write(batch)?;
        open.rows += batch.num_rows() as u64;
        let most = self.destination.most_bytes();
        if open.writer.in_progress_size() >= ROW_GROUP_BYTES.min(most / 2) {
            open.writer.flush()?;
        }
        let full = open.writer.bytes_written() >= most;
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
        let file = self.destination.begin(self.kind)?;
        let file = Hashed { file, hash: Sha256::new(), bytes: 0 };
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Names list elements and map entries as the Parquet format prescribes.
            .set_coerce_types(true)
            .build();
        let writer = ArrowWriter::try_new(file, Arc::clone(&self.schema), Some(properties))?;
        Ok(Open { ledgers, rows: 0, writer })
    }

    fn end(&mut self) -> Result<()> {
        let Some(Open { ledgers, rows, writer }) = self.open.take() else { return Ok(()) };
        let Hashed { file, hash, bytes } = writer.into_inner()?;
        let sha256 = hex::encode(hash.finalize());
        let path = layout::path_of(self.kind, &sha256, self.destination.mark());
        file.commit(&path)?;
        self.done.push(DataFile {
            path,
            first_ledger: ledgers.first.0,
            last_ledger: ledgers.last.0,
            rows,
            bytes,
            sha256,
            columns: Some(self.schema.fields().len() as u32),
        });
        Ok(())
    }
}
