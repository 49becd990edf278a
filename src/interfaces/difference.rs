//! What two interfaces declare differently, by the names of events and functions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use stellar_xdr::{ScSpecEventV0, ScSpecFunctionV0, ScSpecTypeDef};

use super::interface::Interface;
use super::types::{Definition, Types};
use orrery_ledger::domain::text;

/// What an interface declares and another one does not, or declares differently.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Difference {
    /// Whether anything differs.
    pub changed: bool,
    /// Names of events.
    pub events: Names,
    /// Names of functions.
    pub functions: Names,
}

/// Names, each list in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Names {
    /// Of the new interface alone.
    pub added: Vec<String>,
    /// Of the old interface alone.
    pub removed: Vec<String>,
    /// Of both, declared differently: in their parameters, or in types that these have.
    pub changed: Vec<String>,
}

impl Difference {
    /// Compares two interfaces. Comments of their authors do not count.
    pub fn between(old: &Interface, new: &Interface) -> Self {
        let differ = differing(old.types(), new.types());
        let events = Names::of(&events(old), &events(new), |old, new| {
            old.len() == new.len() && old.iter().zip(new).all(|(a, b)| same_event(a, b, &differ))
        });
        let functions = Names::of(&functions(old), &functions(new), |old, new| {
            same_function(old, new, &differ)
        });
        let changed = !events.is_empty() || !functions.is_empty();
        Self { changed, events, functions }
    }
}

impl Names {
    fn of<T>(
        old: &BTreeMap<String, T>,
        new: &BTreeMap<String, T>,
        is_same: impl Fn(&T, &T) -> bool,
    ) -> Self {
        let only = |of: &BTreeMap<String, T>, without: &BTreeMap<String, T>| {
            of.keys().filter(|name| !without.contains_key(*name)).cloned().collect()
        };
        let both = old.iter().filter_map(|(name, old)| Some((name, old, new.get(name)?)));
        let changed = both.filter(|(_, old, new)| !is_same(old, new));
        Self {
            added: only(new, old),
            removed: only(old, new),
            changed: changed.map(|(name, ..)| name.clone()).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Returns the forms of each event, in their order.
fn events(interface: &Interface) -> BTreeMap<String, Vec<&ScSpecEventV0>> {
    let mut events: BTreeMap<String, Vec<&ScSpecEventV0>> = BTreeMap::new();
    for (name, event) in interface.event_names().zip(interface.events()) {
        events.entry(name.to_owned()).or_default().push(event);
    }
    events
}

fn functions(interface: &Interface) -> BTreeMap<String, &ScSpecFunctionV0> {
    let named =
        interface.functions().filter_map(|name| Some((text(name), interface.function(name)?)));
    named.collect()
}

fn same_event(old: &ScSpecEventV0, new: &ScSpecEventV0, differ: &HashSet<&[u8]>) -> bool {
    let same =
        |(old, new): (&stellar_xdr::ScSpecEventParamV0, &stellar_xdr::ScSpecEventParamV0)| {
            old.name == new.name
                && old.location == new.location
                && same_type(&old.type_, &new.type_, differ)
        };
    old.prefix_topics == new.prefix_topics
        && old.data_format == new.data_format
        && old.params.len() == new.params.len()
        && old.params.iter().zip(new.params.iter()).all(same)
}

fn same_function(old: &ScSpecFunctionV0, new: &ScSpecFunctionV0, differ: &HashSet<&[u8]>) -> bool {
    let inputs = old.inputs.iter().zip(new.inputs.iter());
    let outputs = old.outputs.iter().zip(new.outputs.iter());
    old.inputs.len() == new.inputs.len()
        && old.outputs.len() == new.outputs.len()
        && inputs
            .into_iter()
            .all(|(old, new)| old.name == new.name && same_type(&old.type_, &new.type_, differ))
        && outputs.into_iter().all(|(old, new)| same_type(old, new, differ))
}

fn same_type(old: &ScSpecTypeDef, new: &ScSpecTypeDef, differ: &HashSet<&[u8]>) -> bool {
    let mut named = Vec::new();
    names_in(old, &mut named);
    old == new && named.iter().all(|name| !differ.contains(name))
}

/// Returns the names of types of which the definitions differ, or those of types in them.
fn differing<'a>(old: &'a Types, new: &'a Types) -> HashSet<&'a [u8]> {
    let mut users: HashMap<&[u8], Vec<&[u8]>> = HashMap::new();
    let mut differ = HashSet::new();
    for (name, definition) in old.iter() {
        if new.get(name) != Some(definition) {
            differ.insert(name);
        }
        let mut named = Vec::new();
        types_of(definition).into_iter().for_each(|kind| names_in(kind, &mut named));
        for used in named.into_iter().collect::<BTreeSet<_>>() {
            users.entry(used).or_default().push(name);
        }
    }
    // A name that only the new interface defines: what named it before had no such type.
    differ.extend(new.iter().map(|(name, _)| name).filter(|name| old.get(name).is_none()));
    let mut open: Vec<&[u8]> = differ.iter().copied().collect();
    while let Some(name) = open.pop() {
        for user in users.get(name).into_iter().flatten() {
            if differ.insert(user) {
                open.push(user);
            }
        }
    }
    differ
}

fn types_of(definition: &Definition) -> Vec<&ScSpecTypeDef> {
    match definition {
        Definition::Struct(fields) => fields.iter().map(|(_, kind)| kind).collect(),
        Definition::Tuple(kinds) => kinds.iter().collect(),
        Definition::Union(union) => union.iter().flat_map(|(_, kinds)| kinds).collect(),
        Definition::Enum(_) | Definition::Errors(_) => Vec::new(),
    }
}

/// Adds the names of the defined types in a type. How deep types are nested is limited when an interface is
/// read.
fn names_in<'a>(kind: &'a ScSpecTypeDef, to: &mut Vec<&'a [u8]>) {
    match kind {
        ScSpecTypeDef::Udt(named) => to.push(named.name.as_slice()),
        ScSpecTypeDef::Option(of) => names_in(&of.value_type, to),
        ScSpecTypeDef::Vec(of) => names_in(&of.element_type, to),
        ScSpecTypeDef::Result(of) => {
            names_in(&of.ok_type, to);
            names_in(&of.error_type, to);
        }
        ScSpecTypeDef::Map(of) => {
            names_in(&of.key_type, to);
            names_in(&of.value_type, to);
        }
        ScSpecTypeDef::Tuple(of) => of.value_types.iter().for_each(|kind| names_in(kind, to)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"[
        {"udt_struct_v0":{"doc":"","lib":"","name":"Price","fields":[{"doc":"","name":"n","type_":"u32"}]}},
        {"udt_struct_v0":{"doc":"","lib":"","name":"Pair","fields":[{"doc":"","name":"p","type_":{"udt":{"name":"Price"}}}]}},
        {"function_v0":{"doc":"","name":"buy","inputs":[{"doc":"","name":"p","type_":{"vec":{"element_type":{"udt":{"name":"Pair"}}}}}],"outputs":[]}},
        {"function_v0":{"doc":"a","name":"sell","inputs":[],"outputs":["u32"]}},
        {"function_v0":{"doc":"","name":"old","inputs":[],"outputs":[]}},
        {"event_v0":{"doc":"","lib":"","name":"bought","prefix_topics":["bought"],"params":[{"doc":"","name":"n","type_":"u32","location":"data"}],"data_format":"map"}}
    ]"#;

    fn read(text: &str) -> Interface {
        Interface::from_json(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_differs_is_named_and_types_count_where_they_are_used() {
        let old = read(OLD);
        assert_eq!(Difference::between(&old, &old), Difference::default());
        let comments = read(&OLD.replace("\"doc\":\"a\"", "\"doc\":\"b\""));
        assert!(!Difference::between(&old, &comments).changed);
        let deeper =
            read(&OLD.replace("\"n\",\"type_\":\"u32\"}]}},", "\"n\",\"type_\":\"i64\"}]}},"));
        let difference = Difference::between(&old, &deeper);
        assert_eq!(difference.functions.changed, ["buy"]);
        assert!(difference.changed && difference.events == Names::default());
        let renamed = read(&OLD.replace("\"old\"", "\"new\"").replace("bought", "paid"));
        let difference = Difference::between(&old, &renamed);
        assert_eq!(difference.functions.added, ["new"]);
        assert_eq!(difference.functions.removed, ["old"]);
        assert_eq!(difference.events.added, ["paid"]);
        assert_eq!(difference.events.removed, ["bought"]);
        let other = read(&OLD.replace("\"location\":\"data\"", "\"location\":\"topic_list\""));
        assert_eq!(Difference::between(&old, &other).events.changed, ["bought"]);
    }
}
