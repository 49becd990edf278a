//! Converts the types of a contract's specification (SEP-48, section `contractspecv0`) to column
//! types.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use stellar_xdr::{ScSpecEntry, ScSpecTypeDef, ScSpecUdtStructFieldV0, ScSpecUdtStructV0};

use super::names;
use super::types::{ColumnType, Field};

/// Maximum number of types in one table, nested ones included. Structs inside structs multiply, so
/// types beyond this number are stored in the tagged form.
const MAX_PARTS: usize = 2_000;
/// Maximum number of types for all structs of a contract together.
const MAX_PARTS_TOGETHER: usize = 20_000;

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
        let mut walk = Walk { spec: self, within, parts };
        let fields = walk.fields(definition);
        self.parts.set(self.parts.get() - (parts - walk.parts));
        fields
    }
}

/// Traversal of the types of one struct.
struct Walk<'a, 'b> {
    spec: &'b Spec<'a>,
    /// Names of the enclosing structs. A struct inside itself would recurse for ever, so it is
    /// stored in the tagged form.
    within: Vec<&'a [u8]>,
    /// Number of types that may still be created for this table.
    parts: usize,
}

impl<'a> Walk<'a, '_> {
    fn fields(&mut self, definition: &'a ScSpecUdtStructV0) -> Vec<Field> {
        let field = |field: &'a ScSpecUdtStructFieldV0| Field {
            name: names::text(field.name.as_slice()),
            kind: self.kind(&field.type_),
        };
        definition.fields.iter().map(field).collect()
    }

    fn kind(&mut self, kind: &'a ScSpecTypeDef) -> ColumnType {
        let Some(left) = self.parts.checked_sub(1) else { return ColumnType::Json };
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
        if self.spec.enums.contains(name) {
            return ColumnType::UInt32;
        }
        let definition =
            self.spec.structs.get(name).filter(|definition| has_named_fields(definition));
        let Some(definition) = definition.filter(|_| !self.within.contains(&name)) else {
            return ColumnType::Json;
        };
        self.within.push(name);
        let fields = self.fields(definition);
        self.within.pop();
        // Structs whose field names SQL cannot distinguish or quote are stored in the tagged form.
        let different: BTreeSet<String> =
            fields.iter().map(|field| names::folded(&field.name)).collect();
        let usable =
            different.len() == fields.len() && different.iter().all(|name| names::is_usable(name));
        if usable { ColumnType::Struct(fields) } else { ColumnType::Json }
    }
}

/// Whether a struct has named fields. Fields of tuple structs have numbers for names, and their
/// values are vectors.
fn has_named_fields(definition: &ScSpecUdtStructV0) -> bool {
    let number = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    !definition.fields.is_empty()
        && !definition.fields.iter().all(|field| number(field.name.as_slice()))
}
