//! Runs a command on a pseudo-terminal, which the system's `script` creates.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

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
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let program = program::orrery();
    let program = program.to_str().unwrap();
    let words = std::iter::once(program).chain(arguments.iter().copied());
    let line = words.map(quoted).collect::<Vec<_>>().join(" ");
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).current_dir(directory);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORRERY_") {
            command.env_remove(name);
        }
    }
    command.envs(settings.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: this machine has no `script`, which makes terminals");
            return None;
        }
        child => child.unwrap(),
    };
    // Kept open, because `script` would type the end of its own input into the terminal.
    let mut input = child.stdin.take();
    input.as_mut().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    Some((text, output.status.code().unwrap_or(-1)))
}
