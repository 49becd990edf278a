//! Names that the operator gives to addresses: the file of `[site] labels`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use orrery_ledger::domain::{address_xdr, excerpt};

/// Maximum size of the file in bytes, and number of its lines.
const MOST_BYTES: u64 = 1 << 20;
const MOST_LINES: usize = 10_000;
/// Maximum number of characters of a name.
const MOST_LETTERS: usize = 40;

/// Names of addresses by the text of the address (strkey, SEP-23).
#[derive(Debug, Default)]
pub struct AddressNames(BTreeMap<String, String>);

impl AddressNames {
    /// Reads a file with an address, a blank and a name in each line.
    ///
    /// # Errors
    /// A sentence that says why it cannot be read, or what is wrong in which line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(format!("has more than {MOST_BYTES} bytes: leave some addresses out"));
        }
        let text = String::from_utf8(bytes).map_err(|_| "is not text in UTF-8".to_owned())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut names = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let problem = |what: String| format!("line {}: {what}", index + 1);
            if index == MOST_LINES {
                return Err(problem(format!("there are more than {MOST_LINES} lines")));
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (address, name) = entry(line).map_err(problem)?;
            if names.insert(address.to_owned(), name.to_owned()).is_some() {
                return Err(problem(format!("{address} has a name in an earlier line already")));
            }
        }
        Ok(Self(names))
    }

    /// Returns all addresses with their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(address, name)| (address.as_str(), name.as_str()))
    }

    /// Returns the name of an address.
    pub(super) fn of(&self, address: &str) -> Option<&str> {
        self.0.get(address).map(String::as_str)
    }
}

/// Returns the address and the name of a line.
fn entry(line: &str) -> Result<(&str, &str), String> {
    let (address, name) = line
        .split_once(char::is_whitespace)
        .ok_or_else(|| "give an address, a blank and a name".to_owned())?;
    let name = name.trim();
    address_xdr(address).map_err(|error| format!("the address is malformed: {error}"))?;
    if name.chars().count() > MOST_LETTERS {
        return Err(format!("the name has more than {MOST_LETTERS} characters"));
    }
    match name.chars().find(|letter| !is_visible(*letter)) {
        None => Ok((address, name)),
        Some(letter) => Err(format!(
            "the name '{}' has the character U+{:04X}, which is not seen or changes the direction of \
             writing",
            excerpt(name),
            u32::from(letter)
        )),
    }
}

/// Whether a character is seen, and changes nothing but its own place: no control or format character
/// (Unicode, general categories Cc and Cf) and no separator of lines.
fn is_visible(letter: char) -> bool {
    let is_format = matches!(
        letter,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !letter.is_control() && !is_format
}

/// Returns what is shown of a symbol that the author of a contract has chosen: letters, digits and a few
/// signs, of which at most 12, so that it is not taken for more than a symbol. `None` if nothing is left.
pub(super) fn shown_symbol(symbol: &str) -> Option<String> {
    let is_shown = |letter: &char| letter.is_alphanumeric() || "._-+$".contains(*letter);
    let shown: String = symbol.chars().filter(is_shown).take(12).collect();
    Some(shown).filter(|shown| !shown.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";

    #[test]
    fn names_are_read_by_address() {
        let text = format!("# ours\r\n\n{CONTRACT}\tNative  asset \n");
        let names = AddressNames::parse(&text).unwrap();
        assert_eq!(names.of(CONTRACT), Some("Native  asset"));
        assert_eq!(names.of("GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ"), None);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, part) in [
            (format!("\n{CONTRACT}"), "line 2: give an address"),
            ("CAS3 x".to_owned(), "line 1: the address is malformed"),
            (format!("{CONTRACT} {}", "x".repeat(41)), "more than 40"),
            (format!("{CONTRACT} a\u{202e}b"), "U+202E"),
            (format!("{CONTRACT} a\n{CONTRACT} b"), "line 2: CAS3"),
            ("#\n".repeat(MOST_LINES + 1), "line 10001: there are more"),
        ] {
            let reason = AddressNames::parse(&text).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_symbol_is_short_and_of_plain_characters() {
        assert_eq!(shown_symbol("USDC").as_deref(), Some("USDC"));
        assert_eq!(shown_symbol("\u{2713} a\u{202e}b<c>").as_deref(), Some("abc"));
        assert_eq!(shown_symbol(&"W".repeat(40)).unwrap().len(), 12);
        assert_eq!(shown_symbol("\u{200b} \u{1f600}"), None);
    }
}
