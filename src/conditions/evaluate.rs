//! Whether a condition holds: three-valued logic over exact values. Nothing fails: what has no value is null.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::integer::Integer;
use super::like::is_like;
use super::node::{Comparison, Node, Part, Term};
use super::value::Value;

/// True, false or null.
type Truth = Option<bool>;

/// Evaluates the parts of a condition.
pub(crate) struct Evaluation<'v> {
    /// Values of its paths.
    pub values: &'v [Value<'v>],
}

impl<'v> Evaluation<'v> {
    /// Whether the whole is true.
    pub fn holds(&self, root: &'v Node) -> bool {
        self.truth(root) == Some(true)
    }

    fn truth(&self, node: &'v Node) -> Truth {
        match &node.part {
            Part::Not(of) => self.truth(of).map(|truth| !truth),
            Part::All(all) => self.decided(all, false),
            Part::Any(all) => self.decided(all, true),
            Part::Compare(left, comparison, right) => {
                let order = order(&self.value(left), &self.value(right))?;
                Some(comparison.holds(order))
            }
            Part::IsNull(of) => Some(self.value(of).is_null()),
            Part::In(of, items) => self.is_in(of, items),
            Part::Like(text, pattern) => match (self.value(text), self.value(pattern)) {
                (Value::Text(text), Value::Text(pattern)) => Some(is_like(&text, &pattern)),
                _ => None,
            },
            _ => match self.value(node) {
                Value::Bool(truth) => Some(truth),
                _ => None,
            },
        }
    }

    /// Returns the truth of several: `decisive` where one is, else null where one is, else the other.
    fn decided(&self, all: &'v [Node], decisive: bool) -> Truth {
        let mut truth = Some(!decisive);
        for node in all {
            match self.truth(node) {
                Some(found) if found == decisive => return Some(decisive),
                Some(_) => {}
                None => truth = None,
            }
        }
        truth
    }

    fn is_in(&self, of: &'v Node, items: &'v [Node]) -> Truth {
        let value = self.value(of);
        let mut truth = Some(false);
        for item in items {
            match order(&value, &self.value(item)) {
                Some(Ordering::Equal) => return Some(true),
                Some(_) => {}
                None => truth = None,
            }
        }
        truth
    }

    fn value(&self, node: &'v Node) -> Value<'v> {
        let number = |number: Option<Integer>| number.map_or(Value::Null, Value::Number);
        match &node.part {
            Part::Null => Value::Null,
            Part::Bool(value) => Value::Bool(*value),
            Part::Number(number) => Value::Number(number.clone()),
            Part::Text(text) => Value::Text(Cow::Borrowed(text)),
            Part::Path(number) => self.values[*number].clone(),
            Part::Sum(terms) => number(self.sum(terms)),
            Part::Product(factors) => number(self.product(factors)),
            Part::Negated(of) => number(self.number(of).map(|it| it.negated())),
            Part::Abs(of) => number(self.number(of).map(|it| it.abs())),
            Part::Lower(of) => match self.value(of) {
                Value::Text(text) => Value::Text(Cow::Owned(lower(&text))),
                _ => Value::Null,
            },
            Part::Not(_)
            | Part::All(_)
            | Part::Any(_)
            | Part::Compare(..)
            | Part::IsNull(_)
            | Part::In(..)
            | Part::Like(..) => self.truth(node).map_or(Value::Null, Value::Bool),
        }
    }

    fn sum(&self, terms: &'v [Term]) -> Option<Integer> {
        terms.iter().try_fold(Integer::ZERO, |sum, Term { is_subtracted, of }| {
            let term = self.number(of)?;
            Some(if *is_subtracted { sum.minus(&term) } else { sum.plus(&term) })
        })
    }

    fn product(&self, factors: &'v [Node]) -> Option<Integer> {
        factors
            .iter()
            .try_fold(Integer::from(1), |product, of| Some(product.times(&self.number(of)?)))
    }

    fn number(&self, node: &'v Node) -> Option<Integer> {
        match self.value(node) {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// Compares two values; `None` where one is null, or they are of different types.
fn order(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Some(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterEqual => order.is_ge(),
        }
    }
}

/// Maps each character by itself to its small letter.
fn lower(text: &str) -> String {
    // Only one character, a capital I with a dot, has more than one, of which the first is the letter.
    text.chars().map(|letter| letter.to_lowercase().next().unwrap_or(letter)).collect()
}
