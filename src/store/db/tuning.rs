//! Options of RocksDB that a bench tries out.

/// Options on top of those that the store chooses, in the syntax of RocksDB's option strings
/// (`name=value;name=value`). A bench compares choices with them without compiling each; the product
/// passes none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Options of the database as a whole.
    pub database: String,
    /// Options of families, by name; [`Self::ALL`] names all of them. Of two that say the same, the
    /// last counts.
    pub families: Vec<(String, String)>,
}

impl Tuning {
    /// The name that stands for all families.
    pub const ALL: &str = "*";

    /// Returns the options of a family.
    pub(crate) fn of_family(&self, name: &str) -> String {
        let own = self.families.iter().filter(|(family, _)| family == Self::ALL || family == name);
        own.map(|(_, options)| options.as_str()).collect::<Vec<_>>().join(";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_options_counts() {
        let families = [("events", "a=1"), ("*", "b=2"), ("events_by_topic", "b=3")];
        let families = families.map(|(name, options)| (name.to_owned(), options.to_owned()));
        let tuning = Tuning { database: String::new(), families: families.into() };
        assert_eq!(tuning.of_family("events"), "a=1;b=2");
        assert_eq!(tuning.of_family("events_by_topic"), "b=2;b=3");
        assert_eq!(tuning.of_family("ledgers"), "b=2");
        assert_eq!(Tuning::default().of_family("events"), "");
    }
}
