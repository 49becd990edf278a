//! Gives names to tables.

use std::borrow::Cow;
use std::collections::BTreeSet;

use orrery_interfaces::names::{EVENTS, LONGEST_EVENT, OF_MEMBERS, OF_STORAGE, UNDECLARED};

use super::shapes::Besides;

impl Besides {
    /// Returns the name of events in a project: with a `_` behind it if it is one that the project needs.
    pub fn name_of<'n>(self, events: &'n str) -> Cow<'n, str> {
        let is_of_storage = self != Self::Nothing && OF_STORAGE.contains(&events);
        let is_of_members = self.reserves_names_of_members() && OF_MEMBERS.contains(&events);
        match is_of_storage || is_of_members {
            true => Cow::Owned(format!("{events}_")),
            false => Cow::Borrowed(events),
        }
    }
}

/// Names of tables that are taken or reserved.
pub(super) struct Names {
    /// Names that only declared events may have.
    declared: BTreeSet<String>,
    taken: BTreeSet<String>,
}

impl Names {
    pub fn new(declared: BTreeSet<String>) -> Self {
        let taken = [EVENTS, UNDECLARED].map(str::to_owned).into();
        Self { declared, taken }
    }

    /// Takes the name of a declared event; if it is taken, one with the number of the version.
    pub fn take_declared(&mut self, name: &str) -> String {
        if self.taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        self.take_numbered(name, "_v")
    }

    /// Takes the name of events without a declaration; if it is taken or reserved, one with a
    /// number.
    pub fn take_inferred(&mut self, name: &str) -> String {
        if !self.declared.contains(name) && self.taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        self.take_numbered(name, "_")
    }

    fn take_numbered(&mut self, name: &str, mark: &str) -> String {
        let mut number = 2;
        loop {
            let numbered = with_suffix(name, &format!("{mark}{number}"));
            if !self.declared.contains(&numbered) && self.taken.insert(numbered.clone()) {
                return numbered;
            }
            number += 1;
        }
    }
}

/// Appends a suffix, and cuts the name so that both fit.
fn with_suffix(name: &str, suffix: &str) -> String {
    let length = name.floor_char_boundary(LONGEST_EVENT.saturating_sub(suffix.len()));
    format!("{}{suffix}", name[..length].trim_end_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_skip_those_that_are_taken_or_reserved() {
        let declared = ["swap", "swap_v2", "mint"].map(str::to_owned);
        let mut names = Names::new(declared.into());
        let declared = ["swap", "swap", "swap_v2", "swap"].map(|name| names.take_declared(name));
        assert_eq!(declared, ["swap", "swap_v3", "swap_v2", "swap_v4"]);
        let inferred = ["mint", "mint", "burn", "burn", "events", "swap_v3"];
        let inferred = inferred.map(|name| names.take_inferred(name));
        assert_eq!(inferred, ["mint_2", "mint_3", "burn", "burn_2", "events_2", "swap_v3_2"]);
    }

    #[test]
    fn names_with_suffixes_are_not_too_long() {
        let mut names = Names::new(BTreeSet::new());
        let long = "a".repeat(LONGEST_EVENT);
        assert_eq!(names.take_declared(&long), long);
        assert_eq!(names.take_declared(&long), format!("{}_v2", "a".repeat(60)));
        assert_eq!(names.take_inferred(&long), format!("{}_2", "a".repeat(61)));
        let cut_at_a_blank = format!("{}__bc", "a".repeat(59));
        assert_eq!(names.take_declared(&cut_at_a_blank), cut_at_a_blank);
        assert_eq!(names.take_declared(&cut_at_a_blank), format!("{}_v2", "a".repeat(59)));
    }
}
