//! Whether the types of a condition's parts go together.

use super::kind::Type;
use super::lexer::Problem;
use super::node::{Node, Part};
use super::path::Path;

/// Finds the type of each part from those of the paths.
pub(crate) struct Check<'c> {
    /// Type of each path.
    pub paths: &'c [(Type, &'c Path)],
}

impl Check<'_> {
    /// Checks that a whole condition is true, false or null.
    pub fn condition(&self, root: &Node) -> Result<(), Problem> {
        self.is(root, Type::Bool, "a condition has to be true or false")
    }

    fn of(&self, node: &Node) -> Result<Type, Problem> {
        Ok(match &node.part {
            Part::Null => Type::Any,
            Part::Bool(_) => Type::Bool,
            Part::Number(_) => Type::Number,
            Part::Text(_) => Type::Text,
            Part::Path(number) => self.paths[*number].0,
            Part::Not(of) => {
                self.is(of, Type::Bool, "'not' stands before what is true or false")?;
                Type::Bool
            }
            Part::All(all) => self.each(all, Type::Bool, "'and' joins what is true or false")?,
            Part::Any(all) => self.each(all, Type::Bool, "'or' joins what is true or false")?,
            Part::Compare(left, _, right) => {
                self.pair(left, right, node.position)?;
                Type::Bool
            }
            Part::IsNull(of) => {
                self.of(of)?;
                Type::Bool
            }
            Part::In(of, items) => {
                for item in items {
                    self.pair(of, item, item.position)?;
                }
                Type::Bool
            }
            Part::Like(text, pattern) => {
                self.is(text, Type::Text, "'like' compares texts")?;
                self.is(pattern, Type::Text, "'like' compares texts")?;
                Type::Bool
            }
            Part::Sum(terms) => {
                for term in terms {
                    self.is(&term.of, Type::Number, "'+' and '-' stand between numbers")?;
                }
                Type::Number
            }
            Part::Product(factors) => {
                self.each(factors, Type::Number, "'*' stands between numbers")?
            }
            Part::Negated(of) => self.is_of(of, Type::Number, "'-' stands before a number")?,
            Part::Abs(of) => self.is_of(of, Type::Number, "'abs' takes a number")?,
            Part::Lower(of) => self.is_of(of, Type::Text, "'lower' takes a text")?,
        })
    }

    fn each(&self, all: &[Node], expected: Type, rule: &str) -> Result<Type, Problem> {
        for node in all {
            self.is(node, expected, rule)?;
        }
        Ok(expected)
    }

    fn is_of(&self, node: &Node, expected: Type, rule: &str) -> Result<Type, Problem> {
        self.is(node, expected, rule).map(|()| expected)
    }

    fn is(&self, node: &Node, expected: Type, rule: &str) -> Result<(), Problem> {
        let found = self.whole(node)?;
        if found == expected || found == Type::Any {
            return Ok(());
        }
        let what = format!("{} is {}, and {rule}", self.called(node), found.called());
        Err(Problem { position: node.position, what })
    }

    /// Checks that two values can be compared.
    fn pair(&self, left: &Node, right: &Node, position: usize) -> Result<(), Problem> {
        let (a, b) = (self.whole(left)?, self.whole(right)?);
        if a == b || a == Type::Any || b == Type::Any {
            return Ok(());
        }
        let (left, right) = (self.called(left), self.called(right));
        let what = format!(
            "{left} is {}, and {right} is {}: compare values of one type",
            a.called(),
            b.called()
        );
        Err(Problem { position, what })
    }

    /// Returns the type of a value that stands beside another, which one with parts cannot.
    fn whole(&self, node: &Node) -> Result<Type, Problem> {
        match self.of(node)? {
            Type::Parts(called) => {
                let part = match called {
                    "a list" => "one of its items, as in '[1]'",
                    _ => "one of its members, as in '.name'",
                };
                let what = format!("{} is {called}: name {part}", self.called(node));
                Err(Problem { position: node.position, what })
            }
            found => Ok(found),
        }
    }

    /// Returns how a part is called in an error.
    fn called(&self, node: &Node) -> String {
        match &node.part {
            Part::Path(number) => format!("'{}'", self.paths[*number].1),
            Part::Number(number) => number.to_string(),
            Part::Text(text) => format!("the text '{}'", orrery_ledger::domain::excerpt(text)),
            Part::Bool(value) => value.to_string(),
            Part::Null => "null".to_owned(),
            Part::Sum(_) => "this sum".to_owned(),
            Part::Product(_) => "this product".to_owned(),
            Part::Negated(_) | Part::Abs(_) => "this number".to_owned(),
            Part::Lower(_) => "this text".to_owned(),
            Part::Not(_)
            | Part::All(_)
            | Part::Any(_)
            | Part::Compare(..)
            | Part::IsNull(_)
            | Part::In(..)
            | Part::Like(..) => "this comparison".to_owned(),
        }
    }
}
