//! Finds the declaration that an event has, and what each of its values is called. Nothing of an
//! event is lost: what the declaration does not name is the rest.

use stellar_xdr::{
    ScMapEntry, ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventParamV0,
    ScSpecEventV0, ScSpecTypeDef, ScVal,
};

use super::fits::{Steps, fits};
use super::interface::{Event, Interface};
use super::names;

/// Name of the parameter that SEP-41 lets an event give as a single value or in a map.
const AMOUNT: &[u8] = b"amount";

/// An event together with its declaration.
#[derive(Debug, Clone)]
pub struct Matched<'a> {
    /// Position of the interface among those that were tried.
    pub tried: usize,
    /// The interface with the declaration.
    pub interface: &'a Interface,
    /// Number of the declaration among the events of the interface, from 0.
    pub number: usize,
    /// The declaration.
    pub declared: &'a ScSpecEventV0,
    /// The parameters in declared order.
    pub parameters: Vec<Parameter<'a>>,
    /// What the declaration does not name.
    pub rest: Rest<'a>,
}

/// A declared parameter with its value in an event.
#[derive(Debug, Clone, Copy)]
pub struct Parameter<'a> {
    /// The name as a column and as a member, which differs from the declared one where that is
    /// taken.
    pub name: &'a str,
    /// The declared name and type.
    pub declared: &'a ScSpecEventParamV0,
    /// The value; `None` where the event's map has no such key.
    pub value: Option<&'a ScVal>,
}

/// The parts of an event that its declaration does not name.
#[derive(Debug, Clone, Default)]
pub struct Rest<'a> {
    /// Entries of the map in the data.
    pub keys: Vec<&'a ScMapEntry>,
    /// Topics behind the declared ones.
    pub topics: &'a [ScVal],
    /// Items of the vector in the data behind the declared ones.
    pub items: &'a [ScVal],
}

impl Matched<'_> {
    /// Returns the event's name as tables and answers use it.
    pub fn name(&self) -> String {
        names::event(self.declared.name.as_slice())
    }
}

impl Rest<'_> {
    /// Whether the declaration names all of the event.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.topics.is_empty() && self.items.is_empty()
    }
}

/// Returns the declaration that an event of a contract has, trying the interfaces in their order:
/// supplied, before, after. System events have none, so do not ask for those.
///
/// Of each interface come first the declarations with exactly the event's number of topics, then
/// those with fewer, then those that name an `amount` which the event gives in a map. Among equals
/// come first those whose map keys are all present, options aside, then the interface's order.
pub fn declaration<'a>(
    interfaces: &[&'a Interface],
    topics: &'a [ScVal],
    data: &'a ScVal,
) -> Option<Matched<'a>> {
    declaration_counted(interfaces, topics, data).0
}

/// As [`declaration`]; also returns how much was compared. That is at most the size of the event
/// times the number of declarations that have its prefix.
pub fn declaration_counted<'a>(
    interfaces: &[&'a Interface],
    topics: &'a [ScVal],
    data: &'a ScVal,
) -> (Option<Matched<'a>>, Steps) {
    let mut steps = Steps::default();
    for (tried, interface) in interfaces.iter().enumerate() {
        let search = Search { interface, topics, data };
        if let Some((number, is_amount)) = search.find(&mut steps) {
            let event = &interface.declarations()[number];
            let (parameters, rest) = search.values(event, is_amount);
            let declared = &event.declared;
            let matched = Matched { tried, interface, number, declared, parameters, rest };
            return (Some(matched), steps);
        }
    }
    (None, steps)
}

/// An event that is compared with the declarations of one interface.
struct Search<'a> {
    interface: &'a Interface,
    topics: &'a [ScVal],
    data: &'a ScVal,
}

impl<'a> Search<'a> {
    /// Returns the number of the first declaration that fits, and whether only by its `amount` in a
    /// map.
    fn find(&self, steps: &mut Steps) -> Option<(usize, bool)> {
        let events = self.interface.declarations();
        steps.0 += events.len() as u64;
        let candidates: Vec<(usize, &Event)> =
            events.iter().enumerate().filter(|(_, event)| self.has_prefix(event)).collect();
        for is_amount in [false, true] {
            for exact in [true, false] {
                let mut equals: Vec<(usize, &Event)> = candidates
                    .iter()
                    .copied()
                    .filter(|(_, event)| (event.topics == self.topics.len()) == exact)
                    .filter(|(_, event)| !is_amount || is_amount_alone(event))
                    .collect();
                // The sort is stable: the interface's order stays among equals.
                equals.sort_by_cached_key(|(_, event)| !self.has_all_keys(event, steps));
                let mut equals = equals.into_iter();
                if let Some((number, _)) = equals.find(|it| self.fits(it.1, is_amount, steps)) {
                    return Some((number, is_amount));
                }
            }
        }
        None
    }

    /// Whether the event has at least the declared topics, and begins with those of the prefix.
    fn has_prefix(&self, event: &Event) -> bool {
        let prefix = event.declared.prefix_topics.iter();
        event.topics <= self.topics.len()
            && prefix.zip(self.topics).all(|(declared, topic)| match topic {
                ScVal::Symbol(text) => declared.as_slice() == text.as_slice(),
                ScVal::String(text) => declared.as_slice() == text.as_slice(),
                _ => false,
            })
    }

    /// Whether the event's map has all keys whose type is no option. True for other formats.
    fn has_all_keys(&self, event: &Event, steps: &mut Steps) -> bool {
        if event.required == 0 {
            return true;
        }
        let ScVal::Map(Some(entries)) = self.data else { return false };
        steps.0 += entries.len() as u64;
        let mut present: Vec<usize> = entries.iter().filter_map(|it| event.key(it)).collect();
        present.sort_unstable();
        present.dedup();
        let params = event.declared.params.as_slice();
        let required = |at: &&usize| !matches!(params[**at].type_, ScSpecTypeDef::Option(_));
        present.iter().filter(required).count() == event.required
    }

    fn fits(&self, event: &Event, is_amount: bool, steps: &mut Steps) -> bool {
        let params = event.declared.params.as_slice();
        let types = self.interface.types();
        let mut fits = |value: &ScVal, at: usize| fits(value, &params[at].type_, types, steps);
        let topics = &self.topics[event.declared.prefix_topics.len()..];
        let in_topics = (0..params.len()).filter(|at| is_topic(&params[*at]));
        if !topics.iter().zip(in_topics).all(|(topic, at)| fits(topic, at)) {
            return false;
        }
        if is_amount {
            return amount(self.data).is_some_and(|entry| fits(&entry.val, event.data[0]));
        }
        match (event.declared.data_format, self.data) {
            (ScSpecEventDataFormat::SingleValue, data) => match *event.data {
                [] => *data == ScVal::Void,
                [at] => fits(data, at),
                _ => false,
            },
            (ScSpecEventDataFormat::Vec, ScVal::Vec(Some(items))) => {
                items.len() >= event.data.len()
                    && items.iter().zip(&event.data).all(|(item, at)| fits(item, *at))
            }
            (ScSpecEventDataFormat::Map, ScVal::Map(Some(entries))) => {
                entries.iter().all(|entry| event.key(entry).is_none_or(|at| fits(&entry.val, at)))
            }
            _ => false,
        }
    }

    /// Returns the values of the parameters, and what is left over.
    fn values(&self, event: &'a Event, is_amount: bool) -> (Vec<Parameter<'a>>, Rest<'a>) {
        let params = event.declared.params.as_slice();
        let mut values: Vec<Option<&'a ScVal>> = vec![None; params.len()];
        let prefix = event.declared.prefix_topics.len();
        let mut rest = Rest { topics: &self.topics[event.topics..], ..Rest::default() };
        let in_topics = (0..params.len()).filter(|at| is_topic(&params[*at]));
        for (at, topic) in in_topics.zip(&self.topics[prefix..]) {
            values[at] = Some(topic);
        }
        let key = |entry: &ScMapEntry| {
            if is_amount { is_amount_key(entry).then(|| event.data[0]) } else { event.key(entry) }
        };
        match self.data {
            ScVal::Map(Some(entries))
                if is_amount || event.declared.data_format == ScSpecEventDataFormat::Map =>
            {
                for entry in entries.iter() {
                    match key(entry) {
                        Some(at) if values[at].is_none() => values[at] = Some(&entry.val),
                        _ => rest.keys.push(entry),
                    }
                }
            }
            ScVal::Vec(Some(items)) if event.declared.data_format == ScSpecEventDataFormat::Vec => {
                for (at, item) in event.data.iter().zip(items.iter()) {
                    values[*at] = Some(item);
                }
                rest.items = &items[event.data.len()..];
            }
            data => {
                if let [at] = *event.data {
                    values[at] = Some(data);
                }
            }
        }
        let names = event.names.iter().zip(params);
        let parameter =
            |((name, declared), value): ((&'a String, _), _)| Parameter { name, declared, value };
        (names.zip(values).map(parameter).collect(), rest)
    }
}

impl Event {
    /// Returns the parameter that a map entry holds.
    fn key(&self, entry: &ScMapEntry) -> Option<usize> {
        let ScVal::Symbol(name) = &entry.key else { return None };
        self.keys.get(name.as_slice()).copied()
    }
}

fn is_topic(param: &ScSpecEventParamV0) -> bool {
    param.location == ScSpecEventParamLocationV0::TopicList
}

/// Whether the declaration's data is a single value called `amount`.
fn is_amount_alone(event: &Event) -> bool {
    event.declared.data_format == ScSpecEventDataFormat::SingleValue
        && matches!(*event.data, [at] if event.declared.params[at].name.as_slice() == AMOUNT)
}

fn is_amount_key(entry: &ScMapEntry) -> bool {
    matches!(&entry.key, ScVal::Symbol(name) if name.as_slice() == AMOUNT)
}

fn amount(data: &ScVal) -> Option<&ScMapEntry> {
    let ScVal::Map(Some(entries)) = data else { return None };
    entries.iter().find(|entry| is_amount_key(entry))
}
