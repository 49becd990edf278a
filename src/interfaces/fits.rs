//! Whether a value is exactly of a declared type. Walks value and type together, within a budget that
//! the size of the event gives, whatever the interface declares.

use std::collections::HashSet;

use stellar_xdr::{ScAddress, ScMapEntry, ScSpecTypeDef, ScVal};

use super::types::{Definition, Fields, Types, Union};

/// Number of steps that an event may take for each of its parts, with the declarations of one
/// interface. Those of [`super::interface::MOST_COMPARED`] maps with all their keys take 8, and the one
/// that fits takes one to three.
const STEPS_PER_PART: u64 = 20;

/// Number of pairs of a value and a type, or of a key, that were compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps(pub u64);

/// The steps that an event has taken with one interface, and those that it may take. A function of
/// the event and the interface alone.
#[derive(Debug)]
pub(crate) struct Budget {
    taken: u64,
    most: u64,
}

impl Budget {
    /// The budget of an event with these values.
    pub fn of_event(topics: &[ScVal], data: &ScVal) -> Self {
        let parts = 1 + parts(topics.iter().chain([data]));
        Self { taken: 0, most: STEPS_PER_PART * parts }
    }

    /// Takes steps. Returns whether there were as many.
    pub fn take(&mut self, steps: usize) -> bool {
        self.taken = (self.taken + steps as u64).min(self.most + 1);
        !self.is_spent()
    }

    /// Whether more steps were taken than there are.
    pub fn is_spent(&self) -> bool {
        self.taken > self.most
    }

    /// Number of steps taken.
    pub fn taken(&self) -> Steps {
        Steps(self.taken)
    }
}

/// Number of values, those inside others included.
fn parts<'a>(values: impl IntoIterator<Item = &'a ScVal>) -> u64 {
    let mut open: Vec<&ScVal> = values.into_iter().collect();
    let mut count = 0;
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            ScVal::Vec(Some(items)) => open.extend(items.iter()),
            ScVal::Map(Some(entries)) => {
                open.extend(entries.iter().flat_map(|entry| [&entry.key, &entry.val]));
            }
            _ => {}
        }
    }
    count
}

/// What is still to compare.
type Open<'a> = Vec<(&'a ScVal, &'a ScSpecTypeDef)>;

/// Whether the value is of the type: no number for another, nothing missing, nothing too much. Each
/// part of the value is compared with one type, and with the options and results around that type,
/// which were joined. False when the budget is spent.
pub(crate) fn fits(
    value: &ScVal,
    kind: &ScSpecTypeDef,
    types: &Types,
    budget: &mut Budget,
) -> bool {
    let mut open = vec![(value, kind)];
    while let Some((value, kind)) = open.pop() {
        if !budget.take(1) || !compare(value, kind, types, &mut open) {
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
