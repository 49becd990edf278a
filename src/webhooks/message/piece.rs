//! The parts of a message before a service's markup: the author's words, values, and links.

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Words of the author, which are plain text.
    Words(String),
    /// A value, which others have chosen.
    Value(String),
    /// A page of this service.
    Link(String),
}

/// What a value is shown as that shows nothing.
const EMPTY: &str = "(empty)";
/// What stands for a character that cannot be shown.
const REPLACEMENT: char = '\u{fffd}';

impl Piece {
    /// A value, with [`REPLACEMENT`] for each character that is hidden, or changes how those around it are
    /// shown. Of more than `most` characters, a few more are kept, so that the length shows.
    pub fn value(text: &str, most: usize) -> Self {
        let shown = |letter| if is_hidden(letter) { REPLACEMENT } else { letter };
        let text: String = text.chars().take(most.saturating_add(1)).map(shown).collect();
        Self::Value(if text.chars().all(is_blank) { EMPTY.to_owned() } else { text })
    }
}

/// Joins neighbours of one kind, and leaves out words that are empty. Without a border between them, no
/// service can take the end of one value and the beginning of the next for markup.
pub fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::Words(before)), Piece::Words(more))
            | (Some(Piece::Value(before)), Piece::Value(more)) => before.push_str(&more),
            (_, Piece::Words(words)) if words.is_empty() => {}
            (_, piece) => all.push(piece),
        }
    }
    all
}

/// Whether a character is not shown, or controls or turns the text around it: controls, ends of lines and
/// paragraphs, and what Unicode calls format characters or default ignorable (Unicode Standard, sections
/// 23.2 to 23.8; `DerivedCoreProperties.txt`).
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a character shows nothing.
fn is_blank(letter: char) -> bool {
    // The pattern of Braille without a dot is the only such symbol that is no white space.
    letter.is_whitespace() || letter == '\u{2800}'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match Piece::value(text, 20) {
            Piece::Value(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_show_every_character_or_its_replacement() {
        for (text, expected) in [
            ("plain · größe 🚀", "plain · größe 🚀"),
            ("a\nb\tc\0d", "a\u{fffd}b\u{fffd}c\u{fffd}d"),
            ("a\u{202e}b\u{2066}\u{200f}\u{61c}", "a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}"),
            (
                "a\u{200b}\u{200d}\u{feff}\u{2060}\u{ad}",
                "a\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            ),
            ("\u{2028}\u{2029}\u{85}", "\u{fffd}\u{fffd}\u{fffd}"),
            ("❤\u{fe0f}\u{e0041}", "❤\u{fffd}\u{fffd}"),
            ("", "(empty)"),
            (" \u{a0}\u{3000}\u{2800}", "(empty)"),
            ("{amount} }}", "{amount} }}"),
            ("123456789012345678901234567890", "123456789012345678901"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn neighbours_of_one_kind_are_one() {
        let words = |text: &str| Piece::Words(text.to_owned());
        let value = |text: &str| Piece::Value(text.to_owned());
        let link = || Piece::Link("l".to_owned());
        let pieces = vec![
            words(""),
            words("a"),
            words("b"),
            value("c"),
            words(""),
            value("d"),
            link(),
            link(),
        ];
        assert_eq!(joined(pieces), [words("ab"), value("cd"), link(), link()]);
    }
}
