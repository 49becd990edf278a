//! Location of the project, and of the real ledgers.

use std::path::{Path, PathBuf};

/// The folder of the project's sources.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of test data: `$ORRERY_TEST_DATA`, else `shared/data` beside the project.
pub fn location() -> PathBuf {
    match std::env::var_os("ORRERY_TEST_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => project().join("../shared/data"),
    }
}

/// The folder of the ledgers. Prints a message and returns `None` when they are absent.
pub fn ledgers() -> Option<PathBuf> {
    if missing() { None } else { Some(location().join("ledgers")) }
}

/// As [`location`]; `None` when the data is absent.
pub fn folder() -> Option<PathBuf> {
    let folder = location();
    folder.join("ledgers").is_dir().then_some(folder)
}

/// Whether the data is absent. Prints a message if so, because a skipped test must not look like
/// one that ran.
pub fn missing() -> bool {
    let missing = folder().is_none();
    if missing {
        eprintln!("skipped: no real ledgers (set ORRERY_TEST_DATA to the folder that holds them)");
    }
    missing
}
