//! Which rows of a table of the chain a query needs, read from DuckDB's own plan of it: the filters above where the
//! table is read, and, of a query for the first rows in the order of ledgers, how many. What is not understood here
//! is not used: then more rows are read, and DuckDB filters them.
//!
//! A query that reads a table at several places needs what one of them needs.

use serde_json::Value as Json;

use super::PLANNED;
use super::condition::{Comparison, Condition, Constant};
use super::times::microseconds;
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

/// Returns which rows of a table a query needs that has this plan (of `json_serialize_plan`, not optimized) and
/// these values of its parameters.
pub fn needs(plan: &str, table: &ChainTable, parameters: &[Json]) -> Needs {
    let Some(tree) = Tree::read(plan) else { return Needs::default() };
    let plan = Plan { tree: &tree, table, parameters };
    let reads = (ROOT..tree.len()).filter(|at| plan.reads_table(*at));
    let mut paths: Vec<Path> = reads.map(|read| plan.path(read)).collect();
    let first = match &mut *paths {
        [path] => path.first.take(),
        _ => None,
    };
    let conditions: Vec<_> =
        paths.into_iter().map(|path| Condition::All(path.conditions)).collect();
    let is_all = conditions.is_empty() || conditions.iter().any(|it| *it == Condition::All(vec![]));
    let condition = match conditions.len() {
        1 => conditions.into_iter().next(),
        _ => Some(Condition::Any(conditions)),
    };
    let is_small = |it: &Condition| it.size() <= MAX_COMPARISONS;
    let uses_all = !is_all && condition.as_ref().is_some_and(is_small);
    Needs { first: first.filter(|_| is_all || uses_all), condition: condition.filter(|_| uses_all) }
}

/// What is understood of the operators above a place where the table is read.
#[derive(Default)]
struct Path {
    /// The place.
    read: usize,
    /// The projections so far, the lowest one first.
    projections: Vec<usize>,
    /// What the filters require.
    conditions: Vec<Condition>,
    first: Option<First>,
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
        let name = || {
            let data = self.tree.get(at, "function_data")?;
            self.tree.text(data, "table")?.strip_prefix(PLANNED)
        };
        self.kind(at) == "LOGICAL_GET" && name() == Some(&*self.table.name)
    }

    /// Returns the operator that takes the rows of another one.
    fn above(&self, at: usize) -> Option<usize> {
        let list = self.tree.parent(at);
        let above = self.tree.parent(list);
        (self.tree.key(list) == "children" && above != list).then_some(above)
    }

    /// Follows the rows from where they are read, as long as they go through filters and projections.
    fn path(&self, read: usize) -> Path {
        let mut path = Path { read, ..Path::default() };
        let (mut at, mut is_exact) = (read, true);
        while let Some(above) = self.above(at) {
            at = above;
            match self.kind(at) {
                "LOGICAL_PROJECTION" => path.projections.push(at),
                "LOGICAL_FILTER" if self.list(at, "projection_map").is_empty() => {
                    let expressions = self.list(at, "expressions");
                    let parts: Vec<_> = expressions
                        .iter()
                        .map(|it| self.condition(&path, *it, MAX_DEPTH))
                        .collect();
                    is_exact &= parts.iter().all(Option::is_some);
                    path.conditions.extend(parts.into_iter().flatten());
                }
                "LOGICAL_ORDER_BY" if is_exact => {
                    path.first = self.first(&path, at);
                    break;
                }
                _ => break,
            }
        }
        path
    }

    /// Returns the condition that an expression at the end of a path is.
    fn condition(&self, path: &Path, at: usize, depth: usize) -> Option<Condition> {
        let depth = depth.checked_sub(1)?;
        let children = self.list(at, "children");
        let parts = || -> Option<Vec<Condition>> {
            children.iter().map(|child| self.condition(path, *child, depth)).collect()
        };
        let is = |flag: bool, at: usize| {
            let (column, kind) = self.column(path, at)?;
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
                Some(Condition::Null { column: self.column(path, *of)?.0, is: true })
            }
            ("OPERATOR_IS_NOT_NULL", [of]) => {
                Some(Condition::Null { column: self.column(path, *of)?.0, is: false })
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
                let lower = self.comparison(path, *of, lower_how, *lower)?;
                Some(Condition::All(vec![lower, self.comparison(path, *of, upper_how, *upper)?]))
            }
            ("COMPARE_IN", [of, values @ ..]) => {
                let is = |value: &usize| self.comparison(path, *of, Comparison::Equal, *value);
                Some(Condition::Any(values.iter().map(is).collect::<Option<_>>()?))
            }
            (kind, [left, right]) => {
                let how = comparison(kind)?;
                self.comparison(path, *left, how, *right)
                    .or_else(|| self.comparison(path, *right, how.exchanged(), *left))
            }
            _ => None,
        }
    }

    fn comparison(
        &self,
        path: &Path,
        column: usize,
        how: Comparison,
        value: usize,
    ) -> Option<Condition> {
        let (column, kind) = self.column(path, column)?;
        Some(Condition::Is { column, how, value: self.constant(value, kind)? })
    }

    /// Returns the place in its table of the column that an expression at the end of a path is.
    fn column(&self, path: &Path, mut at: usize) -> Option<(usize, ChainType)> {
        let index = |at| (self.kind(at) == "BOUND_REF").then(|| self.number(at, "index")).flatten();
        for projection in path.projections.iter().rev() {
            at = *self.list(*projection, "expressions").get(index(at)?)?;
        }
        let read = path.read;
        if !self.list(read, "projection_ids").is_empty() {
            return None;
        }
        let column = *self.list(read, "column_indexes").get(index(at)?)?;
        let column = self.number(column, "index")?;
        Some((column, self.table.columns.get(column)?.kind))
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
        let type_of = |at, key| self.tree.get(at, key).and_then(|of| self.tree.text(of, "id"));
        let cast = |at, to| match (self.kind(at), self.list(at, "children")) {
            ("OPERATOR_CAST", [of]) if type_of(at, "return_type") == Some(to) => Some(*of),
            _ => None,
        };
        let inner = cast(at, kind.sql()).unwrap_or(at);
        let is_cast = inner != at;
        // A date is the time of its beginning.
        let inner = cast(inner, "DATE").filter(|_| is_cast).unwrap_or(inner);
        if self.kind(inner) != "VALUE_CONSTANT" {
            return None;
        }
        let value = self.tree.get(inner, "value")?;
        if self.tree.text(value, "is_null") != Some("false") {
            return None;
        }
        let text = self.tree.text(value, "value")?;
        match (kind, type_of(value, "type")?) {
            (ChainType::Boolean, "BOOLEAN") => Some(Constant::Boolean(text == "true")),
            (ChainType::Integer, "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT")
            | (ChainType::Time, "TIMESTAMP") => text.parse().ok().map(Constant::Integer),
            (ChainType::Time, "VARCHAR" | "STRING_LITERAL") if is_cast => {
                microseconds(text).map(Constant::Integer)
            }
            (ChainType::Text, "VARCHAR" | "STRING_LITERAL") => {
                serde_json::from_str(&format!("\"{text}\"")).ok().map(Constant::Text)
            }
            _ => None,
        }
    }

    /// Returns how many first rows of those at the end of a path an operator that orders them needs.
    fn first(&self, path: &Path, order: usize) -> Option<First> {
        let by = *self.list(order, "orders").first()?;
        let newest = match self.kind(by) {
            "DESCENDING" => true,
            "ASCENDING" => false,
            _ => return None,
        };
        let (column, _) = self.column(path, self.tree.get(by, "expression")?)?;
        let is_ledger = |column: &ChainColumn| column.name == LEDGER_OF_CHAIN;
        self.table.columns.get(column).filter(|column| is_ledger(column))?;
        let mut limit = self.above(order)?;
        while self.kind(limit) == "LOGICAL_PROJECTION" {
            limit = self.above(limit)?;
        }
        let number = |key| {
            let value = self.tree.get(limit, key)?;
            match self.kind(value) {
                "UNSET" if key == "offset_val" => Some(0),
                "CONSTANT_VALUE" => self.number(value, "constant_integer"),
                _ => None,
            }
        };
        if self.kind(limit) != "LOGICAL_LIMIT" {
            return None;
        }
        let rows = number("limit_val")?.checked_add(number("offset_val")?)?;
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

#[cfg(test)]
mod tests {
    use duckdb::Connection;
    use serde_json::json;

    use super::*;
    use crate::worker::chain::{planning, select};

    fn table() -> ChainTable {
        let column = |(name, kind): (&str, ChainType)| ChainColumn { name: name.to_owned(), kind };
        let columns = [
            ("id", ChainType::Integer),
            (LEDGER_OF_CHAIN, ChainType::Integer),
            ("name", ChainType::Text),
            ("ok", ChainType::Boolean),
            ("topics", ChainType::Texts),
            ("ledger_closed_at", ChainType::Time),
        ];
        ChainTable { name: "events".to_owned(), columns: columns.map(column).into() }
    }

    /// Asks DuckDB for the plan of a query of `chain.events`.
    fn of(sql: &str) -> Needs {
        let (connection, table) = (Connection::open_in_memory().unwrap(), table());
        connection.execute_batch(&planning(std::slice::from_ref(&table))).unwrap();
        let view = format!("CREATE SCHEMA chain; CREATE VIEW chain.events AS {}", select(&table));
        connection.execute_batch(&view).unwrap();
        let serialize = "SELECT json_serialize_plan(?::VARCHAR)";
        let plan: String = connection.query_row(serialize, [sql], |row| row.get(0)).unwrap();
        assert!(!plan.starts_with(r#"{"error":true"#), "{sql}: {plan}");
        needs(&plan, &table, &[json!(7), json!("mint")])
    }

    fn is(column: usize, how: Comparison, value: Constant) -> Condition {
        Condition::Is { column, how, value }
    }

    fn ledger(how: Comparison, value: i64) -> Condition {
        is(1, how, Constant::Integer(value))
    }

    #[test]
    fn filters_above_the_table_are_used() {
        let (from, to) =
            (ledger(Comparison::GreaterOrEqual, 3), ledger(Comparison::LessOrEqual, 4));
        let needs = of("select name from chain.events where ledger between 3 and 4");
        let both = Condition::All(vec![from.clone(), to]);
        assert_eq!(needs, Needs { condition: Some(both), first: None });
        let text = |value: &str| is(2, Comparison::Equal, Constant::Text(value.to_owned()));
        let needs = of("select count(*) from chain.events where name in ('a\"ü', 'it''s') and ok");
        let any = Condition::Any(vec![text("a\"ü"), text("it's")]);
        let all = Condition::All(vec![any, is(3, Comparison::Equal, Constant::Boolean(true))]);
        assert_eq!(needs.condition, Some(all));
        let renamed = of(
            "select i from (select ledger l, id i from chain.events) where 3 <= l and i + 1 > 2",
        );
        assert_eq!(renamed.condition, Some(Condition::All(vec![from])));
        let given = of("select id from chain.events where ledger = ? and name = ?").condition;
        if let Some(Condition::All(parts)) = given {
            assert!(
                parts.iter().all(|it| [ledger(Comparison::Equal, 7), text("mint")].contains(it))
            );
        }
    }

    #[test]
    fn times_in_texts_are_used() {
        let midnight = is(5, Comparison::Greater, Constant::Integer(1_767_225_600_000_000));
        for time in [
            "timestamp '2026-01-01 00:00:00'",
            "'2026-01-01'",
            "date '2026-01-01'",
            "'2026-01-01T00:00'::timestamp",
        ] {
            let needs = of(&format!("select id from chain.events where ledger_closed_at > {time}"));
            assert_eq!(needs.condition, Some(Condition::All(vec![midnight.clone()])), "{time}");
        }
        // Those that depend on the time zone or the day are not constants.
        for time in ["timestamptz '2026-01-01 00:00:00+02'", "'today'", "now()::timestamp"] {
            let needs = of(&format!("select id from chain.events where ledger_closed_at > {time}"));
            assert_eq!(needs, Needs::default(), "{time}");
        }
    }

    #[test]
    fn what_is_not_above_every_place_is_not_used() {
        for all in [
            "select count(*) from chain.events",
            "select count(*) from chain.events where id + 1 = 2",
            "select * from (select ledger, count(*) from chain.events group by 1) where ledger > 3",
            "select (select count(*) from chain.events), id from chain.events where ledger = 1",
            "select id from chain.events where ledger + 1 > 3 order by ledger limit 1",
            "select id from chain.events order by name limit 1",
            "select id from chain.events order by ledger + 1 limit 1",
            "select distinct ledger from chain.events order by ledger limit 1",
            "select id from chain.events order by ledger limit 1000000",
        ] {
            assert_eq!(of(all), Needs::default(), "{all}");
        }
    }

    #[test]
    fn first_rows_in_the_order_of_ledgers_are_told() {
        let first = |sql: &str| of(sql).first;
        let newest = First { rows: 3, newest: true };
        let sql = "select name from chain.events where ok order by ledger desc limit 1 offset 2";
        assert_eq!(first(sql), Some(newest));
        assert_eq!(
            first("select * from chain.events order by ledger desc, id limit 3"),
            Some(newest)
        );
        let oldest = First { rows: 2, newest: false };
        assert_eq!(first("select id + 1 from chain.events order by 1, ledger limit 2"), None);
        assert_eq!(first("select id, ledger l from chain.events order by l limit 2"), Some(oldest));
    }
}
