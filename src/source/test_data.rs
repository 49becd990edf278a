//! Locates the real ledgers that unit tests read.

use std::path::PathBuf;

/// Returns the directory of real ledgers: `ledgers` in `$ORRERY_TEST_DATA`, else in
/// `../shared/data` relative to the crate. Prints a message and returns `None` when it does not
/// exist.
pub(crate) fn ledgers() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data");
    let root = std::env::var_os("ORRERY_TEST_DATA").map_or_else(|| beside.into(), PathBuf::from);
    let ledgers = root.join("ledgers");
    if ledgers.is_dir() {
        return Some(ledgers);
    }
    println!("skipped: there are no real ledgers in {}", ledgers.display());
    None
}
