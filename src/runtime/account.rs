//! The account as which a process works: that of a data directory's owner, also when root runs a
//! command on it, so that no command leaves files that the service cannot read.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Subdirectory of a data directory whose owner is that of the service. A mounted volume itself may
/// belong to another account.
const DATABASE: &str = "raw";

/// What a process that was root may still do beside the account that it has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Read all files, for example ledgers that are imported.
    ReadAnywhere,
    /// Also write all files, for example into a directory of backups.
    WriteAnywhere,
}

/// This process cannot work as the owner of a data directory.
#[derive(Debug, thiserror::Error)]
#[error("{} belongs to {account}, and this process cannot work as that account ({source}): run it as {account}, for example with sudo -u {account}", directory.display())]
pub struct AccountError {
    directory: PathBuf,
    account: String,
    source: io::Error,
}

/// A file that does not belong to the owner of its data directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} belongs to {owner}, but the data directory to {wanted}, who may not use the file: run `sudo chown -R {chown} {}`", path.display(), directory.display())]
pub struct ForeignFile {
    path: PathBuf,
    directory: PathBuf,
    owner: String,
    wanted: String,
    chown: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// Returns the owner of the data in a directory; `None` when it cannot be seen.
    fn of(directory: &Path) -> Option<Self> {
        Self::of_path(&directory.join(DATABASE)).or_else(|_| Self::of_path(directory)).ok()
    }

    fn of_path(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self { uid: found.uid(), gid: found.gid() })
    }
}

/// Makes a process of root work as the owner of a data directory from here on; without a directory,
/// or as another account, nothing changes. Must be called before other threads start, because each
/// thread has an account of its own.
///
/// # Errors
/// When the operating system refuses.
pub fn become_owner(directory: &Path, reach: Reach) -> Result<(), AccountError> {
    let Some(owner) = Owner::of(directory).filter(|owner| owner.uid != 0) else { return Ok(()) };
    if !geteuid().is_root() {
        return Ok(());
    }
    change_to(owner, reach).map_err(|source| AccountError {
        directory: directory.to_owned(),
        account: name(owner.uid),
        source,
    })
}

fn change_to(owner: Owner, reach: Reach) -> io::Result<()> {
    let may = thread::capabilities(None)?.permitted;
    if !may.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        // Root of a container that can do no more than any other account.
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    thread::set_keep_capabilities(true)?;
    thread::set_thread_groups(&[gid])?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    thread::set_keep_capabilities(false)?;
    // Lower ports stay available to a service that root starts.
    let read = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::NET_BIND_SERVICE;
    let kept = may
        & match reach {
            Reach::ReadAnywhere => read,
            Reach::WriteAnywhere => read | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER,
        };
    let inheritable = CapabilitySet::empty();
    Ok(thread::set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable },
    )?)
}

/// Name of the directory that belongs to root at the top of many file systems: a data directory may be
/// one.
const LOST_AND_FOUND: &str = "lost+found";

/// Returns a file in a data directory that does not belong to its owner, if there is one. For another
/// account than root, a database of root in a directory that is not root's is such a file.
pub fn foreign_file(directory: &Path) -> Option<ForeignFile> {
    let owner = Owner::of(directory)?;
    let owner = if owner.uid == 0 && !geteuid().is_root() {
        Owner::of_path(directory).ok()?
    } else {
        owner
    };
    let mut directories = VecDeque::from([directory.to_owned()]);
    while let Some(next) = directories.pop_front() {
        // What this process may not list belongs to somebody else, and was found before.
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if next == directory && path.ends_with(LOST_AND_FOUND) {
                continue;
            }
            if found.uid() != owner.uid {
                let (wanted, chown) = (name(owner.uid), for_chown(owner.uid, owner.gid));
                let (directory, owner) = (directory.to_owned(), name(found.uid()));
                return Some(ForeignFile { path, directory, owner, wanted, chown });
            }
            if found.is_dir() {
                directories.push_back(path);
            }
        }
    }
    None
}

/// Returns an account and its group as `chown` takes them.
pub fn for_chown(uid: u32, gid: u32) -> String {
    let name = name(uid);
    if name.starts_with('#') { format!("{uid}:{gid}") } else { format!("{name}:") }
}

/// Returns the name of an account as `sudo -u` takes it: `#` and its number if it has no name.
pub fn name(uid: u32) -> String {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("#{uid}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    /// Only root may change owners.
    #[test]
    fn a_file_of_another_account_is_found_with_its_mend() {
        let directory = tempfile::tempdir().unwrap();
        let (at, file) = (directory.path(), directory.path().join("raw/CURRENT"));
        fs::create_dir(at.join("raw")).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!(foreign_file(at), None);
        if !geteuid().is_root() {
            return;
        }
        for path in [at, &at.join("raw")] {
            chown(path, Some(70_123), Some(70_124)).unwrap();
        }
        let sentence = foreign_file(at).unwrap().to_string();
        for part in ["raw/CURRENT belongs to root", "to #70123", "chown -R 70123:70124 "] {
            assert!(sentence.contains(part), "{sentence}");
        }
        chown(&file, Some(70_123), None).unwrap();
        assert_eq!(foreign_file(at), None);
        fs::create_dir(at.join("lost+found")).unwrap();
        assert_eq!(foreign_file(at), None, "a file system has it at its top");
        assert_eq!(foreign_file(&at.join("missing")), None);
    }
}
