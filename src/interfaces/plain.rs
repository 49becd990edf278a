//! Values of events as people read them, in JSON. The declared type decides the form; what has no
//! declared type is written by its own.

use std::collections::HashSet;

use orrery_ledger::domain::text;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use stellar_xdr::{ScMapEntry, ScSpecTypeDef, ScVal};

use super::declaration::{Matched, Rest};
use super::typed::Typed;
use super::types::{Definition, Fields, Types, Union};

/// Stack that writing one level may need, and that a thread gets when it has less, in bytes.
const LEVEL: usize = 64 << 10;
const STACK: usize = 4 << 20;

pub(super) static VAL: ScSpecTypeDef = ScSpecTypeDef::Val;

/// A value by its declared type.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a> {
    pub(super) value: &'a ScVal,
    pub(super) kind: &'a ScSpecTypeDef,
    pub(super) types: &'a Types,
}

/// The parameters of an event that it has, by name.
#[derive(Debug, Clone, Copy)]
pub struct Params<'a>(pub &'a Matched<'a>);

/// What the declaration of an event does not name; only members that are not empty.
#[derive(Debug, Clone, Copy)]
pub struct PlainRest<'a> {
    /// The parts.
    pub rest: &'a Rest<'a>,
    /// The types of the interface with the declaration.
    pub types: &'a Types,
}

impl<'a> Plain<'a> {
    /// A value of a declared type. The types are those of the interface that declares it.
    pub fn new(value: &'a ScVal, kind: &'a ScSpecTypeDef, types: &'a Types) -> Self {
        Self { value, kind, types }
    }

    /// A value without a declared type.
    pub fn undeclared(value: &'a ScVal, types: &'a Types) -> Self {
        Self { value, kind: &VAL, types }
    }

    /// The value.
    pub fn value(&self) -> &'a ScVal {
        self.value
    }

    pub(super) fn of(&self, value: &'a ScVal, kind: &'a ScSpecTypeDef) -> Self {
        Self { value, kind, types: self.types }
    }

    /// Returns the type without the options and results around it that say nothing of this value.
    pub(super) fn inner_kind(&self) -> &'a ScSpecTypeDef {
        let mut kind = self.kind;
        loop {
            kind = match (kind, self.value) {
                (ScSpecTypeDef::Option(_), ScVal::Void) => return &VAL,
                (ScSpecTypeDef::Option(of), _) => &of.value_type,
                (ScSpecTypeDef::Result(_), ScVal::Error(_)) => return &VAL,
                (ScSpecTypeDef::Result(of), _) => &of.ok_type,
                (kind, _) => return kind,
            };
        }
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.inner_kind(), self.value) {
            (ScSpecTypeDef::Vec(of), ScVal::Vec(Some(items))) => {
                serializer.collect_seq(items.iter().map(|item| self.of(item, &of.element_type)))
            }
            (ScSpecTypeDef::Tuple(of), ScVal::Vec(Some(items))) => {
                self.tuple(items, of.value_types.as_slice(), serializer)
            }
            (ScSpecTypeDef::Map(of), ScVal::Map(Some(entries))) => {
                let has_text =
                    matches!(*of.key_type, ScSpecTypeDef::Symbol | ScSpecTypeDef::String);
                self.map(entries, has_text, (&of.key_type, &of.value_type), serializer)
            }
            (ScSpecTypeDef::Udt(named), value) => {
                match (self.types.get(named.name.as_slice()), value) {
                    (Some(Definition::Struct(fields)), ScVal::Map(Some(entries))) => {
                        self.structure(entries, fields, serializer)
                    }
                    (Some(Definition::Tuple(kinds)), ScVal::Vec(Some(items))) => {
                        self.tuple(items, kinds, serializer)
                    }
                    (Some(Definition::Union(union)), ScVal::Vec(Some(items))) => {
                        self.union(items, union, serializer)
                    }
                    _ => self.by_value(serializer),
                }
            }
            _ => self.by_value(serializer),
        }
    }

    /// Writes a value without regard to its declared type.
    fn by_value<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            ScVal::Bool(value) => serializer.serialize_bool(*value),
            ScVal::Void => serializer.serialize_unit(),
            ScVal::U32(number) => serializer.serialize_u32(*number),
            ScVal::I32(number) => serializer.serialize_i32(*number),
            ScVal::U64(number) => serializer.collect_str(number),
            ScVal::I64(number) => serializer.collect_str(number),
            ScVal::Timepoint(number) => serializer.collect_str(&number.0),
            ScVal::Duration(number) => serializer.collect_str(&number.0),
            ScVal::U128(number) => serializer.collect_str(number),
            ScVal::I128(number) => serializer.collect_str(number),
            ScVal::U256(number) => serializer.collect_str(number),
            ScVal::I256(number) => serializer.collect_str(number),
            ScVal::Bytes(bytes) => serializer.serialize_str(&hex::encode(bytes.as_slice())),
            ScVal::String(string) => serializer.serialize_str(&text(string.as_slice())),
            ScVal::Symbol(symbol) => serializer.serialize_str(&text(symbol.as_slice())),
            ScVal::Address(address) => serializer.collect_str(address),
            ScVal::Vec(Some(items)) => {
                serializer.collect_seq(items.iter().map(|item| self.of(item, &VAL)))
            }
            ScVal::Map(Some(entries)) => self.map(entries, true, (&VAL, &VAL), serializer),
            ScVal::Error(_)
            | ScVal::Vec(None)
            | ScVal::Map(None)
            | ScVal::ContractInstance(_)
            | ScVal::LedgerKeyContractInstance
            | ScVal::LedgerKeyNonce(_)
            | ScVal::ExecutableTag(_) => Typed(self.value).serialize(serializer),
        }
    }

    fn tuple<S: Serializer>(
        &self,
        items: &'a [ScVal],
        kinds: &'a [ScSpecTypeDef],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let kinds = kinds.iter().chain(std::iter::repeat(&VAL));
        serializer.collect_seq(items.iter().zip(kinds).map(|(item, kind)| self.of(item, kind)))
    }

    /// Writes an object if the keys may be text and are, and differ; else pairs.
    fn map<S: Serializer>(
        &self,
        entries: &'a [ScMapEntry],
        may_be_object: bool,
        (key, value): (&'a ScSpecTypeDef, &'a ScSpecTypeDef),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match text_keys(entries).filter(|_| may_be_object) {
            Some(keys) => {
                let values = entries.iter().map(|entry| self.of(&entry.val, value));
                serializer.collect_map(keys.into_iter().zip(values))
            }
            None => serializer.collect_seq(
                entries.iter().map(|entry| [self.of(&entry.key, key), self.of(&entry.val, value)]),
            ),
        }
    }

    fn structure<S: Serializer>(
        &self,
        entries: &'a [ScMapEntry],
        fields: &'a Fields,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let Some(keys) = text_keys(entries) else { return self.by_value(serializer) };
        let mut object = serializer.serialize_map(Some(entries.len()))?;
        for (key, entry) in keys.iter().zip(entries) {
            let kind = match &entry.key {
                ScVal::Symbol(name) => fields.get(name.as_slice()).unwrap_or(&VAL),
                _ => &VAL,
            };
            object.serialize_entry(key, &self.of(&entry.val, kind))?;
        }
        object.end()
    }

    fn union<S: Serializer>(
        &self,
        items: &'a [ScVal],
        union: &'a Union,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let [ScVal::Symbol(case), values @ ..] = items else { return self.by_value(serializer) };
        let kinds = union.get(case.as_slice()).unwrap_or_default();
        let kinds = kinds.iter().chain(std::iter::repeat(&VAL));
        let values = values.iter().zip(kinds).map(|(value, kind)| self.of(value, kind));
        let mut object = serializer.serialize_map(Some(2))?;
        object.serialize_entry("tag", &text(case.as_slice()))?;
        object.serialize_entry("values", &values.collect::<Vec<_>>())?;
        object.end()
    }
}

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        stacker::maybe_grow(LEVEL, STACK, || self.write(serializer))
    }
}

impl Serialize for Params<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let types = self.0.interface.types();
        let parameters = self.0.parameters.iter().map(|parameter| {
            (parameter.name, Plain::new(parameter.value, &parameter.declared.type_, types))
        });
        serializer.collect_map(parameters)
    }
}

impl Serialize for PlainRest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = |values: &'_ [ScVal], serializer: &mut S::SerializeMap, name| {
            if values.is_empty() {
                return Ok(());
            }
            let plain = values.iter().map(|value| Plain::undeclared(value, self.types));
            serializer.serialize_entry(name, &plain.collect::<Vec<_>>())
        };
        let mut object = serializer.serialize_map(None)?;
        if !self.rest.keys.is_empty() {
            object.serialize_entry("keys", &RestKeys(self))?;
        }
        values(self.rest.topics, &mut object, "topics")?;
        values(self.rest.items, &mut object, "items")?;
        object.end()
    }
}

/// The keys of the rest, in the form of a map without a declared type.
struct RestKeys<'a>(&'a PlainRest<'a>);

impl Serialize for RestKeys<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (entries, types) = (&self.0.rest.keys, self.0.types);
        let value = |value| Plain::undeclared(value, types);
        match text_keys(entries.iter().copied()) {
            Some(keys) => {
                let values = entries.iter().map(|entry| value(&entry.val));
                serializer.collect_map(keys.into_iter().zip(values))
            }
            None => {
                let mut pairs = serializer.serialize_seq(Some(entries.len()))?;
                for entry in entries {
                    pairs.serialize_element(&[value(&entry.key), value(&entry.val)])?;
                }
                pairs.end()
            }
        }
    }
}

/// Returns the keys as text if all are, and all differ.
fn text_keys<'a>(entries: impl IntoIterator<Item = &'a ScMapEntry>) -> Option<Vec<String>> {
    let key = |entry: &ScMapEntry| match &entry.key {
        ScVal::Symbol(symbol) => Some(text(symbol.as_slice())),
        ScVal::String(string) => Some(text(string.as_slice())),
        _ => None,
    };
    let keys: Vec<String> = entries.into_iter().map(key).collect::<Option<_>>()?;
    let differ = keys.iter().collect::<HashSet<_>>().len() == keys.len();
    differ.then_some(keys)
}
