//! `orrery completions`: prints the completions of a shell, generated from the definition of the
//! command line.

use std::io::{self, Write};

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Generator, Shell};

use super::{Arguments, Failure, output};

/// Print the completions of a shell
///
/// The Debian package and the tarball install them. For a binary alone, write them to where the shell looks for them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery completions bash > ~/.local/share/bash-completion/completions/orrery
  orrery completions zsh > ~/.zfunc/_orrery
  orrery completions fish > ~/.config/fish/completions/orrery.fish")]
pub struct Completions {
    /// The shell
    shell: SupportedShell,
}

/// A shell with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SupportedShell {
    Bash,
    Zsh,
    Fish,
}

impl SupportedShell {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bash, Self::Zsh, Self::Fish];

    /// Returns the name of the shell, and that of the file in which it looks for completions.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Bash => ("bash", "orrery"),
            Self::Zsh => ("zsh", "_orrery"),
            Self::Fish => ("fish", "orrery.fish"),
        }
    }
}

impl Completions {
    pub fn run(self) -> Result<(), Failure> {
        let mut text = Vec::new();
        write(self.shell, &mut text).map_err(|error| Failure::failed(error.to_string()))?;
        output::print(&String::from_utf8_lossy(&text))
    }
}

/// Writes the completions of a shell.
///
/// # Errors
/// Those of `out`.
pub fn write(shell: SupportedShell, out: &mut dyn Write) -> io::Result<()> {
    let generator = match shell {
        SupportedShell::Bash => Shell::Bash,
        SupportedShell::Zsh => Shell::Zsh,
        SupportedShell::Fish => Shell::Fish,
    };
    let mut command = Arguments::command();
    command.set_bin_name("orrery");
    command.build();
    Generator::try_generate(&generator, &command, out)
}
