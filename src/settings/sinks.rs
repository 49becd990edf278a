//! Settings of sinks: databases of the operator to which rows are copied while a service runs. Each sink is a
//! section of its own, `[sinks.NAME]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::section::{Describe, Description, ListItem};
use crate::units::Seconds;
use crate::values::Secret;
use crate::{nonzero, section};

/// Greatest length of a sink's name: it is part of the names of health components and of variables.
const LONGEST_NAME: usize = 32;
/// Stands for all projects in a list of projects.
const ALL: &str = "*";
/// Stands for the name of a project in the pattern of schemas.
const PROJECT: &str = "{project}";

section! {
    /// `[sinks.NAME]`: a PostgreSQL database to which the rows of projects are copied.
    pub struct Sink {
        /// Address of the server, without the password.
        pub url: String = String::new(),
            "an address such as \"postgres://orrery@db.example/data\", without the password";
        /// Names of the projects, or `*` for those of all owners.
        pub projects: Vec<String> = Vec::new(),
            "a list of projects, such as [\"xlm\"], or [\"*\"] for all";
        /// Pattern of the schemas, in which `{project}` stands for the name of the project.
        pub schema: String = PROJECT.to_owned(),
            "a name of a schema, such as \"{project}\" or \"orrery_{project}\"";
        /// File with the password; empty for none.
        pub password_file: PathBuf = PathBuf::new(),
            "a file that only the service can read, such as \"/etc/orrery/postgres-password\"";
        /// The password itself, from a place that others cannot read.
        pub password: Secret = Secret::default(), "the password of the server's role";
        /// Whether listeners of the channel `orrery` hear of rows.
        pub notify: bool = true;
        /// Seconds for which the rows of a project must have been arranged as they are before its tables are filled
        /// again: while more becomes known, that changes several times.
        pub settle_seconds: Seconds = Seconds::new(nonzero!(60));
    }
}

impl ListItem for String {
    const EXPECTED: &'static str = "a list of texts";
}

/// The sinks by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sinks(pub BTreeMap<String, Sink>);

impl Describe for Sinks {
    fn describe(below: Option<&str>) -> Option<Description> {
        let (name, key) = below?.split_once('.')?;
        may_be_name(name).then(|| Sink::describe(Some(key))).flatten()
    }
}

/// Whether a sink may have this name: lower-case letters, digits and `_`, a letter first.
fn may_be_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(is_part)
}

impl Sinks {
    /// Returns the keys of a sink, with their defaults, as its section has them.
    pub fn of_one(name: &str) -> Self {
        Self([(name.to_owned(), Sink::default())].into())
    }

    /// Says what a sink may be called, if this is no name of one.
    pub fn name_error(name: &str) -> Option<String> {
        (!may_be_name(name)).then(|| {
            format!(
                "'{}' cannot be the name of a sink: give at most {LONGEST_NAME} lower-case letters, digits and _, \
                 a letter first",
                name.escape_default()
            )
        })
    }

    /// Returns a sentence about the first sink whose settings cannot be used.
    pub fn validation_error(&self) -> Option<String> {
        self.0.iter().find_map(|(name, sink)| sink.validation_error(name))
    }
}

impl Sink {
    fn validation_error(&self, name: &str) -> Option<String> {
        let section = format!("sinks.{name}");
        if self.url.is_empty() {
            return Some(format!(
                "{section} has no url: give the address of the server, such as \
                 \"postgres://orrery@db.example/data\""
            ));
        }
        if !self.password_file.as_os_str().is_empty() && self.password.as_option().is_some() {
            return Some(format!(
                "{section}.password_file and {section}.password (ORRERY_SINKS_{}_PASSWORD) are both given: keep one \
                 of them",
                name.to_uppercase()
            ));
        }
        if self.projects.len() > 1 && self.projects.iter().any(|project| project == ALL) {
            return Some(format!(
                "{section}.projects has \"*\" beside others: \"*\" alone means all projects"
            ));
        }
        if let Some(project) = self.projects.iter().find(|it| !may_be_project(it)) {
            return Some(format!(
                "{section}.projects has '{}', which is no name of a project: give names of letters, digits, _ and -, \
                 or \"*\" for all",
                project.escape_default()
            ));
        }
        if self.schema.is_empty() || self.schema.contains('\0') {
            return Some(format!("{section}.schema is no name: give one such as \"{PROJECT}\""));
        }
        None
    }

    /// Whether the rows of a project go to this sink.
    pub fn has(&self, project: &str) -> bool {
        self.projects.iter().any(|it| it == ALL || it.eq_ignore_ascii_case(project))
    }

    /// Names of the projects; `None` when they are all.
    pub fn named(&self) -> Option<&[String]> {
        (!self.projects.iter().any(|it| it == ALL)).then_some(&*self.projects)
    }
}

fn may_be_project(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    text == ALL || (!text.is_empty() && text.bytes().all(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_words() {
        for name in ["main", "a", "warehouse_2", &"x".repeat(32)] {
            assert_eq!(Sinks::name_error(name), None);
            assert!(Sinks::describe(Some(&format!("{name}.url"))).is_some());
        }
        for name in ["", "Main", "1a", "_a", "a-b", "a.b", "ä", &"x".repeat(33)] {
            assert!(Sinks::name_error(name).unwrap().contains("lower-case letters"), "{name}");
            assert_eq!(Sinks::describe(Some(&format!("{name}.url"))), None);
        }
        assert_eq!(Sinks::describe(Some("main.port")), None);
        assert!(Sinks::describe(Some("main.password")).unwrap().is_secret);
    }

    #[test]
    fn projects_are_named_or_all() {
        let sink = |projects: &[&str]| Sink {
            url: "postgres://h/d".to_owned(),
            projects: projects.iter().map(|it| (*it).to_owned()).collect(),
            ..Sink::default()
        };
        assert!(sink(&["*"]).has("anything") && sink(&["XLM", "b"]).has("xlm"));
        assert!(!sink(&[]).has("xlm") && !sink(&["xl"]).has("xlm"));
        assert_eq!((sink(&["*"]).named(), sink(&[]).named()), (None, Some(&[][..])));
        for (projects, expected) in [
            (&["*", "xlm"][..], "\"*\" alone means all"),
            (&["a b"], "sinks.main.projects has 'a b', which is no name of a project"),
            (&[""], "no name of a project"),
        ] {
            let error = sink(projects).validation_error("main").unwrap();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(sink(&["xlm"]).validation_error("main"), None);
    }
}
