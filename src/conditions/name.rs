//! Names of values.

use std::fmt;

/// Words that mean something, and are names only in quotes.
pub(crate) const KEYWORDS: [&str; 9] =
    ["and", "or", "not", "is", "in", "like", "null", "true", "false"];

/// A name. SQL treats names that differ in the case of ASCII letters alone as equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    written: String,
    folded: String,
}

impl Name {
    /// A name as it is written, without quotes.
    pub fn new(written: impl Into<String>) -> Self {
        let written = written.into();
        Self { folded: orrery_interfaces::names::folded(&written), written }
    }

    /// The name as it was written.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The name in the form that all equal ones have.
    pub fn folded(&self) -> &str {
        &self.folded
    }

    /// Whether another name is equal to it, as SQL compares names.
    pub fn is(&self, other: &str) -> bool {
        self.folded.eq_ignore_ascii_case(other)
    }
}

/// As it has to be written: in quotes unless it is a word.
impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_word(&self.written) {
            true => out.write_str(&self.written),
            false => write!(out, "\"{}\"", self.written.replace('"', "\"\"")),
        }
    }
}

/// Whether a name can be written without quotes.
fn is_word(name: &str) -> bool {
    let is_keyword = KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(name));
    !is_keyword
        && name.chars().all(is_of_word)
        && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// Whether a letter may be part of a word.
pub(crate) fn is_of_word(letter: char) -> bool {
    letter == '_'
        || letter.is_ascii_alphanumeric()
        || (!letter.is_ascii() && letter.is_alphanumeric())
}
