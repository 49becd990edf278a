//! Escapes control characters in text for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes control characters as in JSON. Texts come from a public network, and a terminal would
/// interpret control characters in them: they could change what is on the screen, or break a table.
pub fn control_chars(text: &str) -> Cow<'_, str> {
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
pub fn control_lines(text: &str) -> String {
    text.lines().map(control_chars).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        assert_eq!(control_chars("plain · …"), "plain · …");
        assert_eq!(
            control_chars("\u{1b}[31m\n\r\t\u{7f}\u{9b}2J\u{0}"),
            r"\u001b[31m\n\r\t\u007f\u009b2J\u0000"
        );
        assert_eq!(control_lines("a\u{7}\r\nb\rc\n"), "a\\u0007\nb\\rc");
        // JSON remains JSON with the same meaning.
        let json = "\"\u{9b}\u{7f}\"";
        let read = |text: &str| serde_json::from_str::<String>(text).unwrap();
        assert_eq!(read(&control_lines(json)), read(json));
    }
}
