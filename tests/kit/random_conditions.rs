//! Generated conditions over named values, as trees and as text.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// A part of a condition.
#[derive(Debug, Clone)]
pub enum Expr {
    Null,
    Bool(bool),
    /// Digits.
    Number(String),
    Text(String),
    /// A name, as it is written.
    Name(String),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(Box<Expr>, &'static str, Box<Expr>),
    /// Whether it is not, rather than is.
    IsNull(Box<Expr>, bool),
    In(Box<Expr>, Vec<Expr>, bool),
    Like(Box<Expr>, Box<Expr>, bool),
    /// `+` or `-`.
    Sum(Box<Expr>, char, Box<Expr>),
    Product(Box<Expr>, Box<Expr>),
    Minus(Box<Expr>),
    Abs(Box<Expr>),
    Lower(Box<Expr>),
}

/// Names of values, as they are written, by their types.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub numbers: Vec<String>,
    pub texts: Vec<String>,
    pub bools: Vec<String>,
}

/// What conditions are made of.
#[derive(Debug, Clone)]
pub struct Material {
    pub names: Names,
    /// Numbers in digits.
    pub numbers: Vec<String>,
    pub texts: Vec<String>,
    pub patterns: Vec<String>,
}

impl Material {
    /// Returns a condition that is up to so many levels deep.
    pub fn condition(&self, rng: &mut ChaCha8Rng, depth: u32) -> Expr {
        let boxed = |expr| Box::new(expr);
        if depth == 0 {
            return self.leaf(rng);
        }
        match rng.random_range(0..10) {
            0 => Expr::Not(boxed(self.condition(rng, depth - 1))),
            1 | 2 => Expr::And(self.several(rng, |rng| self.condition(rng, depth - 1))),
            3 | 4 => Expr::Or(self.several(rng, |rng| self.condition(rng, depth - 1))),
            5 => {
                let of = self.any(rng, depth - 1);
                Expr::IsNull(boxed(of), rng.random())
            }
            6 => {
                let (text, pattern) = (self.text(rng, depth - 1), self.pattern(rng));
                Expr::Like(boxed(text), boxed(pattern), rng.random())
            }
            _ => self.comparison(rng, depth - 1),
        }
    }

    fn leaf(&self, rng: &mut ChaCha8Rng) -> Expr {
        match rng.random_range(0..8) {
            0 => Expr::Bool(rng.random()),
            1 => Expr::Null,
            _ => name(rng, &self.names.bools).unwrap_or(Expr::Bool(true)),
        }
    }

    fn several(
        &self,
        rng: &mut ChaCha8Rng,
        mut part: impl FnMut(&mut ChaCha8Rng) -> Expr,
    ) -> Vec<Expr> {
        let count = rng.random_range(2..=3);
        (0..count).map(|_| part(rng)).collect()
    }

    fn comparison(&self, rng: &mut ChaCha8Rng, depth: u32) -> Expr {
        const SIGNS: [&str; 6] = ["=", "!=", "<", "<=", ">", ">="];
        let kind = rng.random_range(0..5);
        let part = |rng: &mut ChaCha8Rng| match kind {
            0 | 1 => self.number(rng, depth),
            2 | 3 => self.text(rng, depth),
            _ => self.leaf(rng),
        };
        let left = Box::new(part(rng));
        if rng.random_range(0..4) == 0 {
            let items = self.several(rng, part);
            return Expr::In(left, items, rng.random());
        }
        let sign = SIGNS[rng.random_range(0..SIGNS.len())];
        Expr::Compare(left, sign, Box::new(part(rng)))
    }

    fn any(&self, rng: &mut ChaCha8Rng, depth: u32) -> Expr {
        match rng.random_range(0..3) {
            0 => self.number(rng, depth),
            1 => self.text(rng, depth),
            _ => self.leaf(rng),
        }
    }

    fn number(&self, rng: &mut ChaCha8Rng, depth: u32) -> Expr {
        let deeper = |rng: &mut ChaCha8Rng| Box::new(self.number(rng, depth.saturating_sub(1)));
        match rng.random_range(0..if depth == 0 { 6 } else { 11 }) {
            0 => Expr::Number(self.numbers.choose(rng).unwrap().clone()),
            1 if rng.random_range(0..4) == 0 => Expr::Null,
            ..6 => name(rng, &self.names.numbers).unwrap_or(Expr::Number("1".to_owned())),
            6 | 7 => {
                let sign = if rng.random() { '+' } else { '-' };
                Expr::Sum(deeper(rng), sign, deeper(rng))
            }
            8 => Expr::Product(deeper(rng), deeper(rng)),
            9 => Expr::Minus(deeper(rng)),
            _ => Expr::Abs(deeper(rng)),
        }
    }

    fn text(&self, rng: &mut ChaCha8Rng, depth: u32) -> Expr {
        match rng.random_range(0..if depth == 0 { 6 } else { 8 }) {
            0 => Expr::Text(self.texts.choose(rng).unwrap().clone()),
            1 if rng.random_range(0..4) == 0 => Expr::Null,
            ..6 => name(rng, &self.names.texts).unwrap_or(Expr::Text(String::new())),
            _ => Expr::Lower(Box::new(self.text(rng, depth - 1))),
        }
    }

    fn pattern(&self, rng: &mut ChaCha8Rng) -> Expr {
        match rng.random_range(0..5) {
            0 => self.text(rng, 0),
            _ => Expr::Text(self.patterns.choose(rng).unwrap().clone()),
        }
    }
}

fn name(rng: &mut ChaCha8Rng, names: &[String]) -> Option<Expr> {
    names.choose(rng).map(|name| Expr::Name(name.clone()))
}

impl Expr {
    /// Returns the text of a condition, with parentheses where they are needed, and with some more of
    /// them, blanks and capitals at random.
    pub fn written(&self, rng: &mut ChaCha8Rng) -> String {
        let mut out = String::new();
        self.write(0, rng, &mut out);
        out
    }

    /// How strongly the parts hold together: those of weaker ones need parentheses in stronger ones.
    fn strength(&self) -> u8 {
        match self {
            Self::Or(_) => 1,
            Self::And(_) => 2,
            Self::Not(_) => 3,
            Self::Compare(..) | Self::IsNull(..) | Self::In(..) | Self::Like(..) => 4,
            Self::Sum(..) => 5,
            Self::Product(..) => 6,
            Self::Minus(_) => 7,
            _ => 8,
        }
    }

    fn write(&self, least: u8, rng: &mut ChaCha8Rng, out: &mut String) {
        if self.strength() < least || rng.random_range(0..12) == 0 {
            out.push('(');
            self.write_bare(rng, out);
            out.push(')');
        } else {
            self.write_bare(rng, out);
        }
    }

    fn write_bare(&self, rng: &mut ChaCha8Rng, out: &mut String) {
        match self {
            Self::Null => word("null", rng, out),
            Self::Bool(value) => word(if *value { "true" } else { "false" }, rng, out),
            Self::Number(digits) => out.push_str(digits),
            Self::Text(text) => out.push_str(&format!("'{}'", text.replace('\'', "''"))),
            Self::Name(name) => out.push_str(name),
            Self::Not(of) => {
                word("not", rng, out);
                out.push(' ');
                of.write(3, rng, out);
            }
            Self::And(all) => joined(all, "and", 3, rng, out),
            Self::Or(all) => joined(all, "or", 2, rng, out),
            Self::Compare(left, sign, right) => {
                left.write(5, rng, out);
                blank(rng, out);
                out.push_str(sign);
                blank(rng, out);
                right.write(5, rng, out);
            }
            Self::IsNull(of, is_not) => {
                of.write(5, rng, out);
                out.push(' ');
                word(if *is_not { "is not null" } else { "is null" }, rng, out);
            }
            Self::In(of, items, is_not) => {
                of.write(5, rng, out);
                out.push(' ');
                word(if *is_not { "not in" } else { "in" }, rng, out);
                out.push_str(" (");
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push_str(", ");
                    }
                    item.write(5, rng, out);
                }
                out.push(')');
            }
            Self::Like(text, pattern, is_not) => {
                text.write(5, rng, out);
                out.push(' ');
                word(if *is_not { "not like" } else { "like" }, rng, out);
                out.push(' ');
                pattern.write(5, rng, out);
            }
            Self::Sum(left, sign, right) => {
                left.write(5, rng, out);
                out.push_str(&format!(" {sign} "));
                right.write(6, rng, out);
            }
            Self::Product(left, right) => {
                left.write(6, rng, out);
                out.push_str(" * ");
                right.write(7, rng, out);
            }
            Self::Minus(of) => {
                out.push_str("- ");
                of.write(7, rng, out);
            }
            Self::Abs(of) => call("abs", of, rng, out),
            Self::Lower(of) => call("lower", of, rng, out),
        }
    }
}

fn joined(all: &[Expr], keyword: &str, least: u8, rng: &mut ChaCha8Rng, out: &mut String) {
    for (at, part) in all.iter().enumerate() {
        if at > 0 {
            out.push(' ');
            word(keyword, rng, out);
            out.push(' ');
        }
        part.write(least, rng, out);
    }
}

fn call(function: &str, of: &Expr, rng: &mut ChaCha8Rng, out: &mut String) {
    out.push_str(function);
    out.push('(');
    of.write(5, rng, out);
    out.push(')');
}

fn word(word: &str, rng: &mut ChaCha8Rng, out: &mut String) {
    if rng.random_range(0..4) == 0 {
        out.push_str(&word.to_ascii_uppercase());
    } else {
        out.push_str(word);
    }
}

fn blank(rng: &mut ChaCha8Rng, out: &mut String) {
    if rng.random() {
        out.push(' ');
    }
}
