//! Writes to standard output, and formats text for people on a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

use super::Failure;

/// Writes to standard output. A closed pipe, as behind `head`, is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to standard output, as [`print`] does.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a value as one line of JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    match serde_json::to_string(value) {
        Ok(text) => print(&format!("{text}\n")),
        Err(error) => Err(Failure::failed(format!("cannot write JSON: {error}"))),
    }
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Escapes control characters as in JSON. Texts come from a public network, and a terminal would
/// interpret control characters in them: they could change what is on the screen, or break a table.
pub fn escape_control_chars(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => spelled.push_str("\\n"),
            '\r' => spelled.push_str("\\r"),
            '\t' => spelled.push_str("\\t"),
            control if control.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(spelled, "\\u{:04x}", u32::from(control));
            }
            other => spelled.push(other),
        }
    }
    Cow::Owned(spelled)
}

/// Escapes control characters in a text of several lines, and keeps its line breaks.
pub fn escape_control_lines(text: &str) -> String {
    text.lines().map(escape_control_chars).collect::<Vec<_>>().join("\n")
}

/// Formats UNIX seconds as ISO 8601 in UTC.
pub fn iso_time(seconds: u64) -> String {
    use time::format_description::well_known::Rfc3339;
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{seconds} s after 1970"))
}

/// Formats a number of seconds in a unit that suits its size.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Formats a count with commas between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        assert_eq!(escape_control_chars("plain · …"), "plain · …");
        assert_eq!(
            escape_control_chars("\u{1b}[31m\n\r\t\u{7f}\u{9b}2J\u{0}"),
            r"\u001b[31m\n\r\t\u007f\u009b2J\u0000"
        );
        assert_eq!(escape_control_lines("a\u{7}\r\nb\rc\n"), "a\\u0007\nb\\rc");
        // JSON remains JSON with the same meaning.
        let json = "\"\u{9b}\u{7f}\"";
        let read = |text: &str| serde_json::from_str::<String>(text).unwrap();
        assert_eq!(read(&escape_control_lines(json)), read(json));
    }

    #[test]
    fn shows_numbers_as_people_read_them() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (63_092_993, "63,092,993")]
        {
            assert_eq!(count(number), text);
        }
        assert_eq!(iso_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(duration(90), "90 s");
        assert_eq!(duration(7200), "2 h");
    }
}
