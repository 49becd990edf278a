//! Where unit tests find real ledgers.

use std::path::PathBuf;

/// The directory of real ledgers: `ledgers` in `$ORRERY_TEST_DATA`, else beside the crate. Says so when
/// there is none.
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
