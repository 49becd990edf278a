//! Files without names, for what is sent to a bucket or was fetched from it: they take no memory, and are
//! gone with the process.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::ExportError;

/// Permissions of a file: for its owner alone, as long as it has a name.
const PRIVATE: u32 = 0o600;

/// A directory on this machine, in which such files are made. They take as much space as the files of an
/// export that are written at the same time.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    /// Number of files that were made.
    files: AtomicU64,
}

impl Spool {
    /// Creates a spool in a directory, which is used only when a file is made.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), files: AtomicU64::new(0) }
    }

    /// Makes an empty file, which has no name any more.
    pub(super) fn file(&self) -> Result<File, ExportError> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let name = format!(".orrery-export-{}-{number}", std::process::id());
        let path = self.directory.join(name);
        without_name(&path).map_err(|error| {
            ExportError::Io(format!("cannot make files in {}: {error}", self.directory.display()))
        })
    }
}

fn without_name(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    let made = options.read(true).write(true).create_new(true).mode(PRIVATE).open(path)?;
    fs::remove_file(path)?;
    Ok(made)
}

/// Returns a reader of a file from its beginning.
pub(super) fn from_begin(mut file: &File) -> Result<&File, ExportError> {
    file.rewind().map_err(unusable)?;
    Ok(file)
}

/// Returns the error of a file that was made.
pub(super) fn unusable(error: io::Error) -> ExportError {
    ExportError::Io(format!("a file that is sent to a bucket, or comes from it, fails: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn files_have_no_names() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path());
        let mut files = [spool.file().unwrap(), spool.file().unwrap()];
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        for (file, text) in files.iter_mut().zip(["a", "b"]) {
            file.write_all(text.as_bytes()).unwrap();
        }
        for (file, text) in files.iter_mut().zip(["a", "b"]) {
            let mut found = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut found).unwrap();
            assert_eq!(found, text);
        }
        let missing = Spool::new(directory.path().join("missing"));
        assert!(missing.file().is_err());
    }
}
