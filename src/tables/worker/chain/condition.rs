//! Conditions on the rows of a table of the chain, which hold for all rows that a query needs. They are asked of
//! rows, and of the least and the greatest values of many rows, so that those are not read.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Datum, Int64Array, Scalar, StringArray,
};
use arrow::compute::kernels::cmp;
use arrow::compute::{and_kleene, is_not_null, is_null, or_kleene};
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};
use arrow::error::ArrowError;

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// A column compares to a value in this way.
    Is {
        /// Place of the column in its table.
        column: usize,
        /// How it compares.
        how: Comparison,
        /// The value.
        value: Constant,
    },
    /// A column is null, or is not.
    Null {
        /// Place of the column in its table.
        column: usize,
        /// Whether it is.
        is: bool,
    },
    /// All of these hold.
    All(Vec<Condition>),
    /// One of these holds.
    Any(Vec<Condition>),
}

/// How two values compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A value to which a column is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constant {
    /// A truth value.
    Boolean(bool),
    /// An integer, or microseconds since the UNIX epoch.
    Integer(i64),
    /// A text.
    Text(String),
}

/// What is known of the values of a column in many rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// No value is less.
    pub least: Constant,
    /// No value is greater.
    pub greatest: Constant,
}

impl Comparison {
    /// Returns the comparison with its sides exchanged.
    pub fn exchanged(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

impl Condition {
    /// Returns the places of the columns on which it depends.
    pub fn columns(&self) -> Vec<usize> {
        let mut columns = match self {
            Self::Is { column, .. } | Self::Null { column, .. } => vec![*column],
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::columns).collect(),
        };
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Returns how many comparisons it has.
    pub fn size(&self) -> usize {
        match self {
            Self::Is { .. } | Self::Null { .. } => 1,
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::size).sum(),
        }
    }

    /// Whether it may hold for one of many rows; `span` says what is known of the values of a column.
    pub fn may_hold(&self, span: &impl Fn(usize) -> Option<Span>) -> bool {
        match self {
            Self::Is { column, how, value } => {
                let Some(Span { least, greatest }) = span(*column) else { return true };
                match how {
                    Comparison::Equal => least <= *value && *value <= greatest,
                    Comparison::NotEqual => true,
                    Comparison::Less => least < *value,
                    Comparison::LessOrEqual => least <= *value,
                    Comparison::Greater => greatest > *value,
                    Comparison::GreaterOrEqual => greatest >= *value,
                }
            }
            Self::Null { .. } => true,
            Self::All(parts) => parts.iter().all(|part| part.may_hold(span)),
            Self::Any(parts) => parts.iter().any(|part| part.may_hold(span)),
        }
    }

    /// Asks it of this many rows, whose columns `values` returns. As in SQL, it may be neither true nor false.
    ///
    /// # Errors
    /// When a column has another type than the value to which it is compared.
    pub fn holds(
        &self,
        rows: usize,
        values: &impl Fn(usize) -> Result<ArrayRef, ArrowError>,
    ) -> Result<BooleanArray, ArrowError> {
        let joined = |parts: &[Self], join: Join, empty: bool| {
            let mut parts = parts.iter().map(|part| part.holds(rows, values));
            let first = parts.next().transpose()?;
            let first = first.unwrap_or_else(|| BooleanArray::from(vec![empty; rows]));
            parts.try_fold(first, |all, part| join(&all, &part?))
        };
        match self {
            Self::Is { column, how, value } => compare(&values(*column)?, *how, value),
            Self::Null { column, is: true } => is_null(&values(*column)?),
            Self::Null { column, is: false } => is_not_null(&values(*column)?),
            Self::All(parts) => joined(parts, and_kleene, true),
            Self::Any(parts) => joined(parts, or_kleene, false),
        }
    }
}

type Join = fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, ArrowError>;

fn compare(
    values: &ArrayRef,
    how: Comparison,
    value: &Constant,
) -> Result<BooleanArray, ArrowError> {
    let (values, value): (ArrayRef, ArrayRef) = match value {
        Constant::Boolean(value) => {
            (Arc::clone(values), Arc::new(BooleanArray::from(vec![*value])))
        }
        Constant::Text(value) => (Arc::clone(values), Arc::new(StringArray::from(vec![&**value]))),
        Constant::Integer(value) => {
            let numbers = match values.data_type() {
                DataType::Timestamp(..) => {
                    let times = values.as_primitive::<TimestampMicrosecondType>();
                    Arc::new(times.reinterpret_cast::<Int64Type>())
                }
                _ => Arc::clone(values),
            };
            (numbers, Arc::new(Int64Array::from(vec![*value])))
        }
    };
    let value = Scalar::new(value);
    let (left, right): (&dyn Datum, &dyn Datum) = (&values, &value);
    match how {
        Comparison::Equal => cmp::eq(left, right),
        Comparison::NotEqual => cmp::neq(left, right),
        Comparison::Less => cmp::lt(left, right),
        Comparison::LessOrEqual => cmp::lt_eq(left, right),
        Comparison::Greater => cmp::gt(left, right),
        Comparison::GreaterOrEqual => cmp::gt_eq(left, right),
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const HOW: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    fn random(random: &mut ChaCha8Rng, depth: u32) -> Condition {
        let column = random.random_range(0..2);
        match random.random_range(0..if depth == 0 { 2 } else { 4 }) {
            0 => Condition::Null { column, is: random.random() },
            1 => {
                let number = random.random_range(0..6);
                let value = match column {
                    0 => Constant::Integer(number),
                    _ => Constant::Text(format!("t{number}")),
                };
                Condition::Is { column, how: HOW[random.random_range(0..HOW.len())], value }
            }
            kind => {
                let parts = (0..random.random_range(0..4)).map(|_| self::random(random, depth - 1));
                let parts = parts.collect();
                if kind == 2 { Condition::All(parts) } else { Condition::Any(parts) }
            }
        }
    }

    /// The values of a row: a number and a text, each may be null.
    type Row = (Option<i64>, Option<String>);

    /// Says of one row whether a condition holds.
    fn model(condition: &Condition, row: &Row) -> Option<bool> {
        match condition {
            Condition::Is { column: 0, how, value: Constant::Integer(value) } => {
                Some(ordered(row.0?.cmp(value), *how))
            }
            Condition::Is { column: 1, how, value: Constant::Text(value) } => {
                Some(ordered(row.1.as_ref()?.cmp(value), *how))
            }
            Condition::Is { .. } => unreachable!("values have the types of their columns"),
            Condition::Null { column, is } => {
                let null = if *column == 0 { row.0.is_none() } else { row.1.is_none() };
                Some(null == *is)
            }
            Condition::All(parts) => joined(parts, row, false),
            Condition::Any(parts) => joined(parts, row, true),
        }
    }

    fn ordered(order: std::cmp::Ordering, how: Comparison) -> bool {
        match how {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }

    /// One part that is `decisive` decides; else it is not known if one is not.
    fn joined(parts: &[Condition], row: &Row, decisive: bool) -> Option<bool> {
        let parts: Vec<_> = parts.iter().map(|part| model(part, row)).collect();
        match parts.contains(&Some(decisive)) {
            true => Some(decisive),
            false if parts.contains(&None) => None,
            false => Some(!decisive),
        }
    }

    #[test]
    fn conditions_hold_as_in_sql_and_spans_exclude_no_row() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for _ in 0..2_000 {
            let condition = random(&mut rng, 3);
            let row = |rng: &mut ChaCha8Rng| -> Row {
                let number = rng.random_bool(0.8).then(|| rng.random_range(0..6));
                let text = rng.random_bool(0.8).then(|| format!("t{}", rng.random_range(0..6)));
                (number, text)
            };
            let rows: Vec<Row> = (0..rng.random_range(1..8)).map(|_| row(&mut rng)).collect();
            let numbers = Int64Array::from(rows.iter().map(|row| row.0).collect::<Vec<_>>());
            let texts = StringArray::from(rows.iter().map(|row| row.1.clone()).collect::<Vec<_>>());
            let columns: [ArrayRef; 2] = [Arc::new(numbers), Arc::new(texts)];
            let held = condition.holds(rows.len(), &|at| Ok(Arc::clone(&columns[at]))).unwrap();
            let held: Vec<_> = held.iter().collect();
            let expected: Vec<_> = rows.iter().map(|row| model(&condition, row)).collect();
            assert_eq!(held, expected, "{condition:?} {rows:?}");
            let span = |at: usize| {
                let mut all: Vec<Constant> = match at {
                    0 => rows.iter().filter_map(|row| row.0.map(Constant::Integer)).collect(),
                    _ => rows.iter().filter_map(|row| row.1.clone().map(Constant::Text)).collect(),
                };
                all.sort();
                Some(Span { least: all.first()?.clone(), greatest: all.last()?.clone() })
            };
            if expected.contains(&Some(true)) {
                assert!(condition.may_hold(&span), "{condition:?} {rows:?}");
            }
        }
    }

    #[test]
    fn spans_exclude_what_is_outside() {
        let span = |_| Some(Span { least: Constant::Integer(5), greatest: Constant::Integer(9) });
        for (how, value, may) in [
            (Comparison::Equal, 4, false),
            (Comparison::Equal, 5, true),
            (Comparison::Less, 5, false),
            (Comparison::LessOrEqual, 5, true),
            (Comparison::Greater, 9, false),
            (Comparison::GreaterOrEqual, 9, true),
            (Comparison::GreaterOrEqual, 10, false),
        ] {
            let condition = Condition::Is { column: 0, how, value: Constant::Integer(value) };
            assert_eq!(condition.may_hold(&span), may, "{condition:?}");
            assert!(condition.may_hold(&|_| None));
        }
    }
}
