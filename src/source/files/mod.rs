//! Reads ledgers from files and directories, in the order of their names. Handles paths only;
//! leaves the content of a file to [`super::records`].

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};

use orrery_ledger::domain::{LONGEST_LEDGER, Network, Origin, RawLedger};
use rustix::io::Errno;

use super::lake::{LakeError, Manifest};
use super::records::{Record, RecordError, Records};

/// Maximum depth of nested directories; ends the walk when a link leads to a parent directory.
const DEEPEST_DIRECTORY: usize = 16;

/// Ends of the names, in small letters, of files that programs have not finished writing.
const UNFINISHED: [&str; 6] =
    [".part", ".partial", ".filepart", ".crdownload", ".download", ".tmp"];
/// Parts of the names, in small letters, of files that hold ledgers.
const LEDGER_FILES: [&str; 5] = [".xdr", ".zst", ".gz", ".json", "ledger"];

/// Maximum size of a file that is read into memory as a whole, in bytes: many times the size of a
/// file with one ledger.
const MAX_IN_MEMORY: u64 = 4 << 20;

/// Error while reading ledgers from files.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The content of a file is invalid.
    #[error("cannot take ledgers from {}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Error of the parser.
        source: RecordError,
    },
    /// A file or directory cannot be read, or has no ledgers.
    #[error("{0}")]
    Other(String),
    /// A directory's manifest is wrong or names another network.
    #[error(transparent)]
    Manifest(#[from] LakeError),
}

/// Files and manifests below a set of paths, found without opening the ledger files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Number of files.
    pub files: u64,
    /// Total size on disk, in bytes.
    pub bytes: u64,
    /// Number of files whose size is unknown until they end, such as pipes.
    pub streams: u64,
    /// Manifests found in directories, each with its path.
    pub manifests: Vec<(PathBuf, Manifest)>,
}

impl Survey {
    /// Walks all `paths`. Fails when one of them holds no file.
    pub fn of(paths: &[PathBuf]) -> Result<Self, FilesError> {
        let mut survey = Self::default();
        for path in paths {
            let files_before = survey.files;
            let mut walk = Walk::new(path.clone());
            while let Some(file) = walk.next_file()? {
                survey.files += 1;
                let metadata = metadata(&file)?;
                survey.bytes += metadata.len();
                survey.streams += u64::from(!metadata.is_file());
            }
            survey.manifests.append(&mut walk.manifests);
            if survey.files == files_before {
                return Err(no_files(path));
            }
        }
        Ok(survey)
    }

    /// Fails when a manifest names a network other than `network`.
    pub fn check_network(&self, network: &Network) -> Result<(), FilesError> {
        for (path, manifest) in &self.manifests {
            manifest.check_network(&path.display().to_string(), network)?;
        }
        Ok(())
    }

    /// Returns the network that the first manifest names; `None` without a manifest or a passphrase
    /// in it.
    pub fn network(&self) -> Option<Network> {
        let (_, manifest) = self.manifests.first()?;
        manifest.network_passphrase.as_deref().map(Network::from_passphrase)
    }
}

/// Iterator over the ledgers of files and directories. Ends after the first error.
pub struct LedgerFiles {
    walks: std::vec::IntoIter<Walk>,
    walk: Option<Walk>,
    file: Option<OpenFile>,
    /// Whether a file of this walk holds a ledger.
    has_ledgers: bool,
    bytes_read: Arc<AtomicU64>,
}

struct OpenFile {
    path: PathBuf,
    name: Arc<str>,
    records: Records,
    /// Number of ledgers read so far.
    taken: u64,
}

impl LedgerFiles {
    /// Iterates over the ledgers of `paths`: files in the given order, directories recursively,
    /// sorted so that numbers in names compare as numbers.
    pub fn new(paths: &[PathBuf]) -> Self {
        let walks: Vec<Walk> = paths.iter().cloned().map(Walk::new).collect();
        let walks = walks.into_iter();
        Self { walks, walk: None, file: None, has_ledgers: false, bytes_read: Arc::default() }
    }

    /// Returns the counter of bytes read from disk so far; comparable with [`Survey::bytes`].
    pub fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_read)
    }

    fn next_ledger(&mut self) -> Result<Option<RawLedger>, FilesError> {
        loop {
            if let Some(file) = &mut self.file {
                match file.next_ledger() {
                    Ok(None) => {}
                    // Nothing of it has been yielded yet.
                    Err(error) if file.taken == 0 => self.skip_if_other(error)?,
                    ledger => {
                        self.has_ledgers |= ledger.is_ok();
                        return ledger;
                    }
                }
                self.file = None;
            }
            let Some(path) = self.next_path()? else { return Ok(None) };
            match OpenFile::open(path, Arc::clone(&self.bytes_read)) {
                Ok(file) => self.file = Some(file),
                Err(error) => self.skip_if_other(error)?,
            }
        }
    }

    /// Logs that a file of a directory is skipped if it is something else than ledgers; otherwise
    /// returns the error.
    fn skip_if_other(&mut self, error: FilesError) -> Result<(), FilesError> {
        let is_listed = self.walk.as_ref().is_some_and(Walk::is_in_directory);
        match error {
            FilesError::Content { path, source } if is_listed && is_other(&path, &source) => {
                tracing::warn!("{} is skipped: it is no ledger file", path.display());
                Ok(())
            }
            error => Err(error),
        }
    }

    fn next_path(&mut self) -> Result<Option<PathBuf>, FilesError> {
        loop {
            if let Some(walk) = &mut self.walk {
                let path = walk.next_file()?;
                for (skipped, why) in walk.skipped.drain(..) {
                    tracing::warn!("{} is skipped: {why}", skipped.display());
                }
                match path {
                    None if !self.has_ledgers => return Err(no_files(&walk.root)),
                    None => {}
                    path => return Ok(path),
                }
            }
            (self.walk, self.has_ledgers) = (self.walks.next(), false);
            if self.walk.is_none() {
                return Ok(None);
            }
        }
    }
}

impl Iterator for LedgerFiles {
    type Item = Result<RawLedger, FilesError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.next_ledger().transpose();
        if matches!(item, Some(Err(_))) {
            *self = Self::new(&[]);
        }
        item
    }
}

impl OpenFile {
    fn open(path: PathBuf, bytes_read: Arc<AtomicU64>) -> Result<Self, FilesError> {
        let file = File::open(&path).map_err(read_error(&path))?;
        let metadata = file.metadata().map_err(read_error(&path))?;
        // A pipe has no length, and may be longer than the memory.
        let is_small = metadata.is_file() && metadata.len() <= MAX_IN_MEMORY;
        let mut file = Counted { file, bytes_read };
        let records = if is_small {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(read_error(&path))?;
            Records::of(bytes.into(), LONGEST_LEDGER)
        } else {
            Records::new(file)
        };
        let records =
            records.map_err(|source| FilesError::Content { path: path.clone(), source })?;
        let name = Arc::from(path.display().to_string());
        Ok(Self { path, name, records, taken: 0 })
    }

    fn next_ledger(&mut self) -> Result<Option<RawLedger>, FilesError> {
        let Some(record) = self.records.next() else { return Ok(None) };
        let Record { sequence, xdr, compressed } =
            record.map_err(|source| FilesError::Content { path: self.path.clone(), source })?;
        self.taken += 1;
        let position = (self.taken > 1).then_some(self.taken);
        let origin = Origin { name: Arc::clone(&self.name), position };
        Ok(Some(RawLedger { sequence, xdr, compressed, origin }))
    }
}

/// Reader that counts the bytes read from disk.
struct Counted {
    file: File,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bytes_read.fetch_add(count as u64, atomic::Ordering::Relaxed);
        Ok(count)
    }
}

/// Depth-first walk of a path; holds one list of names for each directory on the current path.
struct Walk {
    root: PathBuf,
    start: Option<PathBuf>,
    directories: Vec<std::vec::IntoIter<PathBuf>>,
    manifests: Vec<(PathBuf, Manifest)>,
    /// Entries of directories that are no ledger files, and why.
    skipped: Vec<(PathBuf, &'static str)>,
}

impl Walk {
    fn new(start: PathBuf) -> Self {
        Self {
            root: start.clone(),
            start: Some(start),
            directories: Vec::new(),
            manifests: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Whether the last file was found in a directory, and not named by the user.
    fn is_in_directory(&self) -> bool {
        !self.directories.is_empty()
    }

    fn next_file(&mut self) -> Result<Option<PathBuf>, FilesError> {
        loop {
            let path = match self.start.take() {
                Some(start) => start,
                None => match self.directories.last_mut() {
                    None => return Ok(None),
                    Some(directory) => match directory.next() {
                        Some(path) => match why_no_ledgers(&path) {
                            None => path,
                            Some(why) => {
                                self.skipped.push((path, why));
                                continue;
                            }
                        },
                        None => {
                            self.directories.pop();
                            continue;
                        }
                    },
                },
            };
            if !metadata(&path)?.is_dir() {
                return Ok(Some(path));
            }
            self.enter(path)?;
        }
    }

    fn enter(&mut self, directory: PathBuf) -> Result<(), FilesError> {
        if self.directories.len() == DEEPEST_DIRECTORY {
            return Err(FilesError::Other(format!(
                "{} is nested more than {DEEPEST_DIRECTORY} directories deep: give its path itself",
                directory.display()
            )));
        }
        let manifest = directory.join(Manifest::FILE_NAME);
        if manifest.is_file() {
            let text = fs::read(&manifest).map_err(read_error(&manifest))?;
            let parsed = Manifest::parse(&manifest.display().to_string(), &text)?;
            self.manifests.push((manifest, parsed));
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory).map_err(read_error(&directory))? {
            let name = entry.map_err(read_error(&directory))?.file_name();
            // Hidden files belong to file managers and version control, or are the lake's manifest.
            if !name.as_encoded_bytes().starts_with(b".") {
                names.push(name);
            }
        }
        names.sort_by(|a, b| natural_order(&a.to_string_lossy(), &b.to_string_lossy()));
        let paths: Vec<PathBuf> = names.into_iter().map(|name| directory.join(name)).collect();
        self.directories.push(paths.into_iter());
        Ok(())
    }
}

/// Returns why an entry of a directory is left out without being opened; `None` for a file or
/// directory.
fn why_no_ledgers(path: &Path) -> Option<&'static str> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if UNFINISHED.iter().any(|end| name.ends_with(end)) {
        return Some("it is the unfinished copy of a file");
    }
    match fs::metadata(path) {
        Ok(found) if found.is_file() => None,
        Ok(found) if !found.is_dir() => Some("it is not a file"),
        Ok(_) => leads_back(path).then_some("it is a link to a directory above it"),
        // What cannot be read for another reason is an error when it is opened.
        Err(error) => is_dangling(path, &error).then_some("it is a link to nothing"),
    }
}

/// Whether a path is a link that leads to no file.
fn is_dangling(path: &Path, error: &io::Error) -> bool {
    let is_endless = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    path.is_symlink() && (error.kind() == io::ErrorKind::NotFound || is_endless)
}

/// Whether a directory is a link to one that contains it.
fn leads_back(directory: &Path) -> bool {
    let parent = directory.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let target = fs::canonicalize(directory).ok();
    directory.is_symlink()
        && parent.zip(target).is_some_and(|(parent, target)| parent.starts_with(target))
}

/// Whether a file of a directory is something else than ledgers, as its name and content say. A file
/// with the name of a ledger file is not: it is damaged.
fn is_other(path: &Path, error: &RecordError) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    !matches!(error, RecordError::Unreadable(_))
        && !LEDGER_FILES.iter().any(|part| name.contains(part))
}

fn metadata(path: &Path) -> Result<fs::Metadata, FilesError> {
    fs::metadata(path).map_err(read_error(path))
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> FilesError {
    move |error| FilesError::Other(format!("cannot read {}: {error}", path.display()))
}

fn no_files(path: &Path) -> FilesError {
    FilesError::Other(format!("{} holds no ledger files", path.display()))
}

/// Compares names so that ledgers come in ascending order: digits compare as a number, and the
/// inverted prefix of lake names (`FC3D4709--63092982…`, newest first) only breaks ties.
fn natural_order(left: &str, right: &str) -> Ordering {
    let (left_name, right_name) = (without_lake_prefix(left), without_lake_prefix(right));
    let (mut a, mut b) = (left_name.as_bytes(), right_name.as_bytes());
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_a, rest_a) = leading_number(a);
            let (number_b, rest_b) = leading_number(b);
            (a, b) = (rest_a, rest_b);
            number_a.len().cmp(&number_b.len()).then(number_a.cmp(number_b))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            x.cmp(y)
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len()).then_with(|| left.cmp(right))
}

/// Splits off the digits at the beginning: returns them without leading zeros, and the rest.
fn leading_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let zeros = text[..end].iter().position(|c| *c != b'0').unwrap_or(end);
    (&text[zeros..end], &text[end..])
}

fn without_lake_prefix(name: &str) -> &str {
    match name.split_once("--") {
        Some((prefix, rest))
            if prefix.len() == 8
                && prefix.bytes().all(|c| c.is_ascii_hexdigit())
                && rest.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            rest
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests;
