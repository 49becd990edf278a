//! Which types of an interface contain which: types without values, and those that cannot derive
//! everything because of what they contain. Takes time in proportion to the size of the interface.

use std::collections::BTreeSet;

use stellar_xdr::ScSpecTypeDef;

use super::error::Unwritable;
use super::interface::{Definition, Interface};
use super::{kind, rust};

impl Interface {
    /// Refuses a type that contains itself other than through a list or a map: its values would be
    /// infinite.
    pub(super) fn reject_infinite_types(&self) -> Result<(), Unwritable> {
        let contained = self.contained(|listed| !listed);
        let users = users(&contained);
        let mut unknown: Vec<usize> = contained.iter().map(BTreeSet::len).collect();
        let mut finite: Vec<usize> = (0..unknown.len()).filter(|at| unknown[*at] == 0).collect();
        while let Some(next) = finite.pop() {
            for user in &users[next] {
                unknown[*user] -= 1;
                if unknown[*user] == 0 {
                    finite.push(*user);
                }
            }
        }
        match unknown.iter().position(|unknown| *unknown > 0) {
            Some(infinite) => Err(Unwritable::NoValue(self.definitions[infinite].name.clone())),
            None => Ok(()),
        }
    }

    /// Finds the types that contain a `Val`, which may hold any value, at any depth; and those that
    /// contain a type of the SDK's library.
    pub(super) fn find_limited(&mut self) {
        let any = |part: &ScSpecTypeDef| match kind::named(part) {
            Some(name) => self.undefined.contains(&name),
            None => *part == ScSpecTypeDef::Val,
        };
        let mut incomparable = self.holders(any);
        incomparable.extend(self.undefined.iter().cloned());
        let of_sdk = |part: &ScSpecTypeDef| {
            let name = kind::named(part).filter(|name| self.definition(name).is_none());
            name.is_some_and(|name| rust::sdk_path(&name).is_some())
        };
        let unprintable = self.holders(of_sdk);
        (self.incomparable, self.unprintable) = (incomparable, unprintable);
    }

    /// Whether `{:?}` prints the values of a type.
    pub fn is_printable(&self, kind: &ScSpecTypeDef) -> bool {
        kind::parts(kind).into_iter().all(|(part, _)| {
            kind::named(part).is_none_or(|name| match self.definition(&name) {
                Some(_) => !self.unprintable.contains(&name),
                None => rust::sdk_path(&name).is_none(),
            })
        })
    }

    /// Returns the names of the types that contain, at any depth, a part for which `is` holds.
    fn holders(&self, is: impl Fn(&ScSpecTypeDef) -> bool) -> BTreeSet<String> {
        let users = users(&self.contained(|_| true));
        let holds = |one: &Definition| one.kinds().flat_map(kind::parts).any(|(part, _)| is(part));
        let mut found: Vec<bool> = self.definitions.iter().map(holds).collect();
        let mut new: Vec<usize> = (0..found.len()).filter(|at| found[*at]).collect();
        while let Some(next) = new.pop() {
            for user in &users[next] {
                if !std::mem::replace(&mut found[*user], true) {
                    new.push(*user);
                }
            }
        }
        let named = self.definitions.iter().zip(&found).filter(|(_, found)| **found);
        named.map(|(one, _)| one.name.clone()).collect()
    }

    /// Returns for each definition the positions of the types that its values contain directly;
    /// `counts` decides by whether they are in a list or a map.
    fn contained(&self, counts: impl Fn(bool) -> bool) -> Vec<BTreeSet<usize>> {
        let types_of = |one: &Definition| {
            let parts = one.kinds().flat_map(kind::parts).filter(|(_, listed)| counts(*listed));
            let named = parts.filter_map(|(part, _)| self.types.get(&kind::named(part)?).copied());
            named.collect()
        };
        self.definitions.iter().map(types_of).collect()
    }
}

/// Returns for each definition the positions of those that contain it.
fn users(contained: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut users = vec![Vec::new(); contained.len()];
    for (user, types) in contained.iter().enumerate() {
        for contained in types {
            users[*contained].push(user);
        }
    }
    users
}
