//! `orrery types`: prints the types of tables' rows, and of decoded events, for the programming languages
//! that read them.

mod column;
mod events;
mod python;
mod typescript;

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use orrery::domain::ContractId;
use orrery::interfaces::names::{
    CONTRACT_ID, DECLARED, EVENT_ID, EVENTS, STORAGE, STORAGE_CHANGES, UNDECLARED,
};
use orrery::tables::{CHAIN, INJECTED, view};
use serde_json::Value;

use super::output::Numbers;
use super::remote::Remote;
use super::sql_tables::{listed, with_columns};
use super::{Failure, escape, output};
use column::Kind;

/// Print types for the rows of your tables, or for decoded events
///
/// The types describe the result of a query (`orrery query`, or `POST /rest/retroshade/query`, format rows): one
/// type for each table that you may read, named after the project and the table. A column that a program writes, or
/// that has a value of an event, may be null; those that every table has are not.
///
/// With --events, they describe the events that contracts declare: `decoded` of the event routes and the stream, and
/// `event.name` and `event.params` of webhooks, as one type whose parts are told apart by `name`. They are those of the
/// code that the contracts run as of the newest stored ledger, and of what they ran before: stored events have its
/// forms.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery types --lang ts > tables.ts
  orrery types --lang python --project market > tables.py
  orrery types --lang ts --events --contract CA…,CB… > events.ts")]
pub struct Types {
    /// The language
    #[arg(long, value_enum)]
    lang: Language,
    /// Only the tables of this project
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// How queries ask for 64-bit and wider integers; with `string`, each of them has one type
    #[arg(long, value_enum, default_value_t = Numbers::Exact)]
    numbers: Numbers,
    /// Types of the events that contracts declare, instead of those of tables
    #[arg(long, requires = "contracts", conflicts_with_all = ["project", "numbers"])]
    events: bool,
    /// With --events: contract IDs with commas between them; may be repeated
    #[arg(
        long = "contract",
        alias = "contracts",
        value_name = "C…",
        value_delimiter = ',',
        requires = "events"
    )]
    contracts: Vec<ContractId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    /// TypeScript
    Ts,
    /// Python, 3.8 and later
    Python,
}

/// A table, and the type of its rows.
struct Table {
    /// Unique name of the type.
    name: String,
    /// Name of the table in queries.
    called: String,
    /// Names and types of the columns, in the table's order.
    columns: Vec<(String, Kind)>,
}

/// Columns with the sequence of a ledger, which has 32 bits.
const LEDGERS: [&str; 2] = ["_ledger", "ledger"];
/// Columns of the view of all events of a project of events, which no table of a program has alone.
const OF_EVENTS_VIEW: [&str; 6] =
    [EVENT_ID, "ledger", "ledger_closed_at", CONTRACT_ID, "name", "params"];

/// Columns of the tables of the chain that every row has, also those of exports of earlier versions.
const OF_CHAIN: [&str; 4] = ["id", "tx", "ledger", "ledger_closed_at"];

impl Types {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        if self.events {
            return events::run(remote, &self.contracts, self.lang);
        }
        let mut found = with_columns(remote, listed(remote)?)?;
        // The tables of a program that is to replace another have no other name yet.
        found.retain(|table| {
            let project = &table.listed.project;
            !project.is_empty() && self.project.as_ref().is_none_or(|wanted| wanted == project)
        });
        let of_events: BTreeSet<String> = found
            .iter()
            .filter(|it| {
                it.target == EVENTS
                    && it.columns.iter().map(|(name, _)| name.as_str()).eq(OF_EVENTS_VIEW)
            })
            .map(|it| it.listed.project.clone())
            .collect();
        let mut names = BTreeSet::new();
        let mut tables = Vec::new();
        // A listed table may have no columns, for example when it was deleted after the list was read.
        for table in found.into_iter().filter(|table| !table.columns.is_empty()) {
            let is_of_chain = table.listed.project == CHAIN;
            let is_of_events = of_events.contains(&table.listed.project);
            let is_of_event = table.columns.iter().any(|(name, _)| name == EVENT_ID);
            let name =
                unique_name(&pascal(&view(&table.listed.project, &table.target)), &mut names);
            let columns = table.columns.iter().map(|(name, data_type)| {
                let present = match is_of_chain {
                    true => OF_CHAIN.contains(&name.as_str()),
                    false => {
                        INJECTED.iter().any(|(injected, _)| injected == name)
                            || is_of_events && is_present(&table.target, is_of_event, name)
                    }
                };
                (name.clone(), self.kind((name.as_str(), data_type.as_str()), present))
            });
            tables.push(Table { name, columns: columns.collect(), called: table.called });
        }
        if tables.is_empty() {
            return Err(Failure::failed(match &self.project {
                Some(project) => {
                    format!("there is no table of a project '{project}' that you may read")
                }
                None => {
                    "there is no table that you may read: deploy a program, which creates tables"
                        .to_owned()
                }
            }));
        }
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        output::print(&match self.lang {
            Language::Ts => typescript::of(&tables),
            Language::Python => python::of(&tables),
        })
    }
}

impl Types {
    /// Returns the kind of a column's values, which are never null if it is `present`.
    fn kind(&self, (column, data_type): (&str, &str), present: bool) -> Kind {
        let is_ledger = present && LEDGERS.contains(&column);
        let kind = match (Kind::of(data_type), self.numbers) {
            (Kind::Integer, Numbers::Exact | Numbers::Decimal) if is_ledger => Kind::Number,
            (kind, Numbers::Exact | Numbers::Decimal) => kind,
            (kind, Numbers::String) => kind.with_integers_as_text(),
        };
        if present { Kind::Present(Box::new(kind)) } else { kind }
    }
}

/// Whether every row has a value in this column of a project of events, in a table of events or another.
fn is_present(target: &str, is_of_event: bool, column: &str) -> bool {
    match target {
        STORAGE_CHANGES if !is_of_event => matches!(column, "change" | "durability" | "key_hash"),
        STORAGE if !is_of_event => matches!(column, "key" | "value" | "durability" | "key_hash"),
        EVENTS => !matches!(column, "name" | "params"),
        UNDECLARED => matches!(column, EVENT_ID | "topics" | "data" | "reason"),
        _ => matches!(column, EVENT_ID | DECLARED),
    }
}

/// Returns a name as a comment shows it. Names come from a service, which may be a stranger's: a
/// character that could end the comment is escaped.
fn in_comment(name: &str) -> String {
    name.chars()
        .map(|letter| match letter {
            ' ' | '-' | '.' | '_' | '"' => letter.to_string(),
            letter if letter.is_alphanumeric() => letter.to_string(),
            letter => format!("\\u{{{:x}}}", u32::from(letter)),
        })
        .collect()
}

/// Returns a name as a string literal of both languages: JSON without hidden characters.
fn literal(name: &str) -> String {
    escape::json(&Value::from(name).to_string()).into_owned()
}

/// Converts `market_trade` to `MarketTrade`, a valid name in every language.
fn pascal(name: &str) -> String {
    let joined = super::new::pascal(name);
    if joined.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
        joined
    } else {
        format!("Table{joined}")
    }
}

/// Returns the name, with a number appended if it is taken, and adds it to `taken`.
fn unique_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_else(|| name.to_owned());
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_hostile_service_are_text_and_not_code() {
        let hostile = [
            "a`. */ \n__import__('os').system('x')\n#",
            "a\r\u{85}\u{2028}\u{2029}*/evil()/*",
            "\u{202e}x\"\"\"\\",
            "*/",
        ];
        for name in hostile {
            let member = (name.to_owned(), Kind::Record(vec![(name.to_owned(), Kind::Text)]));
            let typed = unique_name(&pascal(name), &mut BTreeSet::new());
            let table = Table { name: typed, called: name.to_owned(), columns: vec![member] };
            for (text, comment) in [
                (python::of(std::slice::from_ref(&table)), "# A row of"),
                (typescript::of(std::slice::from_ref(&table)), "/** A row of"),
            ] {
                let breaks = ['\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{202e}'];
                assert!(!text.contains(breaks), "{text}");
                let lines: Vec<_> = text.lines().filter(|line| line.starts_with(comment)).collect();
                assert_eq!(lines.len(), 1, "{text}");
                assert!(lines[0].matches("*/").count() <= 1 && !lines[0].contains("\n"), "{text}");
                for line in text.lines() {
                    assert!(!line.starts_with("__import__") && !line.starts_with("evil"), "{text}");
                }
            }
        }
    }

    #[test]
    fn type_names_are_valid_and_unique() {
        assert_eq!(pascal("market_trade"), "MarketTrade");
        assert_eq!(pascal("1-a b"), "Table1AB");
        assert_eq!(pascal("é"), "Table");
        let mut taken = BTreeSet::new();
        assert_eq!(["A", "A", "B"].map(|name| unique_name(name, &mut taken)), ["A", "A2", "B"]);
    }
}
