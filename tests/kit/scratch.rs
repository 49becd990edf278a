//! Directories of tests that write much and need no disk.

use tempfile::TempDir;

/// A directory in memory, where there is one.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
