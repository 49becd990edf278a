//! Atomic replacement of files: after a crash or a power failure, a file has either its old or its
//! new content. Does not depend on the content.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Permissions of the files: readable for the owner alone, because some of them contain
/// credentials.
const PRIVATE: u32 = 0o600;

/// Creates or replaces the file `path` with the content that `write` writes. The content is written
/// to a temporary file beside it, which is synced and renamed; then the directory is synced. The
/// caller prevents concurrent writes to one path.
///
/// # Errors
/// When something cannot be written. The file is then unchanged, unless only the sync of the
/// directory failed.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let draft = draft_of(path);
    let written = write_draft(&draft, write).and_then(|()| fs::rename(&draft, path));
    if let Err(error) = written {
        // A failed removal is ignored: the first error is the cause, and the next writer overwrites
        // the temporary file.
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    match path.parent() {
        Some(directory) if directory != Path::new("") => File::open(directory)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Returns the path of the temporary file. It is the same for every writer, so that crashes leave
/// at most one behind.
fn draft_of(path: &Path) -> PathBuf {
    let mut draft = OsString::from(path);
    draft.push(".new");
    draft.into()
}

fn write_draft(draft: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = create_draft(draft)?;
    write(&mut file)?;
    file.sync_all()
}

/// Creates a temporary file, in place of what a crash has left under its name. Follows no symbolic
/// link: somebody who may write to the directory could let it lead to another file.
pub fn create_draft(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(PRIVATE).open(path)
}

/// Opens a file only to lock it, and creates it first if it does not exist. Its content stays as it
/// is, and no symbolic link is followed.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits() as i32;
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false).mode(PRIVATE);
    options.custom_flags(no_link).open(path).map_err(|error| {
        if path.is_symlink() {
            io::Error::new(error.kind(), "it is a symbolic link: remove it")
        } else {
            error
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn files_are_replaced_atomically_with_a_private_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("order.json");
        fs::write(&path, "an earlier one, which is longer").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        // Left over from a crash, with another mode.
        fs::write(draft_of(&path), "half of a draft, and longer than all others together").unwrap();
        fs::set_permissions(draft_of(&path), Permissions::from_mode(0o666)).unwrap();
        for text in ["first", "second", ""] {
            write_atomically(&path, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
            assert_eq!(names(directory.path()), ["order.json"]);
        }
    }

    #[test]
    fn a_failed_write_leaves_the_file_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let fail = |file: &mut File| {
            file.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        assert_eq!(write_atomically(&path, fail).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(names(directory.path()).is_empty());
        write_atomically(&path, |file| file.write_all(b"whole")).unwrap();
        assert!(write_atomically(&path, fail).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(names(directory.path()), ["state"]);
        let elsewhere = directory.path().join("missing").join("state");
        let missing = write_atomically(&elsewhere, |_| Ok(())).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn no_symbolic_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("state"));
        fs::write(&victim, "as it was").unwrap();
        symlink(&victim, draft_of(&path)).unwrap();
        write_atomically(&path, |file| file.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        let lock = directory.path().join("lock");
        symlink(&victim, &lock).unwrap();
        assert!(open_lock(&lock).unwrap_err().to_string().contains("symbolic link: remove it"));
        fs::remove_file(&lock).unwrap();
        for _ in 0..2 {
            open_lock(&lock).unwrap().try_lock().unwrap();
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
    }
}
