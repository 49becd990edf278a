//! Converts the types of a contract's specification (SEP-48, section `contractspecv0`) to column
//! types.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use orrery_interfaces::{Definition, Types};
use stellar_xdr::{ScSpecEntry, ScSpecEventV0, ScSpecTypeDef, ScSpecUdtStructV0};

use super::names;
use super::types::{ColumnType, Field};

/// Maximum number of types in one table, nested ones included. Structs inside structs multiply, so
/// types beyond this number are stored in the tagged form.
const MAX_PARTS: usize = 2_000;
/// Maximum number of types for all structs of a contract together.
const MAX_PARTS_TOGETHER: usize = 20_000;

/// Maximum number of types in one parameter of an event, and in all parameters together. A
/// parameter beyond is stored in the tagged form.
const MAX_PARTS_OF_PARAMETER: usize = 100;
const MAX_PARTS_OF_EVENT: usize = 400;
/// Number of types that any parameter may have, however many the others have.
const PARTS_OF_ANY: usize = 4;

/// Where the definitions of named types are found.
trait Definitions {
    /// Returns what a name stands for.
    fn definition(&self, name: &[u8]) -> Named<'_>;
}

/// What a named type is to a column.
enum Named<'a> {
    /// An enum of integers.
    Number,
    /// A struct with named fields.
    Struct(Vec<(&'a [u8], &'a ScSpecTypeDef)>),
    /// Any other type.
    Other,
}

impl Definitions for Spec<'_> {
    fn definition(&self, name: &[u8]) -> Named<'_> {
        if self.enums.contains(name) {
            return Named::Number;
        }
        match self.structs.get(name).filter(|definition| has_named_fields(definition)) {
            Some(definition) => Named::Struct(named_fields(definition)),
            None => Named::Other,
        }
    }
}

impl Definitions for Types {
    fn definition(&self, name: &[u8]) -> Named<'_> {
        match self.get(name) {
            Some(Definition::Enum(_)) => Named::Number,
            Some(Definition::Struct(fields)) if !fields.is_empty() => {
                Named::Struct(fields.iter().collect())
            }
            _ => Named::Other,
        }
    }
}

/// Converts the types of an event's parameters, in declared order. A type deeper than `depth` or
/// too wide is JSON.
pub fn parameter_types(event: &ScSpecEventV0, types: &Types, depth: usize) -> Vec<ColumnType> {
    let mut left = MAX_PARTS_OF_EVENT;
    let parameters = event.params.iter().map(|parameter| {
        let parts = MAX_PARTS_OF_PARAMETER.min(left).max(PARTS_OF_ANY);
        let mut walk = Walk { definitions: types, within: Vec::new(), parts, is_cut: false };
        let kind = walk.kind(&parameter.type_);
        if walk.is_cut || kind.depth() > depth {
            return ColumnType::Json;
        }
        left = left.saturating_sub(parts - walk.parts);
        kind
    });
    parameters.collect()
}

/// The structs and enums that a contract defines.
pub struct Spec<'a> {
    structs: BTreeMap<&'a [u8], &'a ScSpecUdtStructV0>,
    enums: BTreeSet<&'a [u8]>,
    /// Number of types that may still be created for the whole contract.
    parts: Cell<usize>,
}

impl<'a> Spec<'a> {
    /// Collects the definitions.
    pub fn new(entries: &'a [ScSpecEntry]) -> Self {
        let parts = Cell::new(MAX_PARTS_TOGETHER);
        let mut spec = Self { structs: BTreeMap::new(), enums: BTreeSet::new(), parts };
        for entry in entries {
            match entry {
                ScSpecEntry::UdtStructV0(definition) => {
                    spec.structs.entry(definition.name.as_slice()).or_insert(definition);
                }
                ScSpecEntry::UdtEnumV0(definition) => {
                    spec.enums.insert(definition.name.as_slice());
                }
                _ => {}
            }
        }
        spec
    }

    /// Returns the structs with named fields, in the order of their names.
    pub fn structs(&self) -> impl Iterator<Item = &'a ScSpecUdtStructV0> + '_ {
        self.structs.values().copied().filter(|definition| has_named_fields(definition))
    }

    /// Converts the fields of a struct to columns.
    pub fn fields(&self, definition: &'a ScSpecUdtStructV0) -> Vec<Field> {
        let within = vec![definition.name.as_slice()];
        let parts = MAX_PARTS.min(self.parts.get());
        let mut walk = Walk { definitions: self, within, parts, is_cut: false };
        let fields = walk.fields(named_fields(definition));
        self.parts.set(self.parts.get() - (parts - walk.parts));
        fields
    }
}

/// Traversal of the types of one struct.
struct Walk<'a, D> {
    definitions: &'a D,
    /// Names of the enclosing structs. A struct inside itself would recurse for ever, so it is
    /// stored in the tagged form.
    within: Vec<&'a [u8]>,
    /// Number of types that may still be created for this table.
    parts: usize,
    /// Whether there were more.
    is_cut: bool,
}

impl<'a, D: Definitions> Walk<'a, D> {
    fn fields(&mut self, fields: Vec<(&'a [u8], &'a ScSpecTypeDef)>) -> Vec<Field> {
        let field = |(name, kind)| Field { name: names::text(name), kind: self.kind(kind) };
        fields.into_iter().map(field).collect()
    }

    fn kind(&mut self, kind: &'a ScSpecTypeDef) -> ColumnType {
        let Some(left) = self.parts.checked_sub(1) else {
            self.is_cut = true;
            return ColumnType::Json;
        };
        self.parts = left;
        match kind {
            ScSpecTypeDef::Bool => ColumnType::Boolean,
            ScSpecTypeDef::U32 => ColumnType::UInt32,
            ScSpecTypeDef::I32 => ColumnType::Int32,
            ScSpecTypeDef::U64 | ScSpecTypeDef::Timepoint | ScSpecTypeDef::Duration => {
                ColumnType::UInt64
            }
            ScSpecTypeDef::I64 => ColumnType::Int64,
            ScSpecTypeDef::U128 => ColumnType::UInt128,
            ScSpecTypeDef::I128 => ColumnType::Int128,
            ScSpecTypeDef::U256 | ScSpecTypeDef::I256 => ColumnType::Digits,
            ScSpecTypeDef::Bytes | ScSpecTypeDef::BytesN(_) => ColumnType::Bytes,
            ScSpecTypeDef::String
            | ScSpecTypeDef::Symbol
            | ScSpecTypeDef::Address
            | ScSpecTypeDef::MuxedAddress => ColumnType::Text,
            ScSpecTypeDef::Option(option) => self.kind(&option.value_type),
            ScSpecTypeDef::Vec(list) => ColumnType::list(self.kind(&list.element_type)),
            ScSpecTypeDef::Map(map) if matches!(*map.key_type, ScSpecTypeDef::Option(_)) => {
                // Keys of a SQL map cannot be null.
                ColumnType::Json
            }
            ScSpecTypeDef::Map(map) => {
                let keys = self.kind(&map.key_type);
                ColumnType::map(keys, self.kind(&map.value_type))
            }
            ScSpecTypeDef::Udt(named) => self.named(named.name.as_slice()),
            ScSpecTypeDef::Val
            | ScSpecTypeDef::Void
            | ScSpecTypeDef::Error
            | ScSpecTypeDef::Result(_)
            | ScSpecTypeDef::Tuple(_) => ColumnType::Json,
        }
    }

    fn named(&mut self, name: &'a [u8]) -> ColumnType {
        let fields = match self.definitions.definition(name) {
            Named::Number => return ColumnType::UInt32,
            Named::Struct(fields) if !self.within.contains(&name) => fields,
            Named::Struct(_) | Named::Other => return ColumnType::Json,
        };
        self.within.push(name);
        let fields = self.fields(fields);
        self.within.pop();
        // Structs whose field names SQL cannot distinguish or quote are stored in the tagged form.
        let different: BTreeSet<String> =
            fields.iter().map(|field| names::folded(&field.name)).collect();
        let usable =
            different.len() == fields.len() && different.iter().all(|name| names::is_usable(name));
        if usable { ColumnType::Struct(fields) } else { ColumnType::Json }
    }
}

fn named_fields(definition: &ScSpecUdtStructV0) -> Vec<(&[u8], &ScSpecTypeDef)> {
    definition.fields.iter().map(|field| (field.name.as_slice(), &field.type_)).collect()
}

/// Whether a struct has named fields. Fields of tuple structs have numbers for names, and their
/// values are vectors.
fn has_named_fields(definition: &ScSpecUdtStructV0) -> bool {
    let number = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    !definition.fields.is_empty()
        && !definition.fields.iter().all(|field| number(field.name.as_slice()))
}
