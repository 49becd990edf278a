//! SQL expressions that convert the values of a column to a wider type. They change no value at any
//! depth, so a table that grew is identical to one that was filled at once.

use crate::names::quoted;
use crate::types::{ColumnType, Field};

/// SQL literals of a void value and of an empty map in the tagged form (SEP-51), for blank values:
/// nulls and empty containers of unknown type.
const VOID: &str = r#"'"void"'"#;
const EMPTY_MAP: &str = r#"'{"map":[]}'"#;

/// Returns an SQL expression for the values of `column` (already quoted) in their new type. The old
/// type must [grow into](ColumnType::grows_into) the new one.
pub fn conversion(old: &ColumnType, new: &ColumnType, column: &str) -> String {
    format!("CAST({} AS {new})", converted(old, new, column, 0))
}

/// `depth` is the number of enclosing lambdas, whose parameters need distinct names.
fn converted(old: &ColumnType, new: &ColumnType, value: &str, depth: usize) -> String {
    if old == new {
        return value.to_owned();
    }
    let item = format!("e{depth}");
    match (old, new) {
        (ColumnType::Unknown, new) => format!("CAST(NULL AS {new})"),
        (old, ColumnType::Json) => {
            let tagged = tagged(old, value, depth);
            format!("CASE WHEN {value} IS NULL THEN NULL ELSE CAST({tagged} AS JSON) END")
        }
        (ColumnType::List(old), ColumnType::List(new)) if !is_cast(old, new) => {
            let converted = converted(old, new, &item, depth + 1);
            format!("list_transform({value}, lambda {item}: {converted})")
        }
        (ColumnType::Map(old_keys, old), ColumnType::Map(new_keys, new))
            if !is_cast(old, new) || !is_cast(old_keys, new_keys) =>
        {
            let key = converted(old_keys, new_keys, &format!("{item}.key"), depth + 1);
            let converted = converted(old, new, &format!("{item}.value"), depth + 1);
            let pair = format!("struct_pack(k := {key}, v := {converted})");
            let pairs = format!("list_transform(map_entries({value}), lambda {item}: {pair})");
            format!("CASE WHEN {value} IS NULL THEN NULL ELSE map_from_entries({pairs}) END")
        }
        (ColumnType::Struct(old), ColumnType::Struct(new))
            if old.iter().zip(new).any(|(old, new)| !is_cast(&old.kind, &new.kind)) =>
        {
            let field = |(at, (old, new)): (usize, (&_, &_))| field(at, old, new, value, depth);
            let fields: Vec<String> = old.iter().zip(new).enumerate().map(field).collect();
            let packed = format!("struct_pack({})", fields.join(", "));
            format!("CASE WHEN {value} IS NULL THEN NULL ELSE {packed} END")
        }
        (_, new) => format!("CAST({value} AS {new})"),
    }
}

fn field(at: usize, old: &Field, new: &Field, value: &str, depth: usize) -> String {
    // By position (1-based): field names in string literals would need their own escaping.
    let part = format!("struct_extract_at({value}, {})", at + 1);
    format!("{} := {}", quoted(&new.name), converted(&old.kind, &new.kind, &part, depth))
}

/// Whether DuckDB's own cast converts every value unchanged. Types that are unknown or become JSON
/// need an explicit expression.
fn is_cast(old: &ColumnType, new: &ColumnType) -> bool {
    match (old, new) {
        (old, new) if old == new => true,
        (ColumnType::Unknown, _) | (_, ColumnType::Json) => false,
        (ColumnType::List(old), ColumnType::List(new)) => is_cast(old, new),
        (ColumnType::Map(old_keys, old), ColumnType::Map(new_keys, new)) => {
            is_cast(old_keys, new_keys) && is_cast(old, new)
        }
        (ColumnType::Struct(old), ColumnType::Struct(new)) => {
            old.iter().zip(new).all(|(old, new)| is_cast(&old.kind, &new.kind))
        }
        _ => true,
    }
}

/// Returns an SQL expression for the tagged form of a blank value, as text that is never null.
fn tagged(blank: &ColumnType, value: &str, depth: usize) -> String {
    let whole = match blank {
        ColumnType::List(of) => {
            let item = format!("e{depth}");
            let items = tagged(of, &item, depth + 1);
            let items = format!("list_transform({value}, lambda {item}: {items})");
            format!("'{{\"vec\":[' || coalesce(array_to_string({items}, ','), '') || ']}}'")
        }
        ColumnType::Map(..) => EMPTY_MAP.to_owned(),
        _ => return VOID.to_owned(),
    };
    format!("CASE WHEN {value} IS NULL THEN {VOID} ELSE {whole} END")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pure_widening_is_a_cast() {
        let list = ColumnType::list(ColumnType::UInt32);
        let wider = ColumnType::list(ColumnType::Int128);
        assert_eq!(
            conversion(&list, &wider, "\"v\""),
            "CAST(CAST(\"v\" AS HUGEINT[]) AS HUGEINT[])"
        );
    }
}
