//! Events without a declaration whose first topic is text, those of the system among them: their name
//! and parameters, inferred from the event alone.

use orrery_ledger::domain::Hash32;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stellar_xdr::{ScMap, ScVal};

use super::names;

/// Largest number of items of a vector that are parameters of their own.
const MOST_ITEMS: usize = 16;

/// Shape of the data of an event without a declaration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataShape {
    /// A map with symbols for keys: SHA-256 over the keys.
    Keys(Hash32),
    /// A vector with this number of items.
    Items(u32),
    /// Anything else.
    Value,
}

/// What is inferred of an event.
#[derive(Debug, Clone)]
pub struct Inferred<'a> {
    /// Name of the event.
    pub name: String,
    /// The topics that make the name.
    pub event: Vec<u8>,
    /// Shape of the data.
    pub data: DataShape,
    /// Names of parameters, as columns have them, with their values, in order.
    pub values: Vec<(String, &'a ScVal)>,
    /// The second topic, where it is text that is no part of the name: that of an event whose first topic is
    /// a symbol.
    second: Option<&'a [u8]>,
}

impl Inferred<'_> {
    /// Whether the event is called so, as SQL compares names: by its name, or by its leading topics that are
    /// text, two at most. Where the first one is a symbol, the second one is no part of the name of its table.
    pub fn is_called(&self, name: &str) -> bool {
        let by_both = |second: &[u8]| {
            let topics = [self.event.as_slice(), second];
            name.len() > self.name.len()
                && names::event(&topics.join(&b'_')).eq_ignore_ascii_case(name)
        };
        self.name.eq_ignore_ascii_case(name) || self.second.is_some_and(by_both)
    }
}

/// Between the topics of a name in the column with them, as in parameters of requests.
const BETWEEN: u8 = b',';

/// Returns the topics that name an event: a leading symbol, or a leading string with a second topic
/// that is text; empty where the first topic is no text.
fn naming(topics: &[ScVal]) -> Vec<&[u8]> {
    match topics {
        [ScVal::Symbol(name), ..] => vec![name.as_slice()],
        [ScVal::String(first), second, ..] => {
            [Some(first.as_slice()), text(second)].into_iter().flatten().collect()
        }
        [ScVal::String(only)] => vec![only.as_slice()],
        _ => Vec::new(),
    }
}

/// Infers what can be of an event; `None` where its first topic is no text.
pub fn infer<'a>(topics: &'a [ScVal], data: &'a ScVal) -> Option<Inferred<'a>> {
    let naming = naming(topics);
    if naming.is_empty() {
        return None;
    }
    let numbered = |(number, topic)| (format!("topic_{number}").into_bytes(), topic);
    let mut values: Vec<(Vec<u8>, &ScVal)> = (1..).zip(topics).skip(1).map(numbered).collect();
    let (shape, parts) = parts(data);
    values.extend(parts);
    // The column with the topics has its name before all others.
    let wanted = values.iter().map(|(name, _)| name.as_slice());
    let columns = names::parameters(std::iter::once(names::EVENT.as_bytes()).chain(wanted));
    let values = columns.into_iter().skip(1).zip(values).map(|(name, (_, value))| (name, value));
    let second = topics.get(1).filter(|_| naming.len() == 1).and_then(text);
    Some(Inferred {
        name: names::event(&naming.join(&b'_')),
        event: naming.join(&BETWEEN),
        data: shape,
        values: values.collect(),
        second,
    })
}

/// Returns the shape of the data, and its parts with their names.
fn parts(data: &ScVal) -> (DataShape, Vec<(Vec<u8>, &ScVal)>) {
    match data {
        ScVal::Map(Some(map)) if let Some(parts) = fields(map) => {
            (DataShape::Keys(digest(&parts)), parts)
        }
        ScVal::Vec(Some(items)) if items.len() <= MOST_ITEMS => {
            let numbered = |(number, item)| (format!("value_{number}").into_bytes(), item);
            let parts: Vec<_> = (1..).zip(items.iter()).map(numbered).collect();
            (DataShape::Items(u32::try_from(items.len()).unwrap_or(u32::MAX)), parts)
        }
        data => (DataShape::Value, vec![(b"value".to_vec(), data)]),
    }
}

/// Returns the entries of a map all of whose keys are symbols, as those of a struct.
fn fields(map: &ScMap) -> Option<Vec<(Vec<u8>, &ScVal)>> {
    let field = |entry: &'_ stellar_xdr::ScMapEntry| match &entry.key {
        ScVal::Symbol(name) => Some(name.to_vec()),
        _ => None,
    };
    map.iter().map(|entry| Some((field(entry)?, &entry.val))).collect()
}

fn digest(parts: &[(Vec<u8>, &ScVal)]) -> Hash32 {
    let mut digest = Sha256::new();
    for (name, _) in parts {
        digest.update((name.len() as u64).to_be_bytes());
        digest.update(name);
    }
    Hash32(digest.finalize().into())
}

fn text(value: &ScVal) -> Option<&[u8]> {
    match value {
        ScVal::Symbol(text) => Some(text.as_slice()),
        ScVal::String(text) => Some(text.as_slice()),
        _ => None,
    }
}
