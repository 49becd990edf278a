//! The interface of a contract: its events in their order, and its types and functions by name.

use std::collections::{BTreeMap, HashMap};

use stellar_xdr::{ScSpecEntry, ScSpecEventV0, ScSpecFunctionV0};

use super::event::{Event, name_forms};
use super::flat::{Flat, may_be_flat};
use super::forms::Forms;
use super::read::{self, MOST_BYTES, Origin, ReadError};
use super::types::{Definition, Types};
use super::{joined, weight};

/// Maximum number of declarations of an interface that an event is compared with.
pub(crate) const MOST_COMPARED: usize = 16;

/// What a contract declares (SEP-48), within the limits of [`ReadError`].
#[derive(Debug, Clone, Default)]
pub struct Interface {
    events: Vec<Event>,
    /// Numbers of the events with a prefix, by the number of topics that each declares. Of each
    /// number only the first [`MOST_COMPARED`]: no event is compared with more.
    by_prefix: HashMap<Vec<u8>, BTreeMap<usize, Vec<usize>>>,
    /// Numbers of the events by the number of topics that each declares.
    by_topics: HashMap<usize, Vec<usize>>,
    /// Whether events may be recognised by their bytes alone.
    may_be_flat: bool,
    /// The declared events by their names.
    forms: Forms,
    types: Types,
    functions: HashMap<Vec<u8>, ScSpecFunctionV0>,
    errors: HashMap<u32, Vec<u8>>,
    bytes: usize,
    /// Memory of what serves to recognise events by their bytes and to find them by their names, in bytes.
    /// It counts against no limit.
    flat_bytes: usize,
}

impl Interface {
    /// Reads the interface that a module's code holds, in all its sections together.
    ///
    /// # Errors
    /// [`ReadError`] when the code is cut or no module, has no interface, or exceeds a limit.
    pub fn from_module(code: &[u8], origin: Origin) -> Result<Self, ReadError> {
        Self::from_entries(read::module(code, origin)?)
    }

    /// Reads the interface in the joined sections of a module ([`super::sections`]).
    ///
    /// # Errors
    /// [`ReadError`] when the sections are cut, or exceed a limit.
    pub fn from_sections(sections: &[u8]) -> Result<Self, ReadError> {
        Self::from_entries(read::entries(sections)?)
    }

    /// Reads an interface from JSON as the network's command line prints it: an array of entries,
    /// in which a type stands under `type` or `type_`.
    ///
    /// # Errors
    /// [`ReadError`] when the text is something else, or exceeds a limit.
    pub fn from_json(text: &[u8]) -> Result<Self, ReadError> {
        Self::from_entries(read::json(text)?)
    }

    /// Reads the interface in a file that a user supplied: a module, or JSON.
    ///
    /// # Errors
    /// As [`Self::from_module`] when the file begins as a module, else as [`Self::from_json`].
    pub fn from_file(content: &[u8]) -> Result<Self, ReadError> {
        Self::from_entries(read::file(content)?)
    }

    /// As [`Self::from_file`], without the functions, which events do not need.
    ///
    /// # Errors
    /// As [`Self::from_file`].
    pub fn of_events_from_file(content: &[u8]) -> Result<Self, ReadError> {
        let mut entries = read::file(content)?;
        entries.retain(|entry| !matches!(entry, ScSpecEntry::FunctionV0(_)));
        Self::from_entries(entries)
    }

    /// Builds the interface of these entries.
    ///
    /// # Errors
    /// [`ReadError`] when there are too many events or types, or types that are nested too deeply.
    pub fn from_entries(entries: Vec<ScSpecEntry>) -> Result<Self, ReadError> {
        read::check(&entries)?;
        let entries: Vec<ScSpecEntry> = entries.into_iter().map(joined::entry).collect();
        let bytes = entries.iter().map(weight::of_entry).sum();
        let mut interface = Self { types: Types::new(&entries), bytes, ..Self::default() };
        let mut kinds = HashMap::new();
        for entry in entries {
            match entry {
                ScSpecEntry::EventV0(declared) => {
                    interface.add(Event::new(declared, &mut kinds))?
                }
                ScSpecEntry::FunctionV0(function) => {
                    let name = function.name.0.to_vec();
                    interface.functions.entry(name).or_insert(function);
                }
                ScSpecEntry::UdtErrorEnumV0(errors) => {
                    for case in errors.cases.iter() {
                        let name = || case.name.to_vec();
                        interface.errors.entry(case.value).or_insert_with(name);
                    }
                }
                _ => {}
            }
        }
        name_forms(&mut interface.events);
        interface.forms = Forms::of(&interface.events);
        interface.flat_bytes += interface.forms.bytes();
        let numbers = interface.by_prefix.values().map(BTreeMap::len).max().unwrap_or(0);
        let with_topics = interface.by_topics.values().map(Vec::len).max().unwrap_or(0);
        interface.may_be_flat = may_be_flat(numbers, with_topics);
        Ok(interface)
    }

    fn add(&mut self, event: Event) -> Result<(), ReadError> {
        self.bytes += weight::of_event(&event);
        if self.bytes > MOST_BYTES {
            return Err(ReadError::TooMuchMemory);
        }
        let prefix = event.declared.prefix_topics.iter();
        let of_prefix = self.by_prefix.entry(prefix_key(prefix.map(|it| it.as_slice())));
        let same = of_prefix.or_default().entry(event.topics).or_default();
        if same.len() < MOST_COMPARED {
            same.push(self.events.len());
        }
        self.flat_bytes += size_of::<usize>() + event.flat.as_ref().map_or(0, Flat::bytes);
        self.by_topics.entry(event.topics).or_default().push(self.events.len());
        self.events.push(event);
        Ok(())
    }

    /// Memory that the interface takes, in bytes: an estimate.
    pub fn bytes(&self) -> usize {
        self.bytes + self.flat_bytes
    }

    /// Returns the numbers of the events with exactly this prefix, by the number of topics that
    /// each declares.
    pub(crate) fn with_prefix(&self, prefix: &[&[u8]]) -> Option<&BTreeMap<usize, Vec<usize>>> {
        self.by_prefix.get(&prefix_key(prefix.iter().copied()))
    }

    /// Returns the numbers of the events with this number of topics, if events may be recognised by their
    /// bytes alone.
    pub(crate) fn with_topics(&self, topics: usize) -> Option<&[usize]> {
        self.by_topics.get(&topics).filter(|_| self.may_be_flat).map(Vec::as_slice)
    }

    /// Returns the declared events in their order.
    pub fn events(&self) -> impl Iterator<Item = &ScSpecEventV0> {
        self.events.iter().map(|event| &event.declared)
    }

    /// Returns the declared event with this number, in the order of [`Self::events`].
    pub fn event(&self, number: usize) -> Option<&ScSpecEventV0> {
        self.events.get(number).map(|event| &event.declared)
    }

    /// Returns the name of each declared event, in the order of [`Self::events`], as tables and
    /// answers use it. Different declarations with the same prefix topics are forms of one event,
    /// which has the name of those topics; another event has its declared name.
    pub fn event_names(&self) -> impl Iterator<Item = &str> {
        self.events.iter().map(|event| event.name.as_str())
    }

    /// Whether a form of the event with this name, as of [`Self::event_names`], has a parameter. Takes
    /// its name as columns have it, folded ([`super::names::folded`]).
    pub fn has_parameter(&self, event: &str, folded: &str) -> bool {
        self.forms.has(event, folded)
    }

    /// Returns the numbers of the declarations that are forms of the event with this name, in their
    /// order.
    pub fn forms(&self, event: &str) -> &[usize] {
        self.forms.numbers(event)
    }

    /// Returns the name of a declared event, as of [`Self::event_names`].
    pub fn event_name(&self, number: usize) -> Option<&str> {
        self.events.get(number).map(|event| event.name.as_str())
    }

    /// Returns the types that the interface defines.
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// Returns the type of this name, as values of it are declared.
    pub fn definition(&self, name: &[u8]) -> Option<&Definition> {
        self.types.get(name)
    }

    /// Returns the names of the functions, in any order.
    pub fn functions(&self) -> impl Iterator<Item = &[u8]> {
        self.functions.keys().map(Vec::as_slice)
    }

    /// Returns the function of this name. The first of a name wins.
    pub fn function(&self, name: &[u8]) -> Option<&ScSpecFunctionV0> {
        self.functions.get(name)
    }

    /// Returns the name of a contract's error. The first of a number wins.
    pub fn error_name(&self, code: u32) -> Option<&[u8]> {
        self.errors.get(&code).map(Vec::as_slice)
    }

    pub(crate) fn declarations(&self) -> &[Event] {
        &self.events
    }
}

/// Returns a key that differs for different prefixes.
fn prefix_key<'a>(prefix: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    for topic in prefix {
        key.extend_from_slice(&topic.len().to_be_bytes());
        key.extend_from_slice(topic);
    }
    key
}
