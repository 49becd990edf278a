//! A declared event, as it is matched with events of the chain.

use std::collections::{HashMap, HashSet};

use stellar_xdr::{
    ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventParamV0, ScSpecEventV0,
    ScSpecTypeDef,
};

use super::flat::Flat;
use super::names;

/// An event with what its matching needs at once.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) declared: ScSpecEventV0,
    /// Number of topics that the declaration names, those of the prefix included.
    pub(crate) topics: usize,
    /// Parameters in topics, as indexes of the declared ones.
    pub(crate) in_topics: Vec<usize>,
    /// Parameters in the data, likewise.
    pub(crate) data: Vec<usize>,
    /// For format map: the parameter of each key. The first of a name has the key.
    pub(crate) keys: HashMap<Vec<u8>, usize>,
    /// For format map: number of keys whose type is no option.
    pub(crate) required: usize,
    /// Numbers of the parameters' types: equal ones have the same, in one interface.
    pub(crate) kinds: Vec<usize>,
    /// Names of the parameters as columns and members.
    pub(crate) names: Vec<String>,
    /// Name of the event of which this is a form.
    pub(crate) name: String,
    /// How it is read where all parameters are scalars.
    pub(crate) flat: Option<Flat>,
}

impl Event {
    /// Works out what the matching of a declared event needs. `kinds` has the numbers of the types of
    /// the interface so far.
    pub(crate) fn new(declared: ScSpecEventV0, kinds: &mut HashMap<ScSpecTypeDef, usize>) -> Self {
        let is_topic =
            |param: &ScSpecEventParamV0| param.location == ScSpecEventParamLocationV0::TopicList;
        let params = declared.params.as_slice();
        let (in_topics, data): (Vec<usize>, Vec<usize>) =
            (0..params.len()).partition(|at| is_topic(&params[*at]));
        let topics = declared.prefix_topics.len() + in_topics.len();
        let (mut keys, mut required) = (HashMap::new(), 0);
        if declared.data_format == ScSpecEventDataFormat::Map {
            for at in &data {
                let param = &params[*at];
                if !keys.contains_key(param.name.as_slice()) {
                    keys.insert(param.name.to_vec(), *at);
                    required += usize::from(!matches!(param.type_, ScSpecTypeDef::Option(_)));
                }
            }
        }
        let number = |param: &ScSpecEventParamV0| {
            let next = kinds.len();
            *kinds.entry(param.type_.clone()).or_insert(next)
        };
        let kinds = params.iter().map(number).collect();
        let names = names::parameters(params.iter().map(|param| param.name.as_slice()));
        let name = names::event(declared.name.as_slice());
        let flat = Flat::of(&declared, &in_topics, &data);
        Self { declared, topics, in_topics, data, keys, required, kinds, names, name, flat }
    }
}

/// Gives declarations that are forms of one event its name. A declaration that is there twice, as in
/// a module with two sections, is one form; without prefix topics, the name alone tells events apart.
pub(crate) fn name_forms(events: &mut [Event]) {
    let mut first = HashMap::new();
    let mut several = HashSet::new();
    for event in events.iter() {
        let prefix = event.declared.prefix_topics.as_slice();
        if *first.entry(prefix).or_insert(&event.declared) != &event.declared {
            several.insert(prefix.to_vec());
        }
    }
    for event in events {
        let prefix = event.declared.prefix_topics.as_slice();
        if !prefix.is_empty() && several.contains(prefix) {
            let topics: Vec<&[u8]> = prefix.iter().map(|topic| topic.as_slice()).collect();
            event.name = names::event(&topics.join(&b'_'));
        }
    }
}
