//! Words, numbers and signs of a condition, with their places.

use std::fmt;

use super::name::{Name, is_of_word};

/// What is wrong with a condition or a path, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} (at character {position})")]
pub struct Problem {
    /// Number of the character, from 1.
    pub position: usize,
    /// What was found and what is expected, or what is to be done.
    pub what: String,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    Word(&'t str),
    /// A name in quotes.
    Quoted(String),
    /// Digits.
    Number(&'t str),
    Text(String),
    Dot,
    OpenBracket,
    CloseBracket,
    Open,
    Close,
    Comma,
    Plus,
    Minus,
    Star,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// A sign that means nothing here.
    Other(&'t str),
    End,
}

/// Signs, the longer ones before their beginnings.
static SIGNS: [(&str, Token<'static>); 18] = [
    ("!=", Token::NotEqual),
    ("<=", Token::LessEqual),
    (">=", Token::GreaterEqual),
    ("--", Token::Other("--")),
    ("<>", Token::Other("<>")),
    ("==", Token::Other("==")),
    (".", Token::Dot),
    ("[", Token::OpenBracket),
    ("]", Token::CloseBracket),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::Comma),
    ("+", Token::Plus),
    ("-", Token::Minus),
    ("*", Token::Star),
    ("=", Token::Equal),
    ("<", Token::Less),
    (">", Token::Greater),
];
/// Signs of other languages, with what is meant.
const MEANT: [(&str, &str); 14] = [
    ("==", "write '=' for equal"),
    ("<>", "write '!=' for not equal"),
    ("||", "write 'or'; texts cannot be joined"),
    ("&&", "write 'and'"),
    ("/*", "there are no comments"),
    ("--", "there are no comments; write '- -' for a minus of a minus"),
    ("/", "there is no division: multiply the other side instead"),
    ("%", "there is no remainder"),
    ("^", "there are no powers"),
    ("::", "there are no casts"),
    ("->", "write '.' for a member, and '[1]' for the first item of a list"),
    ("!", "write 'not'"),
    (";", "give one condition"),
    ("@", "there are no variables"),
];

/// Reads a text token by token.
pub(crate) struct Lexer<'t> {
    text: &'t str,
    token: Token<'t>,
    /// Place of the first byte of the token.
    at: usize,
    /// Place behind the token.
    end: usize,
    /// Place behind the token before.
    last_end: usize,
}

impl<'t> Lexer<'t> {
    /// Begins with the first token.
    pub fn new(text: &'t str) -> Result<Self, Problem> {
        let mut lexer = Self { text, token: Token::End, at: 0, end: 0, last_end: 0 };
        lexer.advance()?;
        lexer.last_end = 0;
        Ok(lexer)
    }

    /// The present token.
    pub fn token(&self) -> &Token<'t> {
        &self.token
    }

    /// Number of the first character of the present token, from 1.
    pub fn position(&self) -> usize {
        self.position_of(self.at)
    }

    /// Number of bytes up to the end of the token before the present one.
    pub fn end_of_last(&self) -> usize {
        self.last_end
    }

    /// Goes on to the next token.
    pub fn advance(&mut self) -> Result<(), Problem> {
        self.last_end = self.end;
        let rest = &self.text[self.end..];
        let blank = rest.len() - rest.trim_start().len();
        self.at = self.end + blank;
        let rest = &rest[blank..];
        let (token, length) = match rest.chars().next() {
            None => (Token::End, 0),
            Some('\'') => {
                self.quoted(rest, '\'').map(|(text, length)| (Token::Text(text), length))?
            }
            Some('"') => {
                let (name, length) = self.quoted(rest, '"')?;
                if name.is_empty() {
                    return Err(self.problem("a name in quotes is empty".to_owned()));
                }
                (Token::Quoted(name), length)
            }
            Some(first) if is_of_word(first) => {
                let length = rest.find(|it| !is_of_word(it)).unwrap_or(rest.len());
                let word = &rest[..length];
                let token = match first.is_ascii_digit() {
                    false => Token::Word(word),
                    true if word.bytes().all(|byte| byte.is_ascii_digit()) => Token::Number(word),
                    true => Token::Other(word),
                };
                (token, length)
            }
            Some(first) => sign(rest, first),
        };
        (self.token, self.end) = (token, self.at + length);
        Ok(())
    }

    /// Takes a name: a word or one in quotes.
    pub fn take_name(&mut self, expected: &str) -> Result<Name, Problem> {
        let name = match &self.token {
            Token::Word(word) => Name::new(*word),
            Token::Quoted(name) => Name::new(name.as_str()),
            _ => return Err(self.unexpected(expected)),
        };
        self.advance()?;
        Ok(name)
    }

    /// Whether the present token is this keyword, in any case.
    pub fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.token, Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// Goes on if the present token is this keyword. Returns whether it was.
    pub fn take_keyword(&mut self, keyword: &str) -> Result<bool, Problem> {
        let is = self.is_keyword(keyword);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    /// The present token is not what is expected.
    pub fn unexpected(&self, expected: &str) -> Problem {
        let meant = match self.token {
            Token::Other(sign) => meant(sign),
            _ => None,
        };
        match meant {
            Some(meant) => self.problem(format!("{} is not known: {meant}", self.token)),
            None => self.problem(format!("{} was found, and {expected} is expected", self.token)),
        }
    }

    /// A problem with the present token.
    pub fn problem(&self, what: String) -> Problem {
        Problem { position: self.position(), what }
    }

    fn position_of(&self, at: usize) -> usize {
        1 + self.text[..at].chars().count()
    }

    /// Returns a text between quotes, in which two stand for one, and its length with them.
    fn quoted(&self, rest: &str, quote: char) -> Result<(String, usize), Problem> {
        let mut text = String::new();
        let mut letters = rest.char_indices().skip(1).peekable();
        while let Some((at, letter)) = letters.next() {
            if letter != quote {
                text.push(letter);
            } else if letters.next_if(|(_, next)| *next == quote).is_some() {
                text.push(quote);
            } else {
                return Ok((text, at + 1));
            }
        }
        Err(self.problem(format!("a {quote} is not closed")))
    }
}

fn sign(rest: &str, first: char) -> (Token<'_>, usize) {
    if let Some((sign, token)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
        return (token.clone(), sign.len());
    }
    let foreign = MEANT.iter().find(|(sign, _)| rest.starts_with(sign));
    let length = foreign.map_or(first.len_utf8(), |(sign, _)| sign.len());
    (Token::Other(&rest[..length]), length)
}

/// Returns what is meant by a sign, or by a number that is not whole.
fn meant(sign: &str) -> Option<&'static str> {
    let known = MEANT.iter().find(|(other, _)| *other == sign).map(|(_, meant)| *meant);
    let is_number = sign.starts_with(|first: char| first.is_ascii_digit());
    known.or(is_number
        .then_some("write whole numbers in digits, and names that begin with one in quotes"))
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Most characters of a token that an error shows.
        const MOST_SHOWN: usize = 40;
        let shown = |text: &str| -> String {
            match text.char_indices().nth(MOST_SHOWN) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text.to_owned(),
            }
        };
        let sign = match self {
            Self::End => return out.write_str("the end"),
            Self::Word(text) | Self::Number(text) | Self::Other(text) => {
                return write!(out, "'{}'", shown(text));
            }
            Self::Quoted(name) => return write!(out, "the name \"{}\"", shown(name)),
            Self::Text(text) => return write!(out, "the text '{}'", shown(text)),
            known => SIGNS.iter().find(|(_, token)| token == known).map_or("", |(sign, _)| *sign),
        };
        write!(out, "'{sign}'")
    }
}
