//! The declared events of an interface by their names, with the parameters that the forms of each have.

use std::collections::{HashMap, HashSet};

use super::event::Event;
use super::names::folded;

/// Memory of an entry besides its text, in bytes.
const OF_ENTRY: usize = 48;

/// Declared events by their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forms(HashMap<String, OfName>);

#[derive(Debug, Clone, Default)]
struct OfName {
    /// Numbers of the declarations.
    numbers: Vec<usize>,
    /// Names of the parameters of all of them, folded.
    parameters: HashSet<String>,
}

impl Forms {
    /// Collects events that have their names.
    pub fn of(events: &[Event]) -> Self {
        let mut forms = HashMap::<String, OfName>::new();
        for (number, event) in events.iter().enumerate() {
            let of_name = forms.entry(event.name.clone()).or_default();
            of_name.numbers.push(number);
            of_name.parameters.extend(event.names.iter().map(|name| folded(name)));
        }
        Self(forms)
    }

    /// Whether a form of an event has a parameter.
    pub fn has(&self, event: &str, folded: &str) -> bool {
        self.0.get(event).is_some_and(|of_name| of_name.parameters.contains(folded))
    }

    /// Returns the numbers of the forms of an event.
    pub fn numbers(&self, event: &str) -> &[usize] {
        self.0.get(event).map_or(&[], |of_name| &of_name.numbers)
    }

    /// Memory that it takes, in bytes: an estimate.
    pub fn bytes(&self) -> usize {
        let of_name = |(name, of_name): (&String, &OfName)| {
            let parameters = of_name.parameters.iter().map(|name| OF_ENTRY + name.len());
            let numbers = of_name.numbers.len() * size_of::<usize>();
            OF_ENTRY + name.len() + numbers + parameters.sum::<usize>()
        };
        self.0.iter().map(of_name).sum()
    }
}
