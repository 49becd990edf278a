//! Child processes that inherit a descriptor which is not meant for them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Returns the path of a program in `directory` that starts the binary under test with a foreign
/// file open, as when another thread of the service has one open without close-on-exec.
pub fn binary_with_foreign_file(directory: &Path) -> PathBuf {
    // Links, because a file that was just written cannot be executed while another thread forks.
    symlink(env!("CARGO_BIN_EXE_orrery"), directory.join("orrery")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/with_foreign_file.sh");
    let program = directory.join("with-foreign-file");
    symlink(script, &program).unwrap();
    program
}
