//! Types of a contract's interface, as written in Rust with `soroban-sdk`.

use stellar_xdr::ScSpecTypeDef;

use super::error::Unwritable;
use super::rust;

/// Refuses a type that cannot be that of a parameter or a field.
pub fn check(kind: &ScSpecTypeDef) -> Result<(), Unwritable> {
    for (part, _) in parts(kind) {
        if let ScSpecTypeDef::Result(_) = part {
            return Err(Unwritable::Misplaced("a Result within another type".to_owned()));
        }
        if let Some(name) = named(part).filter(|name| !rust::is_type(name)) {
            return Err(Unwritable::Name { what: "a type", name });
        }
    }
    Ok(())
}

/// Refuses a type that cannot be the return type of a function, the only place where a `Result` is
/// allowed.
pub fn check_returned(kind: &ScSpecTypeDef) -> Result<(), Unwritable> {
    match kind {
        ScSpecTypeDef::Result(result) => {
            check(&result.ok_type)?;
            check(&result.error_type)
        }
        other => check(other),
    }
}

/// Returns the types that this type is directly composed of, without the definition of a named
/// type.
fn direct_parts(kind: &ScSpecTypeDef) -> Vec<&ScSpecTypeDef> {
    match kind {
        ScSpecTypeDef::Option(option) => vec![&option.value_type],
        ScSpecTypeDef::Vec(list) => vec![&list.element_type],
        ScSpecTypeDef::Map(map) => vec![&map.key_type, &map.value_type],
        ScSpecTypeDef::Result(result) => vec![&result.ok_type, &result.error_type],
        ScSpecTypeDef::Tuple(tuple) => tuple.value_types.iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns this type and all types that it is composed of, without the definitions of named types,
/// each with whether it is within a list or a map.
pub fn parts(kind: &ScSpecTypeDef) -> Vec<(&ScSpecTypeDef, bool)> {
    let mut parts = Vec::new();
    let mut left = vec![(kind, false)];
    while let Some((part, listed)) = left.pop() {
        parts.push((part, listed));
        let listed = listed || matches!(part, ScSpecTypeDef::Vec(_) | ScSpecTypeDef::Map(_));
        left.extend(direct_parts(part).into_iter().rev().map(|one| (one, listed)));
    }
    parts
}

/// Returns the name of a type that the interface refers to by name.
pub fn named(kind: &ScSpecTypeDef) -> Option<String> {
    match kind {
        ScSpecTypeDef::Udt(named) => Some(named.name.to_utf8_string_lossy()),
        _ => None,
    }
}

/// Whether the type is one of the Rust language, without parts.
pub fn is_plain(kind: &ScSpecTypeDef) -> bool {
    matches!(
        kind,
        ScSpecTypeDef::Bool
            | ScSpecTypeDef::Void
            | ScSpecTypeDef::U32
            | ScSpecTypeDef::I32
            | ScSpecTypeDef::U64
            | ScSpecTypeDef::I64
            | ScSpecTypeDef::U128
            | ScSpecTypeDef::I128
    )
}

/// Returns the type in Rust.
pub fn in_rust(kind: &ScSpecTypeDef) -> String {
    let parts: Vec<_> = direct_parts(kind).into_iter().map(in_rust).collect();
    let (name, list) = (kind.name(), parts.join(", "));
    match kind {
        ScSpecTypeDef::Void => "()".to_owned(),
        plain if is_plain(plain) => name.to_ascii_lowercase(),
        ScSpecTypeDef::Udt(named) => named.name.to_utf8_string_lossy(),
        ScSpecTypeDef::BytesN(bytes) => format!("{name}<{}>", bytes.n),
        ScSpecTypeDef::Tuple(_) if parts.len() == 1 => format!("({list},)"),
        ScSpecTypeDef::Tuple(_) => format!("({list})"),
        // The SDK's types have the names that the spec gives them.
        _ if parts.is_empty() => name.to_owned(),
        _ => format!("{name}<{list}>"),
    }
}
