//! Types and values of our own tables as PostgreSQL has them.

use orrery_ledger::domain;
use orrery_postgres::{ColumnType, Value};
use orrery_tables::{ColumnType as OwnType, integer, is_named, is_null, plain, tagged};
use stellar_xdr::{ScMapEntry, ScVal};

/// Returns the type of a column. Integers whose type was inferred from values have the widest one, so that no value
/// that comes later needs another.
pub(crate) fn kind(own: &OwnType, is_inferred: bool) -> ColumnType {
    match own {
        OwnType::Boolean => ColumnType::Boolean,
        OwnType::UInt32
        | OwnType::Int32
        | OwnType::UInt64
        | OwnType::Int64
        | OwnType::UInt128
        | OwnType::Int128
            if is_inferred =>
        {
            ColumnType::Int256
        }
        OwnType::UInt32 => ColumnType::UInt32,
        OwnType::Int32 => ColumnType::Int32,
        OwnType::UInt64 => ColumnType::UInt64,
        OwnType::Int64 => ColumnType::Int64,
        OwnType::UInt128 | OwnType::Int128 => ColumnType::Int128,
        OwnType::Digits => ColumnType::Int256,
        OwnType::Text => ColumnType::Text,
        OwnType::Bytes => ColumnType::Bytes,
        OwnType::List(of) => ColumnType::list(kind(of, is_inferred)),
        OwnType::Map(..)
        | OwnType::Struct(_)
        | OwnType::Unknown
        | OwnType::Json
        | OwnType::JsonText => ColumnType::Json,
    }
}

/// Returns the type of a column of a view that shows tables with both types.
pub(crate) fn joined(a: ColumnType, b: &ColumnType) -> ColumnType {
    use ColumnType::{Int32, Int64, Int128, Int256, Json, List, UInt32, UInt64};
    if a == *b {
        return a;
    }
    // From the narrowest; those of one rank join in the next one.
    let rank = |kind: &ColumnType| match kind {
        Int32 => Some(0),
        UInt32 => Some(1),
        Int64 => Some(2),
        UInt64 => Some(3),
        Int128 => Some(4),
        Int256 => Some(5),
        _ => None,
    };
    match (&a, b) {
        (Int32, UInt32) | (UInt32, Int32) => Int64,
        (UInt64, Int32 | Int64) | (Int32 | Int64, UInt64) => Int128,
        (List(a), List(b)) => ColumnType::list(joined((**a).clone(), b)),
        (one, other) => match (rank(one), rank(other)) {
            (Some(one), Some(other)) if one < other => b.clone(),
            (Some(_), Some(_)) => a,
            _ => Json,
        },
    }
}

/// Returns the value of a column of our own type `own` in one of this type; `None` if it cannot hold the value.
pub(crate) fn value(own: &OwnType, kind: &ColumnType, value: &ScVal) -> Option<Value> {
    if is_null(value) {
        return Some(Value::Null);
    }
    Some(match (kind, value) {
        (ColumnType::Boolean, ScVal::Bool(truth)) => Value::Boolean(*truth),
        (ColumnType::Bytes, ScVal::Bytes(bytes)) => Value::Bytes(bytes.to_vec()),
        (ColumnType::Text, ScVal::String(_) | ScVal::Symbol(_) | ScVal::Address(_)) => {
            Value::Text(plain(value))
        }
        (ColumnType::Json, value) => {
            let mut text = String::new();
            json(own, value, &mut text)?;
            Value::Json(text)
        }
        (ColumnType::List(of), ScVal::Vec(Some(items))) => {
            let OwnType::List(own) = own else { return None };
            let items = items.iter().map(|item| self::value(own, of, item));
            Value::List(items.collect::<Option<_>>()?)
        }
        (
            ColumnType::UInt32
            | ColumnType::Int32
            | ColumnType::UInt64
            | ColumnType::Int64
            | ColumnType::Int128
            | ColumnType::Int256,
            value,
        ) => match (integer(value), value) {
            (Some(number), _) => Value::Integer(number),
            (None, ScVal::U128(_) | ScVal::U256(_) | ScVal::I256(_)) => Value::Digits(plain(value)),
            _ => return None,
        },
        _ => return None,
    })
}

fn is_integer(own: &OwnType) -> bool {
    use OwnType::{Digits, Int32, Int64, Int128, UInt32, UInt64, UInt128};
    matches!(own, UInt32 | Int32 | UInt64 | Int64 | UInt128 | Int128 | Digits)
}

/// Writes a value of our own type as JSON: integers of 64 bits and more as texts, bytes in hexadecimal digits, maps whose
/// keys are not texts as arrays of pairs, structs with all their fields. An integer is written by its own width, so that
/// it stays what it is when later values widen the column.
fn json(own: &OwnType, value: &ScVal, to: &mut String) -> Option<()> {
    if is_null(value) {
        to.push_str("null");
        return Some(());
    }
    match (own, value) {
        (OwnType::Json | OwnType::Unknown, value) => to.push_str(&tagged(value)),
        (OwnType::JsonText, ScVal::String(text)) => to.push_str(&domain::text(text.as_slice())),
        (OwnType::Boolean, ScVal::Bool(truth)) => {
            to.push_str(if *truth { "true" } else { "false" })
        }
        (own, value @ (ScVal::U32(_) | ScVal::I32(_))) if is_integer(own) => {
            to.push_str(&integer(value)?.to_string());
        }
        (OwnType::UInt32 | OwnType::Int32, _) => return None,
        (OwnType::Bytes, ScVal::Bytes(bytes)) => quoted(&hex::encode(bytes.as_slice()), to),
        (OwnType::List(of), ScVal::Vec(Some(items))) => {
            separated("[]", items.iter(), to, |item, to| json(of, item, to))?;
        }
        (OwnType::Map(keys, of), ScVal::Map(Some(map))) if **keys == OwnType::Text => {
            // A table takes only maps whose keys differ as text.
            separated("{}", map.iter(), to, |entry: &ScMapEntry, to| {
                quoted(&plain(&entry.key), to);
                to.push(':');
                json(of, &entry.val, to)
            })?;
        }
        (OwnType::Map(keys, of), ScVal::Map(Some(map))) => {
            separated("[]", map.iter(), to, |entry: &ScMapEntry, to| {
                to.push('[');
                json(keys, &entry.key, to)?;
                to.push(',');
                json(of, &entry.val, to)?;
                to.push(']');
                Some(())
            })?;
        }
        (OwnType::Struct(fields), ScVal::Map(Some(map))) => {
            separated("{}", fields.iter(), to, |field, to| {
                quoted(&field.name, to);
                to.push(':');
                match map.iter().find(|entry| is_named(entry, &field.name)) {
                    Some(entry) => json(&field.kind, &entry.val, to),
                    None => json(&field.kind, &ScVal::Void, to),
                }
            })?;
        }
        // Text, and integers of 64 bits and more.
        (_, ScVal::Vec(_) | ScVal::Map(_)) => return None,
        (_, value) => quoted(&plain(value), to),
    }
    Some(())
}

fn quoted(text: &str, to: &mut String) {
    // Fails for nothing: texts have no keys.
    to.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// Writes items between two brackets, with commas between them.
fn separated<T>(
    brackets: &str,
    items: impl Iterator<Item = T>,
    to: &mut String,
    mut write: impl FnMut(T, &mut String) -> Option<()>,
) -> Option<()> {
    to.push_str(&brackets[..1]);
    for (number, item) in items.enumerate() {
        if number > 0 {
            to.push(',');
        }
        write(item, to)?;
    }
    to.push_str(&brackets[1..]);
    Some(())
}

#[cfg(test)]
mod tests {
    use orrery_tables::Field;
    use stellar_xdr::{Int128Parts, ScMap, ScSymbol, ScVec};

    use super::*;

    fn symbol(text: &str) -> ScVal {
        ScVal::Symbol(ScSymbol(text.try_into().unwrap()))
    }

    fn map(entries: &[(ScVal, ScVal)]) -> ScVal {
        let entry = |(key, val): &(ScVal, ScVal)| ScMapEntry { key: key.clone(), val: val.clone() };
        let entries: Vec<ScMapEntry> = entries.iter().map(entry).collect();
        ScVal::Map(Some(ScMap(entries.try_into().unwrap())))
    }

    fn list(items: Vec<ScVal>) -> ScVal {
        ScVal::Vec(Some(ScVec(items.try_into().unwrap())))
    }

    #[test]
    fn containers_are_json_with_exact_integers() {
        let boxed = |kind: OwnType| Box::new(kind);
        let field = |name: &str, kind| Field { name: name.to_owned(), kind };
        let texts = OwnType::Map(boxed(OwnType::Text), boxed(OwnType::UInt64));
        let numbers = OwnType::Map(boxed(OwnType::UInt32), boxed(OwnType::Bytes));
        let fields = OwnType::Struct(vec![
            field("a", OwnType::Int128),
            field("none", OwnType::Text),
            field("list", OwnType::List(boxed(OwnType::Boolean))),
        ]);
        let bytes = ScVal::Bytes(vec![1, 255].try_into().unwrap());
        let wide = ScVal::I128(Int128Parts { hi: -1, lo: u64::MAX });
        for (own, value, expected) in [
            (
                texts.clone(),
                map(&[(symbol("x\u{1}"), ScVal::U64(u64::MAX))]),
                r#"{"x\u0001":"18446744073709551615"}"#,
            ),
            (numbers, map(&[(ScVal::U32(7), bytes)]), r#"[[7,"01ff"]]"#),
            (
                fields,
                map(&[
                    (symbol("a"), wide),
                    (symbol("list"), list(vec![ScVal::Bool(true), ScVal::Void])),
                ]),
                r#"{"a":"-1","none":null,"list":[true,null]}"#,
            ),
            (OwnType::list(texts), list(vec![map(&[])]), "[{}]"),
            (
                OwnType::list(OwnType::list(OwnType::Int128)),
                list(vec![list(vec![ScVal::U32(5), ScVal::I64(-5)])]),
                r#"[[5,"-5"]]"#,
            ),
            (OwnType::Unknown, ScVal::Void, ""),
        ] {
            let kind = kind(&own, false);
            assert_eq!(kind, ColumnType::Json);
            match super::value(&own, &kind, &value).unwrap() {
                Value::Null => assert_eq!(expected, ""),
                Value::Json(text) => assert_eq!(text, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn inferred_integers_have_the_widest_type() {
        for own in [OwnType::UInt32, OwnType::Int64, OwnType::Int128, OwnType::Digits] {
            assert_eq!(kind(&own, true), ColumnType::Int256);
            assert_eq!(kind(&OwnType::list(own), true), ColumnType::list(ColumnType::Int256));
        }
        assert_eq!(kind(&OwnType::UInt64, false), ColumnType::UInt64);
        let number = value(&OwnType::UInt32, &ColumnType::Int256, &ScVal::U32(5));
        assert_eq!(number, Some(Value::Integer(5)));
        assert_eq!(value(&OwnType::UInt32, &ColumnType::UInt32, &symbol("a")), None);
        let texts = OwnType::list(OwnType::list(OwnType::UInt32));
        let misfit = list(vec![list(vec![symbol("a")])]);
        assert_eq!(value(&texts, &ColumnType::Json, &misfit), None);
    }

    #[test]
    fn types_of_several_versions_join() {
        use ColumnType::{Int32, Int64, Int128, Int256, Json, Text, UInt32, UInt64};
        for (a, b, both) in [
            (Int32, UInt32, Int64),
            (UInt64, Int64, Int128),
            (UInt32, Int256, Int256),
            (Int128, Int32, Int128),
            (Text, Int32, Json),
            (Text, Text, Text),
        ] {
            assert_eq!(joined(a.clone(), &b), both, "{a:?} {b:?}");
            assert_eq!(joined(b.clone(), &a), both, "{b:?} {a:?}");
        }
        let (texts, numbers) = (ColumnType::list(Text), ColumnType::list(Int32));
        assert_eq!(joined(numbers, &ColumnType::list(UInt32)), ColumnType::list(Int64));
        assert_eq!(joined(texts, &Json), Json);
    }
}
