//! What a condition says, part by part, without regard to speed.

use std::cmp::Ordering;
use std::collections::HashMap;

use orrery_testkit::random_conditions::Expr;

use crate::decimal::Decimal;

/// A value of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
}

/// Values by the names as conditions write them.
pub type Row = HashMap<String, Value>;

/// The value of a part.
pub fn value(expr: &Expr, row: &Row) -> Value {
    let truth = |truth: Option<bool>| truth.map_or(Value::Null, Value::Bool);
    match expr {
        Expr::Null => Value::Null,
        Expr::Bool(value) => Value::Bool(*value),
        Expr::Number(digits) => Value::Number(Decimal::new(digits)),
        Expr::Text(text) => Value::Text(text.clone()),
        Expr::Name(name) => row[name].clone(),
        Expr::Not(of) => truth(bool_of(of, row).map(|it| !it)),
        Expr::And(all) => {
            let all: Vec<_> = all.iter().map(|it| bool_of(it, row)).collect();
            truth(if all.contains(&Some(false)) {
                Some(false)
            } else if all.contains(&None) {
                None
            } else {
                Some(true)
            })
        }
        Expr::Or(all) => {
            let all: Vec<_> = all.iter().map(|it| bool_of(it, row)).collect();
            truth(if all.contains(&Some(true)) {
                Some(true)
            } else if all.contains(&None) {
                None
            } else {
                Some(false)
            })
        }
        Expr::Compare(left, sign, right) => {
            truth(order(&value(left, row), &value(right, row)).map(|order| match *sign {
                "=" => order == Ordering::Equal,
                "!=" => order != Ordering::Equal,
                "<" => order == Ordering::Less,
                "<=" => order != Ordering::Greater,
                ">" => order == Ordering::Greater,
                ">=" => order != Ordering::Less,
                other => panic!("{other}"),
            }))
        }
        Expr::IsNull(of, is_not) => Value::Bool((value(of, row) == Value::Null) != *is_not),
        Expr::In(of, items, is_not) => {
            let of = value(of, row);
            let equal: Vec<_> = items
                .iter()
                .map(|item| order(&of, &value(item, row)).map(|it| it == Ordering::Equal))
                .collect();
            let is_in = if equal.contains(&Some(true)) {
                Some(true)
            } else if equal.contains(&None) {
                None
            } else {
                Some(false)
            };
            truth(is_in.map(|is_in| is_in != *is_not))
        }
        Expr::Like(text, pattern, is_not) => match (value(text, row), value(pattern, row)) {
            (Value::Text(text), Value::Text(pattern)) => {
                let letters = |text: &str| text.chars().collect::<Vec<_>>();
                Value::Bool(like(&letters(&text), &letters(&pattern)) != *is_not)
            }
            _ => Value::Null,
        },
        Expr::Sum(left, sign, right) => numbers(left, right, row, |a, b| match sign {
            '+' => a.plus(b),
            _ => a.plus(&b.negated()),
        }),
        Expr::Product(left, right) => numbers(left, right, row, Decimal::times),
        Expr::Minus(of) => number(of, row, Decimal::negated),
        Expr::Abs(of) => number(of, row, Decimal::abs),
        Expr::Lower(of) => match value(of, row) {
            Value::Text(text) => {
                let small = |letter: char| match letter {
                    'İ' => 'i',
                    letter => {
                        let small: Vec<char> = letter.to_lowercase().collect();
                        assert_eq!(small.len(), 1, "{letter}");
                        small[0]
                    }
                };
                Value::Text(text.chars().map(small).collect())
            }
            _ => Value::Null,
        },
    }
}

fn bool_of(expr: &Expr, row: &Row) -> Option<bool> {
    match value(expr, row) {
        Value::Bool(value) => Some(value),
        _ => None,
    }
}

fn number(of: &Expr, row: &Row, compute: impl Fn(&Decimal) -> Decimal) -> Value {
    match value(of, row) {
        Value::Number(of) => Value::Number(compute(&of)),
        _ => Value::Null,
    }
}

fn numbers(
    left: &Expr,
    right: &Expr,
    row: &Row,
    compute: impl Fn(&Decimal, &Decimal) -> Decimal,
) -> Value {
    match (value(left, row), value(right, row)) {
        (Value::Number(left), Value::Number(right)) => Value::Number(compute(&left, &right)),
        _ => Value::Null,
    }
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Some(a.order(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

fn like(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|at| like(&text[at..], rest)),
        [expected, rest @ ..] => match text {
            [letter, text @ ..] => (*expected == '_' || expected == letter) && like(text, rest),
            [] => false,
        },
    }
}
