//! `orrery generate`: writes man pages and shell completions, generated from the command line's
//! definition, for packages.

use std::fs::{File, create_dir_all};
use std::io::Error as IoError;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};

use super::completions::{self, SupportedShell};
use super::{Arguments, Failure};

/// Write man pages and shell completions, for packages
///
/// Creates man1/ in DIRECTORY with a page for every command, and bash/, zsh/ and fish/ with a completion
/// file each. The same version of the program always writes the same bytes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  orrery generate out")]
pub struct Generate {
    /// Output directory; created if it does not exist
    directory: PathBuf,
}

impl Generate {
    pub fn run(self) -> Result<(), Failure> {
        let pages = create_subdirectory(&self.directory, "man1")?;
        clap_mangen::generate_to(Arguments::command(), &pages)
            .map_err(|error| write_error(&pages, &error))?;
        for shell in SupportedShell::ALL {
            let (name, file) = shell.names();
            let path = create_subdirectory(&self.directory, name)?.join(file);
            let failed = |error: IoError| write_error(&path, &error);
            let mut out = File::create(&path).map_err(failed)?;
            completions::write(shell, &mut out).map_err(failed)?;
        }
        Ok(())
    }
}

/// Creates a subdirectory of the output directory, and returns its path.
fn create_subdirectory(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = directory.join(name);
    create_dir_all(&path).map_err(|error| write_error(&path, &error))?;
    Ok(path)
}

fn write_error(path: &Path, error: &IoError) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}
