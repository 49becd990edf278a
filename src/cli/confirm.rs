//! Asks before something is lost.

use std::io::{self, BufRead, IsTerminal, Write};

use super::Failure;

/// Asks on a terminal whether to delete something, which cannot be undone. Where nobody can be asked,
/// nothing is deleted.
pub fn confirm_deletion(what: &str) -> Result<(), Failure> {
    let (input, mut output) = (io::stdin(), io::stderr());
    if !input.is_terminal() || !output.is_terminal() {
        return Err(Failure::usage(format!(
            "nobody can be asked here whether to delete {what}: give --yes to delete without a question"
        )));
    }
    let asked = write!(output, "Delete {what}? [y/N] ").and_then(|()| output.flush());
    let mut answer = String::new();
    let read = asked.and_then(|()| input.lock().read_line(&mut answer));
    read.map_err(|error| Failure::failed(format!("cannot ask on this terminal: {error}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::failed("nothing was deleted")),
    }
}
