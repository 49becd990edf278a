//! Converts the types of a contract's specification (SEP-48, section `contractspecv0`) to column
//! types.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use orrery_interfaces::{Definition, Types};
use stellar_xdr::{ScSpecEntry, ScSpecEventV0, ScSpecTypeDef, ScSpecUdtStructV0};

use super::names;
use super::types::{ColumnType, Field};
use orrery_ledger::domain;

/// Maximum number of types in one table, nested ones included. Structs inside structs multiply, so
/// types beyond this number are stored in the tagged form.
const MAX_PARTS: usize = 2_000;
/// Maximum number of types for all structs of a contract together.
const MAX_PARTS_TOGETHER: usize = 20_000;

/// Maximum number of types in one parameter of an event, and in all parameters together. A
/// parameter beyond is stored in the tagged form.
const MAX_PARTS_OF_PARAMETER: usize = 100;
const MAX_PARTS_OF_EVENT: usize = 400;
/// Number of types that any parameter may have, however many the others of its event have.
const PARTS_OF_ANY: usize = 4;
/// Number of types that are tried for all parameters of an interface together. A parameter beyond has
/// one type.
const MAX_PARTS_OF_INTERFACE: usize = 20_000;

/// Where the definitions of named types are found.
trait Definitions {
    /// Returns what a name stands for: of a struct that has more than `most` fields, only that.
    fn definition(&self, name: &[u8], most: usize) -> Named<'_>;
}

/// What a named type is to a column.
enum Named<'a> {
    /// An enum of integers.
    Number,
    /// A struct with named fields.
    Struct(Vec<(&'a [u8], &'a ScSpecTypeDef)>),
    /// A struct with too many.
    TooWide,
    /// Any other type.
    Other,
}

impl Definitions for Spec<'_> {
    fn definition(&self, name: &[u8], most: usize) -> Named<'_> {
        if self.enums.contains(name) {
            return Named::Number;
        }
        match self.structs.get(name) {
            Some((_, false)) | None => Named::Other,
            Some((definition, true)) if definition.fields.len() > most => Named::TooWide,
            Some((definition, true)) => Named::Struct(named_fields(definition)),
        }
    }
}

impl Definitions for Types {
    fn definition(&self, name: &[u8], most: usize) -> Named<'_> {
        match self.get(name) {
            Some(Definition::Enum(_)) => Named::Number,
            Some(Definition::Struct(fields)) if fields.len() > most => Named::TooWide,
            Some(Definition::Struct(fields)) if !fields.is_empty() => {
                Named::Struct(fields.iter().collect())
            }
            _ => Named::Other,
        }
    }
}

/// Converts the types of the parameters of an interface's events, event by event. The work is bounded
/// by the number of parameters, whatever the types are.
pub struct ParameterTypes<'a> {
    types: &'a Types,
    /// Types deeper than this are JSON.
    depth: usize,
    /// Number of types that may still be tried for the whole interface.
    left: usize,
}

impl<'a> ParameterTypes<'a> {
    /// Types of parameters that are declared with these types.
    pub fn new(types: &'a Types, depth: usize) -> Self {
        Self { types, depth, left: MAX_PARTS_OF_INTERFACE }
    }

    /// Converts the types of the next event's parameters, in declared order. One that is too deep or
    /// too wide is JSON.
    pub fn of_event(&mut self, event: &'a ScSpecEventV0) -> Vec<ColumnType> {
        let mut left = MAX_PARTS_OF_EVENT;
        let parameters = event.params.iter().map(|parameter| {
            let any = if self.left > 0 { PARTS_OF_ANY } else { 1 };
            let parts = MAX_PARTS_OF_PARAMETER.min(left).min(self.left).max(any);
            let mut walk =
                Walk { definitions: self.types, within: Vec::new(), parts, is_cut: false };
            let kind = walk.kind(&parameter.type_);
            let tried = parts - walk.parts;
            self.left = self.left.saturating_sub(tried);
            if walk.is_cut || kind.depth() > self.depth {
                return ColumnType::Json;
            }
            left = left.saturating_sub(tried);
            kind
        });
        parameters.collect()
    }
}

/// The structs and enums that a contract defines.
pub struct Spec<'a> {
    /// Each with whether its fields have names.
    structs: BTreeMap<&'a [u8], (&'a ScSpecUdtStructV0, bool)>,
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
                    let named = || (definition, has_named_fields(definition));
                    spec.structs.entry(definition.name.as_slice()).or_insert_with(named);
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
        self.structs.values().filter_map(|(definition, is_named)| is_named.then_some(*definition))
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
        let field = |(name, kind)| Field { name: domain::text(name), kind: self.kind(kind) };
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
        let fields = match self.definitions.definition(name, self.parts) {
            Named::Number => return ColumnType::UInt32,
            Named::Struct(fields) if !self.within.contains(&name) => fields,
            Named::Struct(_) | Named::Other => return ColumnType::Json,
            Named::TooWide => {
                self.is_cut = true;
                return ColumnType::Json;
            }
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
