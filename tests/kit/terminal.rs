//! Runs a command, or a shell with jobs, on a pseudo-terminal, which the system's `script` creates.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::program;

/// Returns what a command writes to a terminal, and its exit code. Prints a message and returns
/// `None` when this machine has no `script`.
pub fn on_terminal(
    directory: &Path,
    arguments: &[&str],
    settings: &[(&str, &str)],
) -> Option<(String, i32)> {
    on_terminal_typing(directory, arguments, settings, "")
}

/// As [`on_terminal`], while somebody types a text.
pub fn on_terminal_typing(
    directory: &Path,
    arguments: &[&str],
    settings: &[(&str, &str)],
    typed: &str,
) -> Option<(String, i32)> {
    let program = program::orrery();
    let program = program.to_str().unwrap();
    let words = std::iter::once(program).chain(arguments.iter().copied());
    let line = words.map(quoted).collect::<Vec<_>>().join(" ");
    let mut command = script(directory, &line, Path::new("/dev/null"));
    command.envs(settings.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = begun(command)?;
    // Kept open, because `script` would type the end of its own input into the terminal.
    let mut input = child.stdin.take();
    input.as_mut().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    Some((text, output.status.code().unwrap_or(-1)))
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command that runs a line of a shell on a terminal, and writes what is shown to a file.
fn script(directory: &Path, line: &str, shown: &Path) -> Command {
    let mut command = Command::new("script");
    command.args(["-q", "-f", "-e", "-c", line]).arg(shown).current_dir(directory);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORRERY_") {
            command.env_remove(name);
        }
    }
    command
}

fn begun(mut command: Command) -> Option<Child> {
    match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: this machine has no `script`, which makes terminals");
            None
        }
        child => Some(child.unwrap()),
    }
}

/// A shell with jobs on a terminal; its input ends when this is dropped.
pub struct Terminal {
    child: Child,
    input: ChildStdin,
    shown: PathBuf,
}

impl Terminal {
    /// Runs a script in a working directory, where `orrery` is the program under test. `None` as for
    /// [`on_terminal`].
    pub fn run(directory: &Path, text: &str) -> Option<Self> {
        let shown = directory.join("terminal");
        let mut command = script(directory, &format!("bash -mc {}", quoted(text)), &shown);
        let programs = program::orrery();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", programs.parent().unwrap().display()));
        command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = begun(command)?;
        let input = child.stdin.take().unwrap();
        Some(Self { child, input, shown })
    }

    /// What the terminal has shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.shown).unwrap_or_default()).into_owned()
    }

    /// Types a text.
    pub fn type_in(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the shell ends; returns its exit code.
    pub fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}
