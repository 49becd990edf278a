//! Whether a value is exactly of a declared type. Walks value and type together, so that the work is
//! bounded by the size of the value, whatever the interface declares.

use std::collections::HashSet;

use stellar_xdr::{ScAddress, ScMapEntry, ScSpecTypeDef, ScVal};

use super::types::{Definition, Fields, Types, Union};

/// Number of pairs of a value and a type that were compared, by which tests bound the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps(pub u64);

/// What is still to compare.
type Open<'a> = Vec<(&'a ScVal, &'a ScSpecTypeDef)>;

/// Whether the value is of the type: no number for another, nothing missing, nothing too much. Each
/// part of the value is compared with one type and the options around that type, of which there are
/// at most [`super::DEEPEST_TYPE`].
pub(crate) fn fits(value: &ScVal, kind: &ScSpecTypeDef, types: &Types, steps: &mut Steps) -> bool {
    let mut open = vec![(value, kind)];
    while let Some((value, kind)) = open.pop() {
        steps.0 += 1;
        if !compare(value, kind, types, &mut open) {
            return false;
        }
    }
    true
}

/// Compares a value with a type as far as it can without their parts, which it adds to `open`.
fn compare<'a>(
    value: &'a ScVal,
    kind: &'a ScSpecTypeDef,
    types: &'a Types,
    open: &mut Open<'a>,
) -> bool {
    match (kind, value) {
        (ScSpecTypeDef::Val, _)
        | (ScSpecTypeDef::Bool, ScVal::Bool(_))
        | (ScSpecTypeDef::Void | ScSpecTypeDef::Option(_), ScVal::Void)
        | (ScSpecTypeDef::Error, ScVal::Error(_))
        | (ScSpecTypeDef::U32, ScVal::U32(_))
        | (ScSpecTypeDef::I32, ScVal::I32(_))
        | (ScSpecTypeDef::U64, ScVal::U64(_))
        | (ScSpecTypeDef::I64, ScVal::I64(_))
        | (ScSpecTypeDef::Timepoint, ScVal::Timepoint(_))
        | (ScSpecTypeDef::Duration, ScVal::Duration(_))
        | (ScSpecTypeDef::U128, ScVal::U128(_))
        | (ScSpecTypeDef::I128, ScVal::I128(_))
        | (ScSpecTypeDef::U256, ScVal::U256(_))
        | (ScSpecTypeDef::I256, ScVal::I256(_))
        | (ScSpecTypeDef::Bytes, ScVal::Bytes(_))
        | (ScSpecTypeDef::String, ScVal::String(_))
        | (ScSpecTypeDef::Symbol, ScVal::Symbol(_))
        | (ScSpecTypeDef::MuxedAddress, ScVal::Address(_)) => true,
        (ScSpecTypeDef::Address, ScVal::Address(address)) => !is_muxed(address),
        (ScSpecTypeDef::BytesN(of), ScVal::Bytes(bytes)) => bytes.len() == of.n as usize,
        (ScSpecTypeDef::Option(of), _) => then(open, value, &of.value_type),
        (ScSpecTypeDef::Result(of), ScVal::Error(error))
            if types.error_fits(&of.error_type, error) =>
        {
            true
        }
        (ScSpecTypeDef::Result(of), _) => then(open, value, &of.ok_type),
        (ScSpecTypeDef::Vec(of), ScVal::Vec(Some(items))) => {
            open.extend(items.iter().map(|item| (item, &*of.element_type)));
            true
        }
        (ScSpecTypeDef::Map(of), ScVal::Map(Some(entries))) => {
            for ScMapEntry { key, val } in entries.iter() {
                open.extend([(key, &*of.key_type), (val, &*of.value_type)]);
            }
            true
        }
        (ScSpecTypeDef::Tuple(of), ScVal::Vec(Some(items))) => {
            all(open, items.as_slice(), of.value_types.as_slice())
        }
        (ScSpecTypeDef::Udt(named), _) => {
            let definition = types.get(named.name.as_slice());
            definition.is_some_and(|definition| compare_defined(value, definition, open))
        }
        _ => false,
    }
}

fn compare_defined<'a>(value: &'a ScVal, kind: &'a Definition, open: &mut Open<'a>) -> bool {
    match (kind, value) {
        (Definition::Enum(values), ScVal::U32(number)) => values.contains(number),
        (Definition::Errors(names), ScVal::Error(stellar_xdr::ScError::Contract(code))) => {
            names.contains_key(code)
        }
        (Definition::Tuple(kinds), ScVal::Vec(Some(items))) => all(open, items.as_slice(), kinds),
        (Definition::Struct(fields), ScVal::Map(Some(entries))) => {
            compare_fields(entries.as_slice(), fields, open)
        }
        (Definition::Union(union), ScVal::Vec(Some(items))) => {
            compare_case(items.as_slice(), union, open)
        }
        _ => false,
    }
}

fn compare_fields<'a>(entries: &'a [ScMapEntry], fields: &'a Fields, open: &mut Open<'a>) -> bool {
    if entries.len() != fields.len() {
        return false;
    }
    let mut seen = HashSet::with_capacity(entries.len());
    entries.iter().all(|entry| {
        let ScVal::Symbol(name) = &entry.key else { return false };
        let field = fields.get(name.as_slice()).filter(|_| seen.insert(name.as_slice()));
        field.is_some_and(|kind| then(open, &entry.val, kind))
    })
}

fn compare_case<'a>(items: &'a [ScVal], union: &'a Union, open: &mut Open<'a>) -> bool {
    let [ScVal::Symbol(case), values @ ..] = items else { return false };
    union.get(case.as_slice()).is_some_and(|kinds| all(open, values, kinds))
}

fn all<'a>(open: &mut Open<'a>, values: &'a [ScVal], kinds: &'a [ScSpecTypeDef]) -> bool {
    open.extend(values.iter().zip(kinds));
    values.len() == kinds.len()
}

fn then<'a>(open: &mut Open<'a>, value: &'a ScVal, kind: &'a ScSpecTypeDef) -> bool {
    open.push((value, kind));
    true
}

fn is_muxed(address: &ScAddress) -> bool {
    matches!(address, ScAddress::MuxedAccount(_) | ScAddress::MuxedContract(_))
}
