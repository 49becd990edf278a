//! Columns whose names are reserved words of SQL, such as `from`: events often have them, and DuckDB's
//! parser only says where it stopped.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Words after which columns stand.
const BEFORE_COLUMNS: [&str; 3] = ["select", "distinct", "by"];

/// Returns how to write the reserved words that stand where a column could, around the position at which
/// the parser stopped; `None` when there are none.
pub fn mend(reserved: &BTreeSet<String>, query: &str, at: usize) -> Option<String> {
    let words = words(query);
    let stopped = words.iter().position(|word| word.end > at)?;
    let is_comma = |at: usize| words.get(at).is_some_and(|word| word.text == ",");
    let (mut meant, mut is_near): (Vec<&str>, bool) = (Vec::new(), false);
    for (at, word) in words.iter().enumerate() {
        let is_listed = is_comma(at + 1) || at > 0 && is_comma(at - 1);
        let is_column = is_listed || at == stopped && may_be_column(&words, at);
        if is_column && reserved.contains(&word.text.to_ascii_lowercase()) {
            is_near |= at == stopped || at + 1 == stopped;
            if !meant.contains(&word.text) {
                meant.push(word.text);
            }
        }
    }
    is_near.then(|| {
        let mut mend =
            String::from(". Reserved words are names of columns only in double quotes: ");
        for (at, word) in meant.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            // Writing to a text cannot fail.
            let _ = write!(mend, "{comma}\"{word}\"");
        }
        mend
    })
}

/// Whether a column may stand at the position of a word: before an operator, or after a word that columns
/// follow.
fn may_be_column(words: &[Word<'_>], at: usize) -> bool {
    let Some(next) = words.get(at + 1) else { return false };
    let before = at.checked_sub(1).and_then(|at| words.get(at));
    let follows = before.is_some_and(|word| BEFORE_COLUMNS.iter().any(|it| word.is(it)));
    follows || next.text.starts_with(['=', '<', '>', '!', '.'])
}

/// A word, or a single other character.
struct Word<'q> {
    text: &'q str,
    /// Where it ends, in bytes.
    end: usize,
}

impl Word<'_> {
    fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }
}

/// Returns the words of a query outside of quotes, and its other characters except blanks.
fn words(query: &str) -> Vec<Word<'_>> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        let begin = query.len() - rest.len();
        let length = match first {
            '\'' | '"' => match rest[1..].find(first) {
                Some(end) => end + 2,
                None => rest.len(),
            },
            c if is_of_word(c) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (text, after) = rest.split_at(length);
        if !first.is_whitespace() {
            words.push(Word { text, end: begin + length });
        }
        rest = after;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(query: &str, at: usize) -> Option<String> {
        let reserved = ["select", "from", "to", "where", "order"].map(str::to_owned);
        mend(&reserved.into(), query, at)
    }

    #[test]
    fn columns_that_are_reserved_words_are_named() {
        let query = "select from, to, amount from demo.transfer";
        let mend = mended(query, query.find(',').unwrap()).unwrap();
        assert!(mend.ends_with(r#"double quotes: "from", "to""#), "{mend}");
        let query = "select from from t";
        assert!(mended(query, query.find("from").unwrap()).is_some());
        let query = "select amount from t where to = 'G, from'";
        let mend = mended(query, query.find("to =").unwrap()).unwrap();
        assert!(mend.ends_with(r#": "to""#), "{mend}");
    }

    #[test]
    fn other_errors_are_not_mended() {
        for (query, at) in [
            ("select amount frm t where", 18),
            ("select 1, 2 from from", 17),
            ("select from", 7),
            ("select 'from, to' x y from t", 20),
            ("", 0),
            ("select \"from\", é è ü", 16),
        ] {
            assert_eq!(mended(query, at), None, "{query}");
        }
    }
}
