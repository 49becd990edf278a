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
pub const ROW_GROUP_BYTES: usize = 32 << 20;
const SUFFIX: &str = ".parquet";
/// Digits of what tells objects of one opening of an export from those of others.
const MARK: usize = 8;

/// How the files of a table are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// By the ledgers of the portion, and by a number from 0 on within it.
    OfPortion,
    /// By numbers from this one on, none of which the table has used before.
    From(u32),
}

/// Writes the rows of one table and one portion into as many files as it takes.
pub struct TableWriter<'a> {
    held: &'a Held,
    /// Below the place of the export.
    directory: String,
    numbers: Numbers,
    schema: SchemaRef,
    open: Option<Open>,
    done: Vec<DataFile>,
}

struct Open {
    path: String,
    ledgers: LedgerRange,
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
        directory: impl Into<String>,
        numbers: Numbers,
        schema: SchemaRef,
    ) -> Self {
        let directory = directory.into();
        Self { held, directory, numbers, schema, open: None, done: Vec::new() }
    }

    /// Writes rows of these ledgers.
    pub fn write(&mut self, batch: &RecordBatch, ledgers: LedgerRange) -> Result<(), ExportError> {
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
        let most = self.held.most_bytes();
        if open.writer.in_progress_size() >= ROW_GROUP_BYTES.min(most / 2) {
            open.writer.flush()?;
        }
        let full = open.writer.bytes_written() >= most;
        self.open = Some(open);
        if full { self.end() } else { Ok(()) }
    }

    /// Bytes of the file that is open, and how many of them are rows in memory.
    pub fn open_bytes(&self) -> (usize, usize) {
        let Some(Open { writer, .. }) = &self.open else { return (0, 0) };
        let in_memory = writer.in_progress_size();
        (writer.bytes_written() + in_memory, in_memory)
    }

    /// Writes out the rows that are in memory.
    pub fn write_out(&mut self) -> Result<(), ExportError> {
        if let Some(open) = &mut self.open {
            open.writer.flush()?;
        }
        Ok(())
    }

    /// The files that were written.
    pub fn finish(mut self) -> Result<Vec<DataFile>, ExportError> {
        self.end()?;
        Ok(self.done)
    }

    fn begin(&self, ledgers: LedgerRange) -> Result<Open, ExportError> {
        let (number, mark) = (self.done.len(), self.held.mark());
        let name = match self.numbers {
            Numbers::OfPortion => name_of(ledgers, number, mark),
            Numbers::From(first) => numbered(u64::from(first) + number as u64, mark),
        };
        let path = format!("{}/{name}", self.directory);
        let file = Hashed { file: self.held.begin(&path)?, hash: Sha256::new(), bytes: 0 };
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Elements of lists and entries of maps are called as the format prescribes.
            .set_coerce_types(true)
            .build();
        let writer = ArrowWriter::try_new(file, self.schema.clone(), Some(properties))?;
        Ok(Open { path, ledgers, rows: 0, writer })
    }

    fn end(&mut self) -> Result<(), ExportError> {
        let Some(Open { path, ledgers, rows, writer }) = self.open.take() else { return Ok(()) };
        let Hashed { file, hash, bytes } = writer.into_inner()?;
        file.keep()?;
        self.done.push(DataFile {
            path,
            first_ledger: ledgers.first.0,
            last_ledger: ledgers.last.0,
            rows,
            bytes,
            sha256: hex::encode(hash.finalize()),
        });
        Ok(())
    }
}

/// The name of a file with rows of these ledgers, of which a table may have several.
fn name_of(ledgers: LedgerRange, number: usize, mark: Option<&str>) -> String {
    let LedgerRange { first, last } = ledgers;
    format!("{:010}-{:010}-{number}{}", first.0, last.0, ending(mark))
}

/// The name of a table's file with this number.
fn numbered(number: u64, mark: Option<&str>) -> String {
    format!("{number:010}{}", ending(mark))
}

fn ending(mark: Option<&str>) -> String {
    let mark = mark.map(|mark| format!("-{mark}")).unwrap_or_default();
    format!("{mark}{SUFFIX}")
}

/// Whether a name is one that [`TableWriter`] gives to the files of a table with such numbers.
pub fn is_ours(name: &str, of_portions: bool) -> bool {
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let mark = |part: &str| part.len() == MARK && part.bytes().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<_> = stem.split('-').collect();
    let numbers = if of_portions { 3 } else { 1 };
    let Some((given, rest)) = parts.split_at_checked(numbers) else { return false };
    given.iter().all(digits)
        && match rest {
            [] => true,
            [last] => mark(last),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_names() {
        let ledgers = LedgerRange::new(1000, 1999);
        let of_portions = [name_of(ledgers, 0, None), name_of(ledgers, 12, Some("00ab9f3c"))];
        let others = [numbered(0, None), numbered(u64::MAX, Some("00ab9f3c"))];
        assert!(of_portions.iter().all(|name| is_ours(name, true) && !is_ours(name, false)));
        assert!(others.iter().all(|name| is_ours(name, false) && !is_ours(name, true)));
        assert_eq!(of_portions[0], "0000001000-0000001999-0.parquet");
        assert_eq!(others[0], "0000000000.parquet");
        for other in [
            "letter.txt",
            "x.parquet",
            ".parquet",
            "1-zzzzzzzz.parquet",
            "1-2.parquet",
            "1-2-x.parquet",
            "1-2-3-4.parquet",
            "1-2-3-zzzzzzzz.parquet",
        ] {
            assert!(!is_ours(other, true) && !is_ours(other, false), "{other}");
        }
    }
}
