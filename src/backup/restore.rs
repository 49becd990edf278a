//! Restores a data directory from a backup.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::check;
use super::copy::{self, Lock};
use super::manifest::{File, Manifest};
use super::names::{Treatment, treatment};
use super::{BackupError, Progress, failed};
use crate::store::{ACKNOWLEDGED_FILE, RAW_DIRECTORY};

/// Names of a data directory and its store until they are complete and checked. An incomplete one
/// is not opened by accident: it lies in a directory beside the one that was asked for, and its store is
/// not at the expected path until it has been compared with the manifest.
const UNFINISHED: &str = ".restoring";
const UNFINISHED_DATA: &str = "unfinished";
pub(super) const UNFINISHED_RAW: &str = "raw.unfinished";
/// A file of the backups of earlier versions.
const CODE_KEY: &str = "secrets/compiled-code-key";

/// A data directory that was restored.
#[derive(Debug, Clone)]
pub struct Restored {
    /// Directory of the backup.
    pub backup: PathBuf,
    /// Manifest of the backup.
    pub manifest: Manifest,
    /// Files of the backup that do not belong to one, and were left out.
    pub left_out: Vec<String>,
}

/// Restores a backup to the data directory `data_dir`, which must be empty or not exist. Every file
/// is compared with the manifest while it is copied, and the ledgers in the copy are compared with
/// the manifest before the directory gets its name. Only files that [`super::make`] writes are
/// restored. `complete` gets the directory before it has its name, and may open the store in it. Everything
/// is on disk when this returns.
///
/// # Errors
/// [`BackupError`], usually with `data_dir` unchanged. When the removal of what is left, or the final
/// sync, fails, `data_dir` has been replaced.
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    complete: &dyn Fn(&Path) -> Result<(), BackupError>,
    progress: Progress<'_>,
) -> Result<Restored, BackupError> {
    let data_dir = &std::path::absolute(data_dir).map_err(failed(data_dir))?;
    refuse_nonempty(data_dir)?;
    let manifest = Manifest::read(backup)?;
    let (kept, left_out) = sorted(backup, &manifest)?;
    let mut fill = |draft: &Path| fill(draft, backup, &manifest, &kept, progress);
    into_place(data_dir, Leftovers::Removed, &mut fill, complete)?;
    Ok(Restored { backup: backup.to_owned(), left_out, manifest })
}

/// What becomes of the files of a restoration that was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftovers {
    /// They are removed.
    Removed,
    /// They stay for the next attempt.
    Kept,
}

/// Makes a data directory: `fill` gets a draft of it, and `complete` the filled draft, which then gets its name.
/// Everything is on disk when this returns.
pub(super) fn into_place(
    data_dir: &Path,
    leftovers: Leftovers,
    fill: &mut dyn FnMut(&Path) -> Result<(), BackupError>,
    complete: &dyn Fn(&Path) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let data_dir = &std::path::absolute(data_dir).map_err(failed(data_dir))?;
    refuse_nonempty(data_dir)?;
    let parent = copy::parent(data_dir).to_owned();
    copy::make_directory(&parent)?;
    let drafts = sibling(data_dir, UNFINISHED);
    let draft = drafts.join(UNFINISHED_DATA);
    let lock = sibling(data_dir, ".restoring.lock");
    let Some(_lock) = Lock::take(&lock)? else {
        return Err(BackupError::InUse(data_dir.to_owned()));
    };
    match leftovers {
        // Left by a restore that was killed.
        Leftovers::Removed => copy::remove(&drafts)?,
        Leftovers::Kept => refuse_foreign(&drafts)?,
    }
    let filled = fill(&draft).and_then(|()| complete(&draft));
    let restored = filled.and_then(|()| {
        forget_acknowledged(&draft)?;
        copy::sync_directories(&draft)?;
        refuse_nonempty(data_dir)?;
        match fs::rename(&draft, data_dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                Err(BackupError::Other(format!(
                    "{} cannot be replaced, for example because something is mounted there: restore \
                     into a new directory below it",
                    data_dir.display()
                )))
            }
            renamed => renamed.map_err(failed(data_dir)),
        }
    });
    if let Err(error) = restored {
        // The original error matters more; otherwise the next restore removes the remainder.
        if leftovers == Leftovers::Removed {
            let _ = copy::remove(&drafts);
        }
        let _ = fs::remove_file(&lock);
        return Err(error);
    }
    copy::remove(&drafts)?;
    fs::remove_file(&lock).map_err(failed(&lock))?;
    copy::sync_directory(&parent)
}

/// Refuses what another account has prepared where a restoration goes on: a link in it would lead elsewhere.
fn refuse_foreign(drafts: &Path) -> Result<(), BackupError> {
    let found = match fs::symlink_metadata(drafts) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed(drafts))?,
    };
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(BackupError::Other(format!(
        "{} is not a directory of this account, in which a restoration could go on: remove it, or restore into \
         another directory",
        drafts.display()
    )))
}

/// Returns the files to restore, and the paths of those that are left out. The key of compiled code
/// is left out without a word: programs are compiled again.
fn sorted(backup: &Path, manifest: &Manifest) -> Result<(Vec<File>, Vec<String>), BackupError> {
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    for file in &manifest.files {
        match treatment(&file.path) {
            Treatment::Kept => kept.push(file.clone()),
            Treatment::LeftOut if file.path == CODE_KEY => {}
            Treatment::LeftOut => left_out.push(file.path.clone()),
            Treatment::Refused => {
                return Err(BackupError::foreign_file(backup, &file.path));
            }
        }
    }
    Ok((kept, left_out))
}

fn fill(
    draft: &Path,
    backup: &Path,
    manifest: &Manifest,
    files: &[File],
    progress: Progress<'_>,
) -> Result<(), BackupError> {
    copy::make_directory(draft)?;
    for file in files {
        let from = backup.join(&file.path);
        let to = match Path::new(&file.path).strip_prefix(RAW_DIRECTORY) {
            Ok(below) => draft.join(UNFINISHED_RAW).join(below),
            Err(_) => draft.join(&file.path),
        };
        copy::make_directory(copy::parent(&to))?;
        check::verify_file(file, &from, || copy::copy(&from, &to, progress))?;
    }
    if !manifest.matches(&check::read_contents(draft, UNFINISHED_RAW)?) {
        return Err(BackupError::ledger_mismatch(backup));
    }
    forget_acknowledged(draft)?;
    let raw = draft.join(RAW_DIRECTORY);
    fs::rename(draft.join(UNFINISHED_RAW), &raw).map_err(failed(&raw))
}

/// Removes the record of acknowledged writes. What was acknowledged after the backup is unknown, and so are
/// the ids that were given out: the store takes the missing record for that.
pub(super) fn forget_acknowledged(draft: &Path) -> Result<(), BackupError> {
    let acknowledged = draft.join(ACKNOWLEDGED_FILE);
    match fs::remove_file(&acknowledged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&acknowledged)(error)),
        _ => Ok(()),
    }
}

/// Refuses a data directory that is not empty, so that none is overwritten.
fn refuse_nonempty(data_dir: &Path) -> Result<(), BackupError> {
    match fs::read_dir(data_dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(BackupError::Other(format!(
                "{} is not empty: restore into a new directory",
                data_dir.display()
            ))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(data_dir)(error)),
    }
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    // Without a trailing slash, after which the suffix would be a name inside the directory.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::backup::make;
    use crate::domain::{LedgerSet, Network};
    use crate::store::Store;

    /// A data directory with all parts that a backup has, and a backup of it.
    fn backed_up(at: &Path) -> PathBuf {
        let network = Network::from_name_or_passphrase("local");
        let store = Store::open(&at.join("d"), Some(&network)).unwrap();
        for file in ["secrets/token-signing-key", "secrets/compiled-code-key", "sandbox/journal"] {
            let path = at.join("d").join(file);
            copy::make_directory(copy::parent(&path)).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::write(at.join("d/backfill.json"), "{}").unwrap();
        let mut held = None;
        let checkpoint = || {
            let directory = held.insert(store.checkpoint()?).directory().to_owned();
            Ok((directory, LedgerSet::default()))
        };
        make(&at.join("d"), &at.join("b"), None, checkpoint, &mut |_| Ok(())).unwrap().directory
    }

    fn files(directory: &Path) -> BTreeSet<PathBuf> {
        copy::files_below(directory).unwrap().into_iter().collect()
    }

    /// Adds files to a backup, and seals its manifest as whoever can write to it might.
    fn add(backup: &Path, names: &[String]) {
        let mut manifest = Manifest::read(backup).unwrap();
        for name in names {
            let path = backup.join(name);
            copy::make_directory(copy::parent(&path)).unwrap();
            fs::write(&path, "hostile").unwrap();
            let copy::Content { size, sha256 } = copy::hash(&path, &mut |_| Ok(())).unwrap();
            manifest.files.push(File { path: name.clone(), size, sha256 });
        }
        manifest.write(backup).unwrap();
    }

    #[test]
    fn a_hostile_backup_restores_nothing_that_a_backup_does_not_have() {
        const PARTS: [&str; 14] = [
            "raw",
            "secrets",
            "sandbox",
            "compiled",
            "tables",
            "core",
            "x",
            "acknowledged",
            "compiled-code-key",
            "orrery.lock",
            "abab.compiled",
            "000007.sst",
            "tables.duckdb",
            "token-signing-key",
        ];
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let directory = tempfile::tempdir().unwrap();
        let backup = backed_up(directory.path());
        let honest = files(&backup);
        assert!(!honest.contains(Path::new("secrets/compiled-code-key")));
        for number in 0..60 {
            let bad = directory.path().join(format!("bad-{number}"));
            for file in &honest {
                copy::make_directory(copy::parent(&bad.join(file))).unwrap();
                fs::copy(backup.join(file), bad.join(file)).unwrap();
            }
            let names: Vec<String> = (0..random.random_range(1..4))
                .map(|_| {
                    let parts =
                        (0..random.random_range(1..4)).map(|_| *PARTS.choose(&mut random).unwrap());
                    parts.collect::<Vec<_>>().join("/")
                })
                .filter(|name| {
                    let path = bad.join(name);
                    // Neither an existing file nor a path through one.
                    !path.exists() && path.ancestors().skip(1).all(|above| !above.is_file())
                })
                .collect();
            let mut added: Vec<String> = Vec::new();
            for name in names {
                let clashes = |other: &String| {
                    *other == name
                        || name.starts_with(&format!("{other}/"))
                        || other.starts_with(&format!("{name}/"))
                };
                if !added.iter().any(clashes) {
                    added.push(name);
                }
            }
            add(&bad, &added);
            let data_dir = directory.path().join(format!("new-{number}"));
            let outcome = restore(&bad, &data_dir, &|_| Ok(()), &mut |_| Ok(()));
            let Err(error) = outcome else {
                // The only one of these paths that another backup could have.
                let of_database = PathBuf::from("raw/000007.sst");
                for file in files(&data_dir) {
                    let is_known = honest.contains(&file) || file == of_database;
                    assert!(is_known, "{} of {added:?}", file.display());
                }
                continue;
            };
            assert!(!data_dir.exists(), "{added:?}");
            let is_reason =
                |name: &String| treatment(name) == Treatment::Refused || name.starts_with("raw/");
            assert!(added.iter().any(is_reason), "{added:?}: {error}");
        }
    }

    #[test]
    fn a_backup_with_the_key_of_compiled_code_is_restored_without_it() {
        let directory = tempfile::tempdir().unwrap();
        let backup = backed_up(directory.path());
        let honest = files(&backup);
        let others = ["secrets/compiled-code-key".to_owned(), "secrets/partner.pem".to_owned()];
        add(&backup, &others);
        let data_dir = directory.path().join("new");
        let restored = restore(&backup, &data_dir, &|_| Ok(()), &mut |_| Ok(())).unwrap();
        assert_eq!(restored.left_out, ["secrets/partner.pem"]);
        let mut found = files(&data_dir);
        found.extend(["manifest.json", ACKNOWLEDGED_FILE].map(PathBuf::from));
        assert_eq!(found, honest);
        add(&backup, &["compiled/abab.compiled".to_owned()]);
        let refused =
            restore(&backup, &directory.path().join("other"), &|_| Ok(()), &mut |_| Ok(()));
        let sentence = refused.unwrap_err().to_string();
        assert!(
            sentence.contains("compiled/abab.compiled, which orrery backup never writes"),
            "{sentence}"
        );
    }
}
