//! Names that a generated source file imports.

use std::collections::BTreeSet;

use super::interface::Interface;
use super::kind::Kind;
use super::rust;

/// Names that a source file must import.
#[derive(Debug, Default)]
pub struct Imports {
    /// Names from `soroban_sdk`.
    pub sdk: BTreeSet<String>,
    /// Names from the project's `interface` module.
    pub own: BTreeSet<String>,
}

impl Imports {
    /// Adds the names that a type needs.
    pub fn add(&mut self, kind: &Kind, interface: &Interface) {
        for part in kind.parts() {
            let (name, of_sdk) = match part {
                Kind::Plain(_) | Kind::Option(_) | Kind::Tuple(_) | Kind::Result(..) => continue,
                Kind::BytesN(_) => ("BytesN", true),
                Kind::Vec(_) => ("Vec", true),
                Kind::Map(..) => ("Map", true),
                Kind::Sdk(name) => (*name, true),
                Kind::Named(name) => (name.as_str(), false),
            };
            if interface.definition(name).is_some() || interface.undefined.contains(name) {
                self.own.insert(name.to_owned());
            } else if of_sdk {
                self.sdk.insert(name.to_owned());
            } else {
                self.sdk.extend(rust::sdk_path(name));
            }
        }
    }
}
