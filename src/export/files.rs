//! Parquet files of bounded size, which count only once they are whole.

use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};

use super::ExportError;
use super::manifest::DataFile;
use super::place::{Held, Unfinished};
use crate::domain::LedgerRange;

/// A file that has reached this size is ended.
pub const MOST_BYTES: usize = 128 << 20;
/// The same for one that is held in memory until it is whole.
pub const MOST_BYTES_IN_MEMORY: usize = 32 << 20;
/// A row group that has this many bytes in memory is written out.
const ROW_GROUP_BYTES: usize = 32 << 20;
const SUFFIX: &str = ".parquet";
/// Digits of what tells objects of one opening of an export from those of others.
const MARK: usize = 8;

/// Writes the rows of one table and one portion of ledgers into as many files as it takes.
pub struct TableWriter<'a> {
    held: &'a Held,
    table: &'static str,
    schema: SchemaRef,
    ledgers: LedgerRange,
    open: Option<Open>,
    done: Vec<DataFile>,
}

struct Open {
    path: String,
    rows: u64,
    writer: ArrowWriter<Hashed>,
}

/// A file, with the hash and the number of the bytes that went there.
struct Hashed {
    file: Unfinished,
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
    pub fn new(
        held: &'a Held,
        table: &'static str,
        schema: SchemaRef,
        ledgers: LedgerRange,
    ) -> Self {
        Self { held, table, schema, ledgers, open: None, done: Vec::new() }
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
        let most = self.held.most_bytes();
        if open.writer.in_progress_size() >= ROW_GROUP_BYTES.min(most / 2) {
            open.writer.flush()?;
        }
        let full = open.writer.bytes_written() >= most;
        self.open = Some(open);
        if full { self.end() } else { Ok(()) }
    }

    /// The files that were written.
    pub fn finish(mut self) -> Result<Vec<DataFile>, ExportError> {
        self.end()?;
        Ok(self.done)
    }

    fn begin(&self) -> Result<Open, ExportError> {
        let path = self.held.path_of(self.table, self.ledgers, self.done.len());
        let file = Hashed { file: self.held.begin(&path)?, hash: Sha256::new(), bytes: 0 };
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, self.schema.clone(), Some(properties))?;
        Ok(Open { path, rows: 0, writer })
    }

    fn end(&mut self) -> Result<(), ExportError> {
        let Some(Open { path, rows, writer }) = self.open.take() else { return Ok(()) };
        let Hashed { file, hash, bytes } = writer.into_inner()?;
        file.keep()?;
        self.done.push(DataFile {
            path,
            first_ledger: self.ledgers.first.0,
            last_ledger: self.ledgers.last.0,
            rows,
            bytes,
            sha256: hex::encode(hash.finalize()),
        });
        Ok(())
    }
}

/// The name of a file with rows of these ledgers, of which a table may have several.
pub fn name_of(ledgers: LedgerRange, number: usize, mark: Option<&str>) -> String {
    let LedgerRange { first, last } = ledgers;
    let mark = mark.map(|mark| format!("-{mark}")).unwrap_or_default();
    format!("{:010}-{:010}-{number}{mark}{SUFFIX}", first.0, last.0)
}

/// Whether a name is one that [`name_of`] gives.
pub fn is_ours(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let mark = |part: &str| part.len() == MARK && part.bytes().all(|c| c.is_ascii_hexdigit());
    match stem.split('-').collect::<Vec<_>>().as_slice() {
        [numbers @ .., last] if numbers.len() == 3 => {
            numbers.iter().all(|part| digits(part)) && mark(last)
        }
        parts => parts.len() == 3 && parts.iter().all(|part| digits(part)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_names() {
        let ledgers = LedgerRange::new(1000, 1999);
        for name in [name_of(ledgers, 0, None), name_of(ledgers, 12, Some("00ab9f3c"))] {
            assert!(is_ours(&name), "{name}");
        }
        assert_eq!(name_of(ledgers, 0, None), "0000001000-0000001999-0.parquet");
        for other in [
            "letter.txt",
            "1-2.parquet",
            "1-2-x.parquet",
            "1-2-3-4.parquet",
            "1-2-3-zzzzzzzz.parquet",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
