//! Names of values and of their parts: `amount`, `"Order".price`, `topics[2]`.

use std::fmt;

use super::fields::Fields;
use super::kind::{A_LIST, A_STRUCT, A_UNION, Kind, Type};
use super::lexer::{Lexer, Problem, Token};
use super::name::Name;
use super::value::{Step, Value};

/// The name of a value, or of a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// Name of the value.
    pub root: Name,
    /// Steps to the part.
    pub steps: Vec<Step>,
}

impl Path {
    /// Reads a path: `name ("." name | "[" number "]")*`, with names in quotes where they are no words.
    ///
    /// # Errors
    /// [`Problem`] when the text is anything else, or more.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut lexer = Lexer::new(text)?;
        let path = Self::read(&mut lexer)?;
        match lexer.token() {
            Token::End => Ok(path),
            _ => Err(lexer.unexpected("nothing behind the name")),
        }
    }

    /// Reads the path at the beginning of a text. Returns it with the number of its bytes.
    ///
    /// # Errors
    /// [`Problem`] when the text does not begin with a path.
    pub fn parse_beginning(text: &str) -> Result<(Self, usize), Problem> {
        let mut lexer = Lexer::new(text)?;
        let path = Self::read(&mut lexer)?;
        Ok((path, lexer.end_of_last()))
    }

    /// Reads a path from the present token on.
    pub(crate) fn read(lexer: &mut Lexer<'_>) -> Result<Self, Problem> {
        let root = lexer.take_name("a name")?;
        let mut steps = Vec::new();
        loop {
            match lexer.token() {
                Token::Dot => {
                    lexer.advance()?;
                    steps.push(Step::Member(lexer.take_name("a name behind the '.'")?));
                }
                Token::OpenBracket => {
                    lexer.advance()?;
                    steps.push(Step::Item(number(lexer)?));
                    if *lexer.token() != Token::CloseBracket {
                        return Err(lexer.unexpected("']'"));
                    }
                    lexer.advance()?;
                }
                _ => return Ok(Self { root, steps }),
            }
        }
    }

    /// Returns the value that it names; `None` where there is none of its root's name, null where the value
    /// has no such part.
    pub fn of<'f>(&self, fields: &'f (impl Fields + ?Sized)) -> Option<Value<'f>> {
        Some(self.part_of(fields.field(&self.root)?))
    }

    /// Returns what values it has where those of its root are of a kind. The error says what lacks.
    pub(crate) fn kind<'k>(&self, root: Kind<'k>) -> Result<Kind<'k>, String> {
        let mut kind = root;
        for (at, step) in self.steps.iter().enumerate() {
            kind = kind.part(step).ok_or_else(|| self.no_part(at, kind.scalar()))?;
        }
        Ok(kind)
    }

    /// Says that the value before a step, which is of this type, has no such part.
    fn no_part(&self, at: usize, of: Type) -> String {
        let before = Path { root: self.root.clone(), steps: self.steps[..at].to_vec() };
        let called = of.called();
        match (&self.steps[at], of) {
            (Step::Item(_), Type::Parts(A_LIST)) | (_, Type::Any) => {
                format!("'{before}' has no part '{self}'")
            }
            (Step::Member(name), Type::Parts(A_STRUCT)) => {
                format!("'{before}' has no member {name}")
            }
            (_, Type::Parts(A_UNION)) => {
                format!("'{before}' is a union, which has '.tag' and '.values'")
            }
            (Step::Item(_), _) => format!("'{before}' is {called} and has no items"),
            (Step::Member(_), _) => format!("'{before}' is {called} and has no members"),
        }
    }

    /// Returns the part of the value of its root.
    pub(crate) fn part_of<'v>(&self, root: Value<'v>) -> Value<'v> {
        self.steps.iter().fold(root, |value, step| value.part(step))
    }
}

/// Reads the number of an item.
fn number(lexer: &mut Lexer<'_>) -> Result<usize, Problem> {
    let Token::Number(digits) = lexer.token() else {
        return Err(lexer.unexpected("the number of an item, from 1"));
    };
    let significant = digits.trim_start_matches('0');
    let number = match significant {
        "" => return Err(lexer.unexpected("the number of an item, from 1")),
        // No list has more items.
        _ => significant.parse().unwrap_or(usize::MAX),
    };
    lexer.advance()?;
    Ok(number)
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(out)?;
        for step in &self.steps {
            match step {
                Step::Member(name) => write!(out, ".{name}")?,
                Step::Item(number) => write!(out, "[{number}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_and_written() {
        for (text, written) in [
            ("amount", "amount"),
            (" Pair . token_0 [ 007 ]", "Pair.token_0[7]"),
            ("\"a b\".\"c\"\"d\"[1][2].e", "\"a b\".\"c\"\"d\"[1][2].e"),
            ("\"null\"", "\"null\""),
            ("größe", "größe"),
        ] {
            let path = Path::parse(text).unwrap();
            assert_eq!(path.to_string(), written);
            assert_eq!(Path::parse(written).unwrap(), path);
        }
        let all = Path::parse(&format!("x[{}]", "9".repeat(40))).unwrap();
        assert_eq!(all.steps, [Step::Item(usize::MAX)]);
    }

    #[test]
    fn what_is_no_path_is_refused_with_its_place() {
        for (text, position, what) in [
            ("", 1, "the end"),
            ("a.", 3, "the end"),
            ("a..b", 3, "'.'"),
            ("a[x]", 3, "'x'"),
            ("a[0]", 3, "'0'"),
            ("a[1", 4, "the end"),
            ("a b", 3, "'b'"),
            ("é\"", 2, "not closed"),
            ("\"\"", 1, "empty"),
            ("1", 1, "'1'"),
        ] {
            let problem = Path::parse(text).unwrap_err();
            assert_eq!(problem.position, position, "{text}: {problem}");
            assert!(problem.to_string().contains(what), "{text}: {problem}");
        }
    }

    #[test]
    fn a_path_ends_before_what_cannot_be_part_of_it() {
        for (text, length) in [("a.b[1]|units}", 6), ("a }", 1), ("\"|\"|x", 3), ("a.b§", 3)] {
            assert_eq!(Path::parse_beginning(text).unwrap().1, length, "{text}");
        }
    }
}
