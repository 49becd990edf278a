//! Names that a generated source file imports.

use std::collections::BTreeSet;

use stellar_xdr::ScSpecTypeDef;

use super::interface::Interface;
use super::{kind, rust};

/// Names that a source file must import.
#[derive(Debug, Default)]
pub struct Imports {
    /// Names from `soroban_sdk`.
    pub sdk: BTreeSet<String>,
    /// Names from the project's `interface` module.
    pub own: BTreeSet<String>,
}

impl Imports {
    /// Returns the names that these types need, and other names from `soroban_sdk`.
    pub fn of<'a>(
        kinds: impl IntoIterator<Item = &'a ScSpecTypeDef>,
        interface: &Interface,
        others: &[&str],
    ) -> Self {
        let sdk = others.iter().map(|name| (*name).to_owned()).collect();
        let mut imports = Self { sdk, own: BTreeSet::new() };
        kinds.into_iter().for_each(|kind| imports.add(kind, interface));
        imports
    }

    /// Adds the names that a type needs.
    pub fn add(&mut self, kind: &ScSpecTypeDef, interface: &Interface) {
        for (part, _) in kind::parts(kind) {
            let named = kind::named(part);
            let name = match part {
                ScSpecTypeDef::Option(_) | ScSpecTypeDef::Tuple(_) | ScSpecTypeDef::Result(_) => {
                    continue;
                }
                plain if kind::is_plain(plain) => continue,
                other => named.as_deref().unwrap_or(other.name()),
            };
            if interface.definition(name).is_some() || interface.undefined.contains(name) {
                self.own.insert(name.to_owned());
            } else if named.is_none() {
                self.sdk.insert(name.to_owned());
            } else {
                self.sdk.extend(rust::sdk_path(name).map(str::to_owned));
            }
        }
    }

    /// Returns the lines that import the names, which are in the module `own` if they are not in
    /// the SDK.
    pub fn lines(&self, own: &str) -> String {
        let lines = [("soroban_sdk", &self.sdk), (own, &self.own)];
        let lines = lines.map(|(path, names)| rust::import(path, names));
        lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}
