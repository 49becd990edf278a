//! Templates of messages: the author's words with names in braces between them.
//!
//! `{amount}`, `{pair[1]}` and `{trigger.ledger}` stand for values, `{link}` for a page of this service, `{{`
//! and `}}` for braces. A filter follows a name behind `|`: `short`, or `units` with the token whose unit
//! the number has.

use orrery_conditions::{Path, Problem};
use orrery_ledger::domain::{ContractId, excerpt};

/// Maximum length of a template, in bytes.
pub const LONGEST_TEMPLATE: usize = 4096;
/// Maximum number of names in a template. Telegram ignores all markup of a message behind a hundred
/// pieces of it.
pub const MOST_NAMES: usize = 50;

/// What stands in braces for a page of this service.
const LINK: &str = "link";

/// A template that can be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Words of the author.
    Words(String),
    /// The value of a name.
    Name(Path, Filter),
    /// The page of what the message is about.
    Link,
}

/// How a value is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// As it is.
    None,
    /// The first and the last four characters, as of an address.
    Short,
    /// A number of the smallest unit of a token, in its unit.
    Units(Token),
}

/// A token, as a template names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// The contract that emitted the event, in events of tokens.
    Emitter,
    /// The contract that is the value of this name.
    Named(Path),
    /// This contract.
    Contract(ContractId),
}

/// Why a text is no template: a sentence that goes on after the name of the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`TemplateError`] about the first mistake, with its place in characters, from 1.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > LONGEST_TEMPLATE {
            let length = text.len();
            return Err(TemplateError(format!(
                "is {length} bytes long: give {LONGEST_TEMPLATE} at the most"
            )));
        }
        if let Some(at) = text.find(|letter: char| letter.is_control() && letter != '\n') {
            let place = place(text, at);
            return Err(TemplateError(format!(
                "has a control character at character {place}: leave it out"
            )));
        }
        let parts = Parser { text, at: 0, parts: Vec::new(), words: String::new() }.parts()?;
        let is_shown = |part: &Part| !matches!(part, Part::Words(text) if text.trim().is_empty());
        if !parts.iter().any(is_shown) {
            let problem = "is empty: give a text, such as \"{name} in ledger {ledger}\"";
            return Err(TemplateError(problem.to_owned()));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Returns the template as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns all names, those of tokens included.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        self.parts
            .iter()
            .flat_map(|part| match part {
                Part::Words(_) | Part::Link => [None, None],
                Part::Name(path, Filter::Units(Token::Named(token))) => [Some(path), Some(token)],
                Part::Name(path, _) => [Some(path), None],
            })
            .flatten()
    }

    /// Returns the tokens in whose units numbers are, in the order of the names.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.parts.iter().filter_map(|part| match part {
            Part::Name(_, Filter::Units(token)) => Some(token),
            Part::Name(..) | Part::Words(_) | Part::Link => None,
        })
    }

    /// Whether it has a link.
    pub fn has_link(&self) -> bool {
        self.parts.contains(&Part::Link)
    }
}

/// Reads the parts of a text.
struct Parser<'t> {
    text: &'t str,
    /// Byte that is read next.
    at: usize,
    parts: Vec<Part>,
    /// The words since the last name.
    words: String,
}

impl<'t> Parser<'t> {
    fn parts(mut self) -> Result<Vec<Part>, TemplateError> {
        let mut names = 0;
        while let Some(letter) = self.rest().chars().next() {
            let next = &self.rest()[letter.len_utf8()..];
            match letter {
                '{' | '}' if next.starts_with(letter) => {
                    self.words.push(letter);
                    self.at += 2;
                }
                '{' => {
                    names += 1;
                    if names > MOST_NAMES {
                        let most = format!("has more than {MOST_NAMES} names: leave some out");
                        return Err(TemplateError(most));
                    }
                    self.end_words();
                    let part = self.name()?;
                    self.parts.push(part);
                }
                '}' => {
                    let place = place(self.text, self.at);
                    return Err(TemplateError(format!(
                        "has a '}}' at character {place} that closes nothing: write '}}}}' for a brace"
                    )));
                }
                letter => {
                    self.words.push(letter);
                    self.at += letter.len_utf8();
                }
            }
        }
        self.end_words();
        Ok(self.parts)
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn end_words(&mut self) {
        if !self.words.is_empty() {
            self.parts.push(Part::Words(std::mem::take(&mut self.words)));
        }
    }

    /// Reads a name in braces.
    fn name(&mut self) -> Result<Part, TemplateError> {
        let opened = self.at;
        self.at += 1;
        let Some(end) = self.rest().find('}') else { return Err(unclosed(self.text, opened)) };
        // In quotes it is the name of a value.
        if self.rest()[..end].trim() == LINK {
            self.at += end + 1;
            return Ok(Part::Link);
        }
        let path = self.path()?;
        self.skip_blanks();
        let filter = match self.rest().strip_prefix('|') {
            None => Filter::None,
            Some(_) => {
                self.at += 1;
                self.filter()?
            }
        };
        self.skip_blanks();
        if !self.rest().starts_with('}') {
            let (place, found) = (place(self.text, self.at), self.rest().chars().next());
            let found = found.map_or_else(|| "the end".to_owned(), |letter| format!("'{letter}'"));
            return Err(TemplateError(format!(
                "has {found} at character {place}, where '}}' or a filter behind '|' was expected"
            )));
        }
        self.at += 1;
        Ok(Part::Name(path, filter))
    }

    fn path(&mut self) -> Result<Path, TemplateError> {
        let begin = self.at;
        let read = Path::parse_beginning(self.rest());
        let (path, length) = read.map_err(|problem| self.malformed(begin, &problem))?;
        self.at += length;
        Ok(path)
    }

    fn filter(&mut self) -> Result<Filter, TemplateError> {
        self.skip_blanks();
        let begin = self.at;
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let word = self.rest().split(|letter| !is_word(letter)).next().unwrap_or_default();
        self.at += word.len();
        let has_token = self.rest().trim_start_matches(' ').starts_with(':');
        match word {
            "short" if !has_token => Ok(Filter::Short),
            "units" if !has_token => Ok(Filter::Units(Token::Emitter)),
            "units" => {
                self.skip_blanks();
                self.at += 1;
                self.token().map(Filter::Units)
            }
            other => Err(TemplateError(format!(
                "has the filter '{}' at character {}: give 'short', 'units', or 'units:' with a parameter \
                 or a contract ID",
                excerpt(other),
                place(self.text, begin)
            ))),
        }
    }

    fn token(&mut self) -> Result<Token, TemplateError> {
        self.skip_blanks();
        let end = self.rest().find('}').unwrap_or(self.rest().len());
        if let Ok(contract) = self.rest()[..end].trim().parse::<ContractId>() {
            self.at += end;
            return Ok(Token::Contract(contract));
        }
        self.path().map(Token::Named)
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    /// Describes a mistake in the name that begins at this byte.
    fn malformed(&self, begin: usize, problem: &Problem) -> TemplateError {
        let character = place(self.text, begin) + problem.position - 1;
        let what = &problem.what;
        TemplateError(format!("has braces without a name: {what} (at character {character})"))
    }
}

fn unclosed(text: &str, at: usize) -> TemplateError {
    let place = place(text, at);
    TemplateError(format!(
        "has a '{{' at character {place} that is not closed: add '}}' behind the name, or write '{{{{' for \
         a brace"
    ))
}

/// Returns the position of a byte in characters, from 1.
fn place(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}
