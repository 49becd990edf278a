//! Free disk, checked before it is taken.

use std::path::Path;

use rustix::fs::statvfs;

use crate::error::{CheckpointError, Result};

/// Checks that `needed` bytes can be written below `directory` while `spare` bytes stay free.
///
/// # Errors
/// When they cannot; the sentence begins with `what` takes them.
pub(crate) fn check(directory: &Path, what: &str, needed: u64, spare: u64) -> Result<()> {
    let shown = directory.display();
    let disk = statvfs(directory)
        .map_err(|error| CheckpointError::Failed(format!("{shown} cannot be used: {error}")))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if needed.saturating_add(spare) <= free {
        return Ok(());
    }
    let [needed, spare, free] = [needed, spare, free].map(|bytes| bytes.div_ceil(1_000_000));
    Err(CheckpointError::Failed(format!(
        "{what} takes {needed} MB in {shown}, where {free} MB are free and {spare} MB have to stay \
         free: make room, or give another directory"
    )))
}
