//! The data files of the tables of the chain: opened by the names that the service gives, and kept open with what
//! their footers say, because queries read the same ones again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use rustix::fs::OFlags;

use super::reports::Reports;
use crate::wire::FileOfTable;

/// Maximum number of files that are kept open.
const MAX_OPEN: usize = 16;
/// Maximum size of the footers that are kept, in bytes.
const MAX_FOOTER_BYTES: usize = 32 << 20;
/// Bytes that are read from a file at a time where it is not known how many are needed.
const READ_AHEAD: usize = 8 << 10;

/// The data files.
pub struct DataFiles {
    directories: Vec<String>,
    /// Files that are open, the one used last at the end.
    open: Mutex<Vec<(FileOfTable, Arc<DataFile>)>>,
    /// What was told to the operator.
    pub reports: Reports,
}

/// An open file.
pub struct DataFile {
    /// Its name.
    pub name: String,
    /// Its content.
    pub bytes: FileBytes,
    /// What its footer says.
    pub footer: ArrowReaderMetadata,
}

/// The bytes of a file. Clones read the same file, each where it wants.
#[derive(Clone)]
pub struct FileBytes {
    file: Arc<File>,
    length: u64,
}

impl DataFiles {
    /// Creates an access to the files in these directories.
    pub fn new(directories: Vec<String>) -> Self {
        Self { directories, open: Mutex::default(), reports: Reports::default() }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The sentence for the user, which does not say where the file is.
    pub fn open(&self, file: &FileOfTable) -> Result<Arc<DataFile>, String> {
        let mut open = self.open.lock();
        if let Some(at) = open.iter().position(|(known, _)| known == file) {
            let found = open.remove(at);
            open.push(found);
            return Ok(Arc::clone(&open[open.len() - 1].1));
        }
        drop(open);
        let opened = Arc::new(self.read(file)?);
        let mut open = self.open.lock();
        open.push((file.clone(), Arc::clone(&opened)));
        let bytes = |open: &[(FileOfTable, Arc<DataFile>)]| -> usize {
            open.iter().map(|(_, file)| file.footer.metadata().memory_size()).sum()
        };
        while open.len() > MAX_OPEN || open.len() > 1 && bytes(&open) > MAX_FOOTER_BYTES {
            open.remove(0);
        }
        Ok(opened)
    }

    fn read(&self, file: &FileOfTable) -> Result<DataFile, String> {
        let is_plain = !file.name.contains('/') && !file.name.starts_with('.');
        let directory = self.directories.get(file.directory).filter(|_| is_plain);
        let found = match directory {
            Some(directory) => opened(Path::new(directory), file),
            None => Err(Unreadable {
                reason: "is in no directory of theirs".to_owned(),
                cause: "the export says otherwise".to_owned(),
            }),
        };
        found.map_err(|Unreadable { reason, cause }| {
            self.reports.tell(&file.name, &format!("{reason}: {cause}"));
            format!("A data file of the tables of the chain {reason}: tell the operator")
        })
    }
}

/// Why a file cannot be read.
struct Unreadable {
    /// In words for the user.
    reason: String,
    /// What the operator is told besides.
    cause: String,
}

/// Opens a file in its directory.
fn opened(directory: &Path, file: &FileOfTable) -> Result<DataFile, Unreadable> {
    let failed = |reason: &str, error: io::Error| Unreadable {
        reason: format!("{reason} ({})", error.kind()),
        cause: error.to_string(),
    };
    // A link would lead to a file that is not one of theirs. The kernel refuses such a file, too.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(directory.join(&file.name));
    let opened = opened.map_err(|error| failed("cannot be opened", error))?;
    let length = opened.metadata().map_err(|error| failed("cannot be opened", error))?.len();
    let bytes = FileBytes { file: Arc::new(opened), length };
    let footer = ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new());
    let footer = footer.map_err(|error| Unreadable {
        reason: "cannot be read".to_owned(),
        cause: error.to_string(),
    })?;
    let rows = footer.metadata().file_metadata().num_rows();
    if u64::try_from(rows) != Ok(file.rows) {
        return Err(Unreadable {
            reason: "has other rows than the export says".to_owned(),
            cause: format!("{rows} instead of {}", file.rows),
        });
    }
    Ok(DataFile { name: file.name.clone(), bytes, footer })
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for FileBytes {
    type T = FileRead;

    fn get_read(&self, start: u64) -> ParquetResult<FileRead> {
        Ok(FileRead { bytes: self.clone(), at: start, ahead: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let end = u64::try_from(length).ok().and_then(|length| start.checked_add(length));
        if end.is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF("the file ends early".to_owned()));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Reads a file from a place on, independently of other readers.
pub struct FileRead {
    bytes: FileBytes,
    at: u64,
    /// Bytes that were read already.
    ahead: Bytes,
}

impl Read for FileRead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            let left =
                usize::try_from(self.bytes.length.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let mut ahead = vec![0; left.min(READ_AHEAD)];
            let read = self.bytes.file.read_at(&mut ahead, self.at)?;
            ahead.truncate(read);
            self.at += read as u64;
            self.ahead = ahead.into();
        }
        let length = into.len().min(self.ahead.len());
        into[..length].copy_from_slice(&self.ahead.split_to(length));
        Ok(length)
    }
}
