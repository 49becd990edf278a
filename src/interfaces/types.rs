//! The structs, unions and enums that an interface defines, by name, in a form in which the parts of
//! a value are looked up at once.

use std::collections::{HashMap, HashSet};

use stellar_xdr::{
    ScSpecEntry, ScSpecTypeDef, ScSpecUdtStructV0, ScSpecUdtUnionCaseV0, ScSpecUdtUnionV0,
};

/// Types by name. Functions and events of the same name do not count; the first of a name wins.
#[derive(Debug, Clone, Default)]
pub struct Types(HashMap<Vec<u8>, Definition>);

/// A type that an interface defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Definition {
    /// A struct whose fields have names: a map.
    Struct(Fields),
    /// A struct whose fields have numbers: a vector.
    Tuple(Vec<ScSpecTypeDef>),
    /// One of several cases, each with values: a vector that begins with the case's name.
    Union(Union),
    /// An enum of integers.
    Enum(HashSet<u32>),
    /// An enum of a contract's errors: their names.
    Errors(HashMap<u32, Vec<u8>>),
}

/// The fields of a struct. The first of a name wins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields {
    in_order: Vec<(Vec<u8>, ScSpecTypeDef)>,
    /// Position of each name in `in_order`.
    by_name: HashMap<Vec<u8>, usize>,
}

/// The cases of a union with the types of their values. The first of a name wins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Union {
    cases: HashMap<Vec<u8>, Vec<ScSpecTypeDef>>,
}

impl Types {
    /// Collects the definitions among the entries.
    pub(crate) fn new(entries: &[ScSpecEntry]) -> Self {
        let mut types = HashMap::new();
        for entry in entries {
            let (name, definition) = match entry {
                ScSpecEntry::UdtStructV0(it) => (it.name.as_slice(), structure(it)),
                ScSpecEntry::UdtUnionV0(it) => (it.name.as_slice(), union(it)),
                ScSpecEntry::UdtEnumV0(it) => {
                    let values = it.cases.iter().map(|case| case.value);
                    (it.name.as_slice(), Definition::Enum(values.collect()))
                }
                ScSpecEntry::UdtErrorEnumV0(it) => {
                    let mut names = HashMap::new();
                    for case in it.cases.iter() {
                        names.entry(case.value).or_insert_with(|| case.name.to_vec());
                    }
                    (it.name.as_slice(), Definition::Errors(names))
                }
                ScSpecEntry::FunctionV0(_) | ScSpecEntry::EventV0(_) => continue,
            };
            types.entry(name.to_vec()).or_insert(definition);
        }
        Self(types)
    }

    /// Returns the type with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Definition> {
        self.0.get(name)
    }

    /// Returns all types with their names, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Definition)> {
        self.0.iter().map(|(name, definition)| (name.as_slice(), definition))
    }

    /// Returns the unions in the order of their names.
    pub fn unions(&self) -> Vec<(&[u8], &Union)> {
        let mut unions = Vec::new();
        for (name, definition) in &self.0 {
            if let Definition::Union(union) = definition {
                unions.push((name.as_slice(), union));
            }
        }
        unions.sort_unstable_by_key(|(name, _)| *name);
        unions
    }

    /// Whether a value of this type may be an error of a contract or of the host.
    pub(crate) fn error_fits(&self, kind: &ScSpecTypeDef, error: &stellar_xdr::ScError) -> bool {
        match kind {
            ScSpecTypeDef::Error | ScSpecTypeDef::Val => true,
            ScSpecTypeDef::Udt(named) => match (self.get(named.name.as_slice()), error) {
                (Some(Definition::Errors(names)), stellar_xdr::ScError::Contract(code)) => {
                    names.contains_key(code)
                }
                _ => false,
            },
            _ => false,
        }
    }
}

impl Fields {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// Returns the type of the field with this name.
    pub fn get(&self, name: &[u8]) -> Option<&ScSpecTypeDef> {
        self.by_name.get(name).map(|at| &self.in_order[*at].1)
    }

    /// Returns the names and types in declared order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &ScSpecTypeDef)> {
        self.in_order.iter().map(|(name, kind)| (name.as_slice(), kind))
    }
}

impl Union {
    /// Returns the cases with the types of their values, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[ScSpecTypeDef])> {
        self.cases.iter().map(|(case, kinds)| (case.as_slice(), kinds.as_slice()))
    }

    /// Returns the types of the values of the case with this name.
    pub fn get(&self, case: &[u8]) -> Option<&[ScSpecTypeDef]> {
        self.cases.get(case).map(Vec::as_slice)
    }
}

fn structure(definition: &ScSpecUdtStructV0) -> Definition {
    let is_number = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    let fields = definition.fields.as_slice();
    if !fields.is_empty() && fields.iter().all(|field| is_number(field.name.as_slice())) {
        return Definition::Tuple(fields.iter().map(|field| field.type_.clone()).collect());
    }
    let mut of = Fields::default();
    for field in fields {
        if !of.by_name.contains_key(field.name.as_slice()) {
            of.by_name.insert(field.name.to_vec(), of.in_order.len());
            of.in_order.push((field.name.to_vec(), field.type_.clone()));
        }
    }
    Definition::Struct(of)
}

fn union(definition: &ScSpecUdtUnionV0) -> Definition {
    let mut cases = HashMap::new();
    for case in definition.cases.iter() {
        let (name, types) = match case {
            ScSpecUdtUnionCaseV0::VoidV0(case) => (&case.name, &[][..]),
            ScSpecUdtUnionCaseV0::TupleV0(case) => (&case.name, case.type_.as_slice()),
        };
        cases.entry(name.to_vec()).or_insert_with(|| types.to_vec());
    }
    Definition::Union(Union { cases })
}
