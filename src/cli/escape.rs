//! Escapes characters in text for a terminal that it would obey instead of showing them.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal obeys a character instead of showing it: control characters, ends of lines and
/// paragraphs, and characters that change the direction of the text around them (Unicode Standard
/// Annex 9, "Directional Formatting Characters").
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Escapes hidden characters as in JSON. Texts come from a public network, and a terminal would obey
/// such characters: they could change what is on the screen, or break a table.
pub fn control_chars(text: &str) -> Cow<'_, str> {
    escaped(text, |character| match character {
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        '\t' => Some("\\t"),
        _ => None,
    })
}

/// Escapes hidden characters in a text of several lines, and keeps its line breaks.
pub fn control_lines(text: &str) -> String {
    text.lines().map(control_chars).collect::<Vec<_>>().join("\n")
}

/// Escapes hidden characters in JSON, and makes it one line. Its meaning stays the same: line breaks
/// and tabs stand only between values, and other hidden characters only in strings.
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\r' | '\t').then_some(" "))
}

/// Escapes hidden characters in an output for a terminal, and keeps its line breaks and tabs.
pub fn output(text: &str) -> Cow<'_, str> {
    escaped(text, |character| match character {
        '\n' => Some("\n"),
        '\t' => Some("\t"),
        _ => None,
    })
}

/// Escapes hidden characters: as `special` says, or else with their number.
fn escaped(text: &str, special: impl Fn(char) -> Option<&'static str>) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match special(character) {
            Some(written) => spelled.push_str(written),
            None if is_hidden(character) => {
                // Writing to a string cannot fail.
                let _ = write!(spelled, "\\u{:04x}", u32::from(character));
            }
            None => spelled.push(character),
        }
    }
    Cow::Owned(spelled)
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
        assert_eq!(control_chars("a\u{202e}b\u{2066}\u{2028}"), r"a\u202eb\u2066\u2028");
        assert_eq!(output("a\tb\r\n\u{9b}\u{200f}"), "a\tb\\u000d\n\\u009b\\u200f");
        let pretty = "{\n\t\"a\u{9b}\": \"\u{202e}\\n\"\r\n}";
        assert_eq!(json(pretty), r#"{  "a\u009b": "\u202e\n"  }"#);
        // JSON remains JSON with the same meaning.
        let json = "\"\u{9b}\u{7f}\"";
        let read = |text: &str| serde_json::from_str::<String>(text).unwrap();
        assert_eq!(read(&control_lines(json)), read(json));
    }
}
