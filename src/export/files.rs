//! Parquet files of bounded size, which have their name only once they are whole and synced.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};

use super::manifest::DataFile;
use super::{ExportError, at};
use crate::domain::LedgerRange;

/// A file that has reached this size is ended.
const MOST_BYTES: usize = 128 << 20;
/// A row group that has this many bytes in memory is written out.
const ROW_GROUP_BYTES: usize = 32 << 20;
const SUFFIX: &str = ".parquet";
/// What a file's name has besides while it is written.
const DRAFT_SUFFIX: &str = ".new";

/// Writes the rows of one table and one portion of ledgers into as many files as it takes.
pub struct TableWriter {
    directory: PathBuf,
    table: &'static str,
    schema: SchemaRef,
    ledgers: LedgerRange,
    open: Option<Open>,
    done: Vec<DataFile>,
}

struct Open {
    name: String,
    rows: u64,
    writer: ArrowWriter<Hashed>,
}

/// A file, with the hash and the number of the bytes that went there.
struct Hashed {
    file: File,
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

impl TableWriter {
    pub fn new(
        directory: &Path,
        table: &'static str,
        schema: SchemaRef,
        ledgers: LedgerRange,
    ) -> Self {
        let directory = directory.join(table);
        Self { directory, table, schema, ledgers, open: None, done: Vec::new() }
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ExportError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        open.writer.write(batch)?;
        open.rows += batch.num_rows() as u64;
        if open.writer.in_progress_size() >= ROW_GROUP_BYTES {
            open.writer.flush()?;
        }
        let full = open.writer.bytes_written() >= MOST_BYTES;
        self.open = Some(open);
        if full { self.end() } else { Ok(()) }
    }

    /// The files that were written.
    pub fn finish(mut self) -> Result<Vec<DataFile>, ExportError> {
        self.end()?;
        Ok(self.done)
    }

    fn begin(&self) -> Result<Open, ExportError> {
        let LedgerRange { first, last } = self.ledgers;
        let name = format!("{:010}-{:010}-{}{SUFFIX}", first.0, last.0, self.done.len());
        let draft = self.directory.join(format!("{name}{DRAFT_SUFFIX}"));
        let file = File::create(&draft).map_err(at(&draft))?;
        let file = Hashed { file, hash: Sha256::new(), bytes: 0 };
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, self.schema.clone(), Some(properties))?;
        Ok(Open { name, rows: 0, writer })
    }

    fn end(&mut self) -> Result<(), ExportError> {
        let Some(Open { name, rows, writer }) = self.open.take() else { return Ok(()) };
        let Hashed { file, hash, bytes } = writer.into_inner()?;
        let draft = self.directory.join(format!("{name}{DRAFT_SUFFIX}"));
        file.sync_all().map_err(at(&draft))?;
        put_in_place(&draft, &self.directory.join(&name), &self.directory)?;
        self.done.push(DataFile {
            path: format!("{}/{name}", self.table),
            first_ledger: self.ledgers.first.0,
            last_ledger: self.ledgers.last.0,
            rows,
            bytes,
            sha256: hex::encode(hash.finalize()),
        });
        Ok(())
    }
}

/// Gives a synced draft its name, also after a loss of power.
pub fn put_in_place(draft: &Path, path: &Path, directory: &Path) -> Result<(), ExportError> {
    fs::rename(draft, path).map_err(at(path))?;
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(at(directory))
}

/// Removes files that an export which was killed has left; no others.
pub fn remove_strays(directory: &Path, is_named: impl Fn(&str) -> bool) -> Result<(), ExportError> {
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let name = entry.map_err(at(directory))?.file_name();
        let Some(name) = name.to_str() else { continue };
        if is_ours(name) && !is_named(name) {
            let path = directory.join(name);
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// Whether a name is one that [`TableWriter`] gives to a file or its draft.
fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(DRAFT_SUFFIX).unwrap_or(name);
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    stem.split('-').count() == 3 && stem.split('-').all(digits)
}
