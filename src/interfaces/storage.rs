//! Types of what contracts hold. An interface does not say them, but the SDK's macros leave what tells:
//! keys are cases of a union, and the value under one often has the type that is named as the case.

use std::collections::HashMap;

use stellar_xdr::{ScSpecTypeDef, ScSpecTypeUdt, ScVal};

use super::fits::{Budget, fits};
use super::interface::Interface;
use super::types::{Definition, Types};

/// The unions of an interface by the names of their cases.
#[derive(Debug)]
pub struct StorageKeys(HashMap<Vec<u8>, Vec<ScSpecTypeDef>>);

impl StorageKeys {
    /// Collects the unions of an interface.
    pub fn of(interface: &Interface) -> Self {
        let mut by_case: HashMap<Vec<u8>, Vec<ScSpecTypeDef>> = HashMap::new();
        for (name, union) in interface.types().unions() {
            let Some(kind) = named(name) else { continue };
            for (case, _) in union.iter() {
                by_case.entry(case.to_vec()).or_default().push(kind.clone());
            }
        }
        Self(by_case)
    }

    /// Returns the type of a key: the union that has a case of its name and is exactly its type. Of
    /// several, the first one in the order of their names. The types are those of the interface.
    pub fn key_kind(&self, key: &ScVal, types: &Types) -> Option<&ScSpecTypeDef> {
        let unions = self.0.get(key_name(key)?)?;
        unions.iter().find(|kind| is_exactly(key, kind, types))
    }
}

/// Returns the type of the value under a key: the struct, enum or union that is named as the key's symbol
/// and is exactly the value's type.
pub fn value_kind(key: &ScVal, value: &ScVal, types: &Types) -> Option<ScSpecTypeDef> {
    let name = key_name(key)?;
    match types.get(name)? {
        Definition::Errors(_) => None,
        _ => named(name).filter(|kind| is_exactly(value, kind, types)),
    }
}

/// Returns the symbol by which a key is found: the key itself, or the first element of a vector.
fn key_name(key: &ScVal) -> Option<&[u8]> {
    match key {
        ScVal::Symbol(name) => Some(name.as_slice()),
        ScVal::Vec(Some(items)) => match items.first()? {
            ScVal::Symbol(name) => Some(name.as_slice()),
            _ => None,
        },
        _ => None,
    }
}

fn named(name: &[u8]) -> Option<ScSpecTypeDef> {
    Some(ScSpecTypeDef::Udt(ScSpecTypeUdt { name: name.try_into().ok()? }))
}

fn is_exactly(value: &ScVal, kind: &ScSpecTypeDef, types: &Types) -> bool {
    fits(value, kind, types, &mut Budget::of_event(&[], value))
}
