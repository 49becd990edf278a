//! Which rows of a table of the chain a query needs, read from DuckDB's own plan of it: the filters directly above
//! where the table is read, and, of a query for the first rows in the order of ledgers, how many. What is not
//! understood here is not used: then more rows are read, and DuckDB filters them.
//!
//! A query that reads a table at several places needs what one of them needs.

use serde_json::Value as Json;

use super::FUNCTION;
use super::condition::{Comparison, Condition, Constant};
use crate::chain::{ChainColumn, ChainTable, ChainType};
use crate::names::LEDGER_OF_CHAIN;
use crate::worker::tree::{ROOT, Tree};

/// Maximum number of comparisons that are used: each is made for every row.
const MAX_COMPARISONS: usize = 64;
/// Maximum depth of conditions that are used.
const MAX_DEPTH: usize = 32;
/// Maximum number of first rows for which the others are not read.
const MAX_FIRST: u64 = 10_000;

/// Which rows of a table a query needs: at the least these.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// Those for which this holds; `None` for all.
    pub condition: Option<Condition>,
    /// Of those the first ones.
    pub first: Option<First>,
}

/// The first rows in the order of ledgers, and all others of the last one's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct First {
    /// How many.
    pub rows: usize,
    /// Whether the newest ledgers come first.
    pub newest: bool,
}

/// Returns which rows of a table a query needs that has this plan (of `json_serialize_plan`, optimized) and these
/// values of its parameters.
pub fn needs(plan: &str, table: &ChainTable, parameters: &[Json]) -> Needs {
    let Some(tree) = Tree::read(plan) else { return Needs::default() };
    let plan = Plan { tree: &tree, table, parameters };
    let reads: Vec<usize> = (ROOT..tree.len()).filter(|at| plan.reads_table(*at)).collect();
    let filters: Vec<_> = reads.iter().map(|at| plan.filter(*at)).collect();
    let first = match (&*reads, &*filters) {
        ([read], [filter]) if filter.is_exact => plan.first(*read),
        _ => None,
    };
    let conditions: Vec<_> = filters.into_iter().map(|filter| filter.condition).collect();
    let is_all = conditions.is_empty() || conditions.iter().any(|it| *it == Condition::All(vec![]));
    let condition = match conditions.len() {
        1 => conditions.into_iter().next(),
        _ => Some(Condition::Any(conditions)),
    };
    let is_small = |it: &Condition| it.size() <= MAX_COMPARISONS;
    let uses_all = !is_all && condition.as_ref().is_some_and(is_small);
    Needs {
        first: first.filter(|_| is_all && !reads.is_empty() || uses_all),
        condition: condition.filter(|_| uses_all),
    }
}

/// What is understood of the filters above a place where the table is read.
struct Filter {
    condition: Condition,
    /// Whether that is all.
    is_exact: bool,
}

struct Plan<'a, 'j> {
    tree: &'a Tree<'j>,
    table: &'a ChainTable,
    parameters: &'a [Json],
}

impl<'j> Plan<'_, 'j> {
    fn kind(&self, at: usize) -> &'j str {
        self.tree.text(at, "type").unwrap_or_default()
    }

    fn number(&self, at: usize, key: &str) -> Option<usize> {
        self.tree.text(at, key)?.parse().ok()
    }

    fn list(&self, at: usize, key: &str) -> &[usize] {
        self.tree.get(at, key).map_or(&[], |list| self.tree.children(list))
    }

    /// Whether this is a place where the table is read.
    fn reads_table(&self, at: usize) -> bool {
        let is_named = || {
            let path = self.tree.get(at, "qname").map(|name| self.list(name, "path"));
            let name = path.and_then(|path| self.tree.plain(*path.last()?));
            let parameter = self.list(at, "parameters").first().copied();
            let parameter = parameter.and_then(|parameter| self.tree.text(parameter, "value"));
            name == Some(FUNCTION) && parameter == Some(&*self.table.name)
        };
        self.kind(at) == "LOGICAL_GET" && is_named()
    }

    /// Returns the operator that takes the rows of another one.
    fn above(&self, at: usize) -> Option<usize> {
        let list = self.tree.parent(at);
        let above = self.tree.parent(list);
        (self.tree.key(list) == "children" && above != list).then_some(above)
    }

    fn filter(&self, read: usize) -> Filter {
        let above = self.above(read).filter(|above| self.kind(*above) == "LOGICAL_FILTER");
        let expressions = above.map_or(&[][..], |above| self.list(above, "expressions"));
        let parts: Vec<_> =
            expressions.iter().map(|it| self.condition(read, *it, MAX_DEPTH)).collect();
        let is_exact = parts.iter().all(Option::is_some);
        Filter { condition: Condition::All(parts.into_iter().flatten().collect()), is_exact }
    }

    /// Returns the condition that an expression is, over what is read at `read`.
    fn condition(&self, read: usize, at: usize, depth: usize) -> Option<Condition> {
        let depth = depth.checked_sub(1)?;
        let children = self.list(at, "children");
        let parts = || -> Option<Vec<Condition>> {
            children.iter().map(|child| self.condition(read, *child, depth)).collect()
        };
        let is = |flag: bool, at: usize| {
            let (column, kind) = self.column(read, at)?;
            let value = Constant::Boolean(flag);
            (kind == ChainType::Boolean).then_some(Condition::Is {
                column,
                how: Comparison::Equal,
                value,
            })
        };
        match (self.kind(at), children) {
            ("CONJUNCTION_AND", _) => Some(Condition::All(parts()?)),
            ("CONJUNCTION_OR", _) => Some(Condition::Any(parts()?)),
            ("OPERATOR_IS_NULL", [of]) => {
                Some(Condition::Null { column: self.column(read, *of)?.0, is: true })
            }
            ("OPERATOR_IS_NOT_NULL", [of]) => {
                Some(Condition::Null { column: self.column(read, *of)?.0, is: false })
            }
            ("OPERATOR_NOT", [of]) => is(false, *of),
            ("BOUND_REF", _) => is(true, at),
            ("COMPARE_BETWEEN", [of, lower, upper]) => {
                let data = self.tree.get(at, "function_data")?;
                let is_inclusive = |key| Some(self.tree.text(data, key)? == "true");
                let how = |inclusive, with, without| if inclusive { with } else { without };
                let lower_how = how(
                    is_inclusive("lower_inclusive")?,
                    Comparison::GreaterOrEqual,
                    Comparison::Greater,
                );
                let upper_how = how(
                    is_inclusive("upper_inclusive")?,
                    Comparison::LessOrEqual,
                    Comparison::Less,
                );
                let lower = self.comparison(read, *of, lower_how, *lower)?;
                Some(Condition::All(vec![lower, self.comparison(read, *of, upper_how, *upper)?]))
            }
            (kind, [left, right]) => {
                let how = comparison(kind)?;
                self.comparison(read, *left, how, *right)
                    .or_else(|| self.comparison(read, *right, how.exchanged(), *left))
            }
            _ => None,
        }
    }

    fn comparison(
        &self,
        read: usize,
        column: usize,
        how: Comparison,
        value: usize,
    ) -> Option<Condition> {
        let (column, kind) = self.column(read, column)?;
        Some(Condition::Is { column, how, value: self.constant(value, kind)? })
    }

    /// Returns the place in its table of the column that an expression is.
    fn column(&self, read: usize, at: usize) -> Option<(usize, ChainType)> {
        if self.kind(at) != "BOUND_REF" {
            return None;
        }
        let column = self.output(read, self.number(at, "index")?)?;
        Some((column, self.table.columns.get(column)?.kind))
    }

    /// Returns the place in its table of a column that a place yields where the table is read.
    fn output(&self, read: usize, index: usize) -> Option<usize> {
        let projected = self.list(read, "projection_ids");
        let index = match projected.is_empty() {
            true => index,
            false => self.tree.plain(*projected.get(index)?)?.parse().ok()?,
        };
        let column = *self.list(read, "column_indexes").get(index)?;
        // The first column of the function is none of the table.
        self.number(column, "index")?.checked_sub(1)
    }

    /// Returns a value to which a column of this type is compared, if it is one of that type.
    fn constant(&self, at: usize, kind: ChainType) -> Option<Constant> {
        if self.kind(at) == "VALUE_PARAMETER" {
            let given = self.number(at, "identifier")?.checked_sub(1)?;
            return match (self.parameters.get(given)?, kind) {
                (Json::Bool(value), ChainType::Boolean) => Some(Constant::Boolean(*value)),
                (Json::Number(value), ChainType::Integer) => value.as_i64().map(Constant::Integer),
                (Json::String(value), ChainType::Text) => Some(Constant::Text(value.clone())),
                _ => None,
            };
        }
        if self.kind(at) != "VALUE_CONSTANT" {
            return None;
        }
        let value = self.tree.get(at, "value")?;
        if self.tree.text(value, "is_null") == Some("true") {
            return None;
        }
        let of = self.tree.get(value, "type").and_then(|of| self.tree.text(of, "id"))?;
        let text = self.tree.text(value, "value")?;
        match (kind, of) {
            (ChainType::Boolean, "BOOLEAN") => Some(Constant::Boolean(text == "true")),
            (ChainType::Integer, "BIGINT") | (ChainType::Time, "TIMESTAMP") => {
                text.parse().ok().map(Constant::Integer)
            }
            (ChainType::Text, "VARCHAR") => {
                serde_json::from_str(&format!("\"{text}\"")).ok().map(Constant::Text)
            }
            _ => None,
        }
    }

    /// Returns how many first rows are needed of those that pass the filters above a place.
    fn first(&self, read: usize) -> Option<First> {
        let mut path = Vec::new();
        let mut at = read;
        loop {
            at = self.above(at)?;
            match self.kind(at) {
                "LOGICAL_FILTER" if path.is_empty() => {}
                "LOGICAL_PROJECTION" => path.push(at),
                "LOGICAL_TOP_N" => break,
                _ => return None,
            }
        }
        let rows = self.number(at, "limit")?.checked_add(self.number(at, "offset")?)?;
        let order = *self.list(at, "orders").first()?;
        let newest = match self.kind(order) {
            "DESCENDING" => true,
            "ASCENDING" => false,
            _ => return None,
        };
        let mut expression = self.tree.get(order, "expression")?;
        for projection in path.into_iter().rev() {
            if self.kind(expression) != "BOUND_REF" {
                return None;
            }
            let index = self.number(expression, "index")?;
            expression = *self.list(projection, "expressions").get(index)?;
        }
        // A filter may leave out columns that nothing above it needs.
        let filter = self.above(read).filter(|above| self.kind(*above) == "LOGICAL_FILTER");
        let mut index =
            self.number(expression, "index").filter(|_| self.kind(expression) == "BOUND_REF")?;
        let kept = filter.map_or(&[][..], |filter| self.list(filter, "projection_map"));
        if !kept.is_empty() {
            index = self.tree.plain(*kept.get(index)?)?.parse().ok()?;
        }
        let column = self.output(read, index)?;
        let is_ledger = |column: &ChainColumn| column.name == LEDGER_OF_CHAIN;
        self.table.columns.get(column).filter(|column| is_ledger(column))?;
        (rows as u64 <= MAX_FIRST).then_some(First { rows, newest })
    }
}

fn comparison(kind: &str) -> Option<Comparison> {
    Some(match kind {
        "COMPARE_EQUAL" => Comparison::Equal,
        "COMPARE_NOTEQUAL" => Comparison::NotEqual,
        "COMPARE_LESSTHAN" => Comparison::Less,
        "COMPARE_LESSTHANOREQUALTO" => Comparison::LessOrEqual,
        "COMPARE_GREATERTHAN" => Comparison::Greater,
        "COMPARE_GREATERTHANOREQUALTO" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}
