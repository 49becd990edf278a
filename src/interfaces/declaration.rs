//! Finds the declaration that an event has, and what each of its values is called. Nothing of an
//! event is lost: what the declaration does not name is the rest.

use std::collections::{HashMap, HashSet};
use std::ptr;

use stellar_xdr::{
    ScMapEntry, ScSpecEventDataFormat, ScSpecEventParamV0, ScSpecEventV0, ScSpecTypeDef, ScVal,
};

use super::event::Event;
use super::fits::{Budget, Steps, fits};
use super::interface::{Interface, MOST_COMPARED};

/// Maximum number of topics of a prefix, and of bytes of each (SEP-48).
const MOST_PREFIX_TOPICS: usize = 2;
const LONGEST_PREFIX_TOPIC: usize = 32;

/// Steps from which on it is kept whether a value is of a type. Fewer take no longer than looking it up.
const COSTLY: u64 = 16;

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
    /// The parameters that the event has, in declared order.
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
    /// The value.
    pub value: &'a ScVal,
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

impl<'a> Matched<'a> {
    /// Returns the event's name as tables and answers use it ([`Interface::event_names`]).
    pub fn name(&self) -> &'a str {
        &self.interface.declarations()[self.number].name
    }
}

impl Rest<'_> {
    /// Whether the declaration names all of the event.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.topics.is_empty() && self.items.is_empty()
    }
}

/// Which declaration of an interface an event has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Number of the declaration among the events of the interface.
    number: usize,
    /// Whether the event gives in a map the `amount` that is declared as a single value.
    is_amount: bool,
}

impl Found {
    /// The declaration with this number, of which the event has exactly the parameters.
    pub fn exactly(number: usize) -> Self {
        Self { number, is_amount: false }
    }
}

/// Returns the declaration that an event of a contract has, trying the interfaces in their order:
/// supplied, before, after. System events have none, so do not ask for those.
///
/// Of each interface come first the declarations with exactly the event's number of topics, then
/// those with fewer, then those that name an `amount` which the event gives in a map. Among equals
/// come first those whose map keys are all present, options aside, then the interface's order.
///
/// The event is compared with the first sixteen of an interface by number of topics and order, in
/// at most twenty steps for each of its parts; it has none of the others.
pub fn declaration<'a>(
    interfaces: &[&'a Interface],
    topics: &'a [ScVal],
    data: &'a ScVal,
) -> Option<Matched<'a>> {
    declaration_counted(interfaces, topics, data).0
}

/// As [`declaration`]; also returns how much was compared with all interfaces together.
pub fn declaration_counted<'a>(
    interfaces: &[&'a Interface],
    topics: &'a [ScVal],
    data: &'a ScVal,
) -> (Option<Matched<'a>>, Steps) {
    let mut all = Steps::default();
    for (tried, interface) in interfaces.iter().enumerate() {
        let (found, steps) = found_counted(interface, topics, data);
        all.0 += steps.0;
        if let Some(found) = found {
            return (Matched::of(tried, interface, found, topics, data), all);
        }
    }
    (None, all)
}

/// Returns which declaration of one interface an event has, and how much was compared. The same
/// event and interface give the same.
pub fn found_counted(
    interface: &Interface,
    topics: &[ScVal],
    data: &ScVal,
) -> (Option<Found>, Steps) {
    let search = Search { interface, topics, data };
    let mut work = Work { budget: Budget::of_event(topics, data), compared: HashMap::new() };
    let found = search.find(&mut work).filter(|_| !work.budget.is_spent());
    (found, work.budget.taken())
}

impl<'a> Matched<'a> {
    /// Returns an event with a declaration that was found for it before in this interface, the one
    /// at `tried` of those that were tried; `None` when the event has another form.
    pub fn of(
        tried: usize,
        interface: &'a Interface,
        Found { number, is_amount }: Found,
        topics: &'a [ScVal],
        data: &'a ScVal,
    ) -> Option<Self> {
        let event = interface.declarations().get(number)?;
        let search = Search { interface, topics, data };
        let (parameters, rest) = search.values(event, is_amount)?;
        Some(Self { tried, interface, number, declared: &event.declared, parameters, rest })
    }
}

/// An event that is compared with the declarations of one interface.
struct Search<'a> {
    interface: &'a Interface,
    topics: &'a [ScVal],
    data: &'a ScVal,
}

/// What the search takes, and has found out so far.
struct Work {
    budget: Budget,
    /// Whether a value is of the type with a number: declarations often have the same types.
    compared: HashMap<(*const ScVal, usize), bool>,
}

impl<'a> Search<'a> {
    /// Returns the first declaration that fits.
    fn find(&self, work: &mut Work) -> Option<Found> {
        let candidates = self.candidates(&mut work.budget);
        for is_amount in [false, true] {
            for exact in [true, false] {
                let mut equals: Vec<(usize, &Event)> = candidates
                    .iter()
                    .copied()
                    .filter(|(_, event)| (event.topics == self.topics.len()) == exact)
                    .filter(|(_, event)| !is_amount || is_amount_alone(event))
                    .collect();
                // The sort is stable: the interface's order stays among equals.
                equals.sort_by_cached_key(|(_, event)| !self.has_all_keys(event, &mut work.budget));
                let mut equals = equals.into_iter();
                if let Some((number, _)) = equals.find(|it| self.fits(it.1, is_amount, work)) {
                    return Some(Found { number, is_amount });
                }
            }
        }
        None
    }

    /// Returns the declarations that the event is compared with: those whose prefix it has and whose
    /// topics it has or exceeds, first those with as many topics, each in the interface's order.
    fn candidates(&self, budget: &mut Budget) -> Vec<(usize, &'a Event)> {
        let (mut exact, mut fewer) = (Vec::new(), Vec::new());
        let own = self.topics.len();
        for prefix in self.prefixes() {
            let Some(by_topics) = self.interface.with_prefix(&prefix) else { continue };
            exact.extend(by_topics.get(&own).into_iter().flatten().copied());
            for numbers in by_topics.range(..own).map(|(_, numbers)| numbers) {
                budget.take(1);
                fewer.extend_from_slice(numbers);
            }
        }
        exact.sort_unstable();
        fewer.sort_unstable();
        let events = self.interface.declarations();
        let first = exact.into_iter().chain(fewer).take(MOST_COMPARED);
        first.map(|number| (number, &events[number])).collect()
    }

    /// Returns what the event's topics are a prefix of: up to as many of the leading ones as are text
    /// that a prefix can hold.
    fn prefixes(&self) -> Vec<Vec<&'a [u8]>> {
        let text = |topic: &'a ScVal| match topic {
            ScVal::Symbol(text) => Some(text.as_slice()),
            ScVal::String(text) => Some(text.as_slice()),
            _ => None,
        };
        let is_short = |text: &&[u8]| text.len() <= LONGEST_PREFIX_TOPIC;
        let leading = self.topics.iter().map_while(|topic| text(topic).filter(is_short));
        let leading: Vec<&[u8]> = leading.take(MOST_PREFIX_TOPICS).collect();
        (0..=leading.len()).map(|count| leading[..count].to_vec()).collect()
    }

    /// Whether the event's map has all keys whose type is no option. True for other formats.
    fn has_all_keys(&self, event: &Event, budget: &mut Budget) -> bool {
        if event.required == 0 {
            return true;
        }
        let ScVal::Map(Some(entries)) = self.data else { return false };
        if entries.len() < event.required || !budget.take(entries.len()) {
            return false;
        }
        let mut present: Vec<usize> = entries.iter().filter_map(|it| event.key(it)).collect();
        present.sort_unstable();
        present.dedup();
        let params = event.declared.params.as_slice();
        let required = |at: &&usize| !matches!(params[**at].type_, ScSpecTypeDef::Option(_));
        present.iter().filter(required).count() == event.required
    }

    fn fits(&self, event: &Event, is_amount: bool, work: &mut Work) -> bool {
        let Work { budget, compared } = work;
        if !budget.take(1) {
            return false;
        }
        let params = event.declared.params.as_slice();
        let types = self.interface.types();
        let mut fits = |value: &ScVal, at: usize| {
            let pair = (ptr::from_ref(value), event.kinds[at]);
            if let Some(is_of_type) = compared.get(&pair) {
                return *is_of_type;
            }
            let before = budget.taken();
            let is_of_type = fits(value, &params[at].type_, types, budget);
            if budget.taken().0 - before.0 >= COSTLY {
                compared.insert(pair, is_of_type);
            }
            is_of_type
        };
        let topics = &self.topics[event.declared.prefix_topics.len()..];
        if !topics.iter().zip(&event.in_topics).all(|(topic, at)| fits(topic, *at)) {
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

    /// Returns the parameters that the event has, and what is left over; `None` when it has fewer
    /// topics or items than are declared.
    fn values(&self, event: &'a Event, is_amount: bool) -> Option<(Vec<Parameter<'a>>, Rest<'a>)> {
        let prefix = event.declared.prefix_topics.len();
        let mut rest = Rest { topics: self.topics.get(event.topics..)?, ..Rest::default() };
        let topics = self.topics.get(prefix..)?;
        let mut values: Vec<(usize, &'a ScVal)> =
            event.in_topics.iter().copied().zip(topics).collect();
        let key = |entry: &ScMapEntry| {
            if is_amount { is_amount_key(entry).then(|| event.data[0]) } else { event.key(entry) }
        };
        match self.data {
            ScVal::Map(Some(entries))
                if is_amount || event.declared.data_format == ScSpecEventDataFormat::Map =>
            {
                let mut seen = HashSet::new();
                for entry in entries.iter() {
                    match key(entry).filter(|at| seen.insert(*at)) {
                        Some(at) => values.push((at, &entry.val)),
                        None => rest.keys.push(entry),
                    }
                }
            }
            ScVal::Vec(Some(items)) if event.declared.data_format == ScSpecEventDataFormat::Vec => {
                values.extend(event.data.iter().copied().zip(items.iter()));
                rest.items = items.get(event.data.len()..)?;
            }
            data => {
                if let [at] = *event.data {
                    values.push((at, data));
                }
            }
        }
        values.sort_unstable_by_key(|(at, _)| *at);
        let params = event.declared.params.as_slice();
        let parameter = |(at, value): (usize, _)| Parameter {
            name: &event.names[at],
            declared: &params[at],
            value,
        };
        Some((values.into_iter().map(parameter).collect(), rest))
    }
}

impl Event {
    /// Returns the parameter that a map entry holds.
    fn key(&self, entry: &ScMapEntry) -> Option<usize> {
        let ScVal::Symbol(name) = &entry.key else { return None };
        self.keys.get(name.as_slice()).copied()
    }
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
