//! Notices that source files of a project were saved.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

/// Interval between two looks at the files. Watching by the operating system is not possible on all
/// file systems on which people keep their sources.
const INTERVAL: Duration = Duration::from_millis(300);
/// Number of files and folders that are looked at: a person may name a home directory.
const MOST_ENTRIES: usize = 10_000;
/// Folders that hold what was built or fetched. Hidden ones are left out, too.
const NOT_SOURCES: [&str; 2] = ["target", "node_modules"];

/// Times and sizes of the source files of a project.
#[derive(Debug, PartialEq, Eq)]
pub struct Saved(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

impl Saved {
    /// Looks at the files of a folder. What cannot be read is as if it did not exist: an editor may
    /// be replacing it.
    pub fn below(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        let mut left = MOST_ENTRIES;
        while let Some(next) = folders.pop().filter(|_| left > 0) {
            for entry in fs::read_dir(next).into_iter().flatten().flatten().take(left) {
                left -= 1;
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                if kind.is_dir() && is_of_sources(&path) {
                    folders.push(path);
                } else if is_source(&path)
                    && let Ok(file) = fs::metadata(&path)
                {
                    files.insert(path, (file.modified().ok(), file.len()));
                }
            }
        }
        Self(files)
    }

    /// Waits until the files of the folder are no longer as they were, and at rest. Returns false
    /// once `stop` is true.
    pub fn wait_for_change(&self, folder: &Path, stop: &watch::Receiver<bool>) -> bool {
        let mut before = Self::below(folder);
        loop {
            if *stop.borrow() {
                return false;
            }
            thread::sleep(INTERVAL);
            let now = Self::below(folder);
            if now == before && now != *self {
                return true;
            }
            before = now;
        }
    }
}

fn is_of_sources(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| !name.starts_with('.') && !NOT_SOURCES.contains(&name))
}

/// Whether a person edits the file. A build may write `Cargo.lock` and the module.
fn is_source(file: &Path) -> bool {
    let ends = file.extension().and_then(|end| end.to_str());
    ends.is_some_and(|end| ["rs", "toml"].contains(&end))
        || file.file_name().is_some_and(|name| name == "Makefile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_people_edit_are_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("src/lib.rs", "a");
        write("Makefile", "build:");
        let first = Saved::below(folder.path());
        assert_eq!(first.0.len(), 2);
        for built in ["target/release/build.rs", ".git/x.rs", "Cargo.lock", "program.wasm"] {
            write(built, "built");
            assert_eq!(Saved::below(folder.path()), first, "{built}");
        }
        for saved in ["src/lib.rs", "src/test/rows.rs", "Cargo.toml", "Makefile"] {
            let before = Saved::below(folder.path());
            write(saved, "a longer text");
            assert_ne!(Saved::below(folder.path()), before, "{saved}");
        }
    }
}
