//! The parts of a condition.

use super::integer::Integer;

/// A part of a condition.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Number of its first character, from 1.
    pub position: usize,
    pub part: Part,
}

#[derive(Debug, Clone)]
pub(crate) enum Part {
    Null,
    Bool(bool),
    Number(Integer),
    Text(String),
    /// The value of the path with this number.
    Path(usize),
    Not(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Compare(Box<Node>, Comparison, Box<Node>),
    IsNull(Box<Node>),
    In(Box<Node>, Vec<Node>),
    Like(Box<Node>, Box<Node>),
    Sum(Vec<Term>),
    Product(Vec<Node>),
    Negated(Box<Node>),
    Abs(Box<Node>),
    Lower(Box<Node>),
}

/// A part of a sum.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    pub is_subtracted: bool,
    pub of: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Node {
    /// Returns the place where the path with a number is first named.
    pub fn place_of_path(&self, number: usize) -> Option<usize> {
        let first = |nodes: &[Node]| nodes.iter().find_map(|node| node.place_of_path(number));
        match &self.part {
            Part::Path(own) => (*own == number).then_some(self.position),
            Part::Null | Part::Bool(_) | Part::Number(_) | Part::Text(_) => None,
            Part::All(nodes) | Part::Any(nodes) | Part::Product(nodes) => first(nodes),
            Part::Sum(terms) => terms.iter().find_map(|term| term.of.place_of_path(number)),
            Part::Compare(left, _, right) | Part::Like(left, right) => {
                left.place_of_path(number).or_else(|| right.place_of_path(number))
            }
            Part::In(of, items) => of.place_of_path(number).or_else(|| first(items)),
            Part::Not(of)
            | Part::IsNull(of)
            | Part::Negated(of)
            | Part::Abs(of)
            | Part::Lower(of) => of.place_of_path(number),
        }
    }
}
