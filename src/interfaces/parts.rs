//! The parts of a value: items of lists, members of structs and maps, and the case of a union. Which
//! there are follows from the declared type, as the form in which [`Plain`] writes the value does.

use std::borrow::Cow;

use orrery_ledger::domain::text;
use stellar_xdr::{ScMapEntry, ScSpecTypeDef, ScVal};

use super::plain::{Plain, VAL};
use super::types::Definition;

impl<'a> Plain<'a> {
    /// Returns the item of a vector, a tuple or a tuple struct with this number, from 0; `None` where the
    /// value is no such list, or ends before it.
    pub fn item(&self, number: usize) -> Option<Plain<'a>> {
        let ScVal::Vec(Some(items)) = self.value else { return None };
        let item = items.get(number)?;
        let kind: &ScSpecTypeDef = match self.inner_kind() {
            ScSpecTypeDef::Vec(of) => &of.element_type,
            ScSpecTypeDef::Tuple(of) => of.value_types.get(number).unwrap_or(&VAL),
            ScSpecTypeDef::Udt(named) => match self.types.get(named.name.as_slice()) {
                Some(Definition::Tuple(kinds)) => kinds.get(number).unwrap_or(&VAL),
                Some(Definition::Union(_)) => return None,
                _ => &VAL,
            },
            _ => &VAL,
        };
        Some(self.of(item, kind))
    }

    /// Returns the value under a key of a map or the member of a struct; `None` where the value is neither,
    /// or has none of this name. A key is the text that it is written as. Exactly this name comes first;
    /// except in a map of a declared type, then the first that SQL folds to the same.
    pub fn member(&self, name: &str) -> Option<Plain<'a>> {
        let ScVal::Map(Some(entries)) = self.value else { return None };
        let entries = entries.as_slice();
        match self.inner_kind() {
            ScSpecTypeDef::Map(of) => {
                let entry =
                    entries.iter().find(|entry| key(entry).is_some_and(|key| key == name))?;
                Some(self.of(&entry.val, &of.value_type))
            }
            ScSpecTypeDef::Udt(named) => {
                let entry = folding(entries, name)?;
                let fields = match self.types.get(named.name.as_slice()) {
                    Some(Definition::Struct(fields)) => Some(fields),
                    _ => None,
                };
                let kind = match &entry.key {
                    ScVal::Symbol(key) => fields.and_then(|it| it.get(key.as_slice())),
                    _ => None,
                };
                Some(self.of(&entry.val, kind.unwrap_or(&VAL)))
            }
            _ => Some(self.of(&folding(entries, name)?.val, &VAL)),
        }
    }

    /// Returns the name of the case of a union, a symbol, and the case's values; `None` where the value
    /// is not declared as a union.
    pub fn case(&self) -> Option<(Plain<'a>, Vec<Plain<'a>>)> {
        let ScSpecTypeDef::Udt(named) = self.inner_kind() else { return None };
        let Some(Definition::Union(union)) = self.types.get(named.name.as_slice()) else {
            return None;
        };
        let ScVal::Vec(Some(items)) = self.value else { return None };
        let (tag, values) = items.as_slice().split_first()?;
        let ScVal::Symbol(case) = tag else { return None };
        let kinds = union.get(case.as_slice()).unwrap_or_default();
        let kinds = kinds.iter().chain(std::iter::repeat(&VAL));
        let values = values.iter().zip(kinds).map(|(value, kind)| self.of(value, kind));
        Some((self.of(tag, &VAL), values.collect()))
    }
}

fn folding<'a>(entries: &'a [ScMapEntry], name: &str) -> Option<&'a ScMapEntry> {
    let with = |is: &dyn Fn(&str) -> bool| {
        entries.iter().find(|entry| key(entry).is_some_and(|key| is(&key)))
    };
    with(&|key| key == name).or_else(|| with(&|key| key.eq_ignore_ascii_case(name)))
}

/// Returns a key as text, if it is a scalar.
fn key(entry: &ScMapEntry) -> Option<Cow<'_, str>> {
    let owned = |text: String| Some(Cow::Owned(text));
    match &entry.key {
        ScVal::Symbol(key) => Some(any_text(key.as_slice())),
        ScVal::String(key) => Some(any_text(key.as_slice())),
        ScVal::Bool(key) => Some(Cow::Borrowed(if *key { "true" } else { "false" })),
        ScVal::U32(key) => owned(key.to_string()),
        ScVal::I32(key) => owned(key.to_string()),
        ScVal::U64(key) => owned(key.to_string()),
        ScVal::I64(key) => owned(key.to_string()),
        ScVal::Timepoint(key) => owned(key.0.to_string()),
        ScVal::Duration(key) => owned(key.0.to_string()),
        ScVal::U128(key) => owned(key.to_string()),
        ScVal::I128(key) => owned(key.to_string()),
        ScVal::U256(key) => owned(key.to_string()),
        ScVal::I256(key) => owned(key.to_string()),
        ScVal::Bytes(key) => owned(hex::encode(key.as_slice())),
        ScVal::Address(key) => owned(key.to_string()),
        _ => None,
    }
}

fn any_text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(text(bytes)),
    }
}
