//! `orrery storage`: what a contract holds, now or at the end of a stored ledger, and the history of a key.

mod history;
mod key;
mod pages;
mod shown;

use std::cmp::Reverse;

use clap::Args;
use orrery::domain::ContractId;
use serde_json::Value;

use self::history::History;
use self::key::INSTANCE;
use self::pages::Pages;
use self::shown::{key_of, life_of, unknown_in};
use super::output::{self, Json};
use super::remote::{Remote, draws_tables};
use super::{Failure, grid};

/// Show what a contract holds, now or at the end of any stored ledger
///
/// Its balances, positions, settings and whatever else it has stored, decoded by the types that it declares: the map in its
/// instance first, then its entries by name, the newest first. An entry whose time to live is over is archived, and shown with
/// the value that restoring it brings back. Balances of accounts (G…) in assets to which they have trust lines are no data
/// of a contract, and not among them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery storage C… --name Balance
  orrery storage C… --at 1460000 --json | jq .entries
  orrery storage C… --key $(orrery xdr encode '{\"vec\":[{\"symbol\":\"Balance\"},{\"address\":\"G…\"}]}')
  orrery storage C… --history Admin
  orrery storage C… --history 02934e134ba271dba1b36ba72015eef0099db8a3671136ace01a0e7c2d419ed5")]
pub struct Storage {
    /// The contract
    #[arg(value_name = "C…")]
    contract: ContractId,
    /// The ledger at whose end it is looked up; the newest stored one if not given
    #[arg(long, value_name = "LEDGER")]
    at: Option<u32>,
    /// Only what has this symbol as its key, or a vector as its key that begins with it
    #[arg(long, value_name = "SYMBOL")]
    name: Option<String>,
    /// Only what is under this key: a symbol, type:value (such as u64:5), an address, the base64 XDR of an ScVal, or
    /// `instance`
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Show the changes of one entry instead, newest first: of the hash of its key, which the list shows, or of a key as for
    /// --key, or of a vector of this one symbol
    #[arg(long, value_name = "KEY", conflicts_with_all = ["at", "name", "key"])]
    history: Option<String>,
    /// Maximum number of entries or changes
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Go on where an earlier answer ended: its `cursor`
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    output: Json,
}

const COLUMNS: [&str; 7] =
    ["name", "key", "durability", "updated", "live_until", "key_hash", "value"];

impl Storage {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        let pages = Pages { remote, limit: self.limit as usize, cursor: self.cursor.clone() };
        if let Some(of) = &self.history {
            let history = History { contract: self.contract, pages };
            return history.run(of, draws_tables(self.output.json));
        }
        self.list(&pages)
    }

    fn list(&self, pages: &Pages<'_>) -> Result<(), Failure> {
        if let Some(key) = &self.key {
            key::read(key).map_err(|problem| Failure::usage(format!("--key {problem}")))?;
        }
        let path = format!("contracts/{}/storage", self.contract);
        let parameters = [
            ("at", self.at.map(|ledger| ledger.to_string())),
            ("name", self.name.clone()),
            ("key", self.key.clone()),
        ];
        let found = pages.read(&path, &parameters, "entries")?;
        if !draws_tables(self.output.json) {
            found.body.print()?;
        } else {
            let answer = found.body.json()?;
            output::print(&grid::list(&COLUMNS, &self.rows(&answer)))?;
            let is_whole = self.cursor.is_none() && found.cursor.is_none();
            output::note(self.told(&answer, is_whole));
        }
        if let Some(cursor) = found.cursor {
            output::note(format_args!("there are more: go on with --cursor {cursor}"));
        }
        Ok(())
    }

    /// Returns the rows of the table: the instance and its map first, then the entries by name, of each the
    /// newest first.
    fn rows(&self, answer: &Value) -> Vec<Vec<String>> {
        let instance = &answer["instance"];
        let is_whole = self.name.is_none() && self.key.as_ref().is_none_or(|it| it == INSTANCE);
        let own = (is_whole && instance.is_object()).then(|| {
            row(instance, &instance["executable"]).map(|(column, cell)| match column {
                "key" => INSTANCE.to_owned(),
                "durability" => "persistent".to_owned(),
                _ => cell,
            })
        });
        let items = instance["storage"].as_array().into_iter().flatten();
        let items = items.map(|item| {
            row(item, &item["value"]).map(|(column, cell)| match column {
                // It is that of the instance, and leads to the history of the whole of it.
                "key_hash" => String::new(),
                _ => cell,
            })
        });
        let mut entries: Vec<&Value> = answer["entries"].as_array().into_iter().flatten().collect();
        let place = |entry: &&Value| {
            let name = entry["name"].as_str().map(str::to_owned);
            (name.is_none(), name, Reverse(entry["updated_ledger"].as_u64()))
        };
        entries.sort_by_key(place);
        let entries = entries.iter().map(|entry| row(entry, &entry["value"]).map(|(_, cell)| cell));
        own.into_iter().chain(items).chain(entries).map(Vec::from).collect()
    }

    /// Says of which ledger the list is, and what is not in it because it is not known.
    fn told(&self, answer: &Value, is_whole: bool) -> String {
        let ledger = &answer["ledger"];
        let what = match (&self.name, &self.key) {
            (_, Some(_)) => " under this key".to_owned(),
            (Some(name), None) => format!(" under the name {name}"),
            (None, None) => String::new(),
        };
        let at = format!("at the end of ledger {ledger}");
        let elsewhere = match &answer["known_in"] {
            Value::Array(range) if range.len() == 2 => format!(
                "; the contract is known in the ledgers from {} to {}: give one of them with --at",
                range[0], range[1]
            ),
            _ => String::new(),
        };
        let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        let has_none = is_empty(&answer["entries"]) && is_empty(&answer["instance"]["storage"]);
        let has_none = has_none && (!what.is_empty() || answer["instance"].is_null());
        // What is under one key is told as exactly as what is known of the whole contract.
        let is_complete = answer["complete"] == true || self.key.is_some();
        let unknown = unknown_in(answer);
        if !unknown.is_empty() {
            return format!(
                "what the contract holds{what} with the durability {unknown} {at} is not known from the stored \
                 ledgers{elsewhere}"
            );
        }
        match (is_whole, has_none, is_complete) {
            (true, true, true) => format!("the contract holds nothing{what} {at}"),
            (true, true, false) => {
                format!("nothing is known of what the contract holds{what} {at}{elsewhere}")
            }
            (true, false, true) => format!("this is all that it holds{what} {at}"),
            (true, false, false) => format!(
                "this may not be all that it holds{what} {at}: entries of which the stored ledgers do not tell \
                 are left out"
            ),
            (false, _, true) => format!("this is a part of what it holds{what} {at}"),
            (false, _, false) => format!(
                "this is a part of what it holds{what} {at}; entries of which the stored ledgers do not tell \
                 are left out"
            ),
        }
    }
}

/// Returns the cells of an entry that holds a value, with the names of their columns.
fn row(entry: &Value, value: &Value) -> [(&'static str, String); 7] {
    COLUMNS.map(|column| {
        let cell = match column {
            "key" => key_of(entry),
            "updated" => grid::cell(&entry["updated_ledger"]),
            "live_until" => life_of(entry),
            "value" => grid::cell(value),
            column => grid::cell(&entry[column]),
        };
        (column, cell)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(name: Option<&str>, key: Option<&str>) -> Storage {
        Storage {
            contract: ContractId([0; 32]),
            at: None,
            name: name.map(str::to_owned),
            key: key.map(str::to_owned),
            history: None,
            limit: 1000,
            cursor: None,
            output: Json { json: false },
        }
    }

    fn entry(name: &str, updated: u32, archived: Option<bool>) -> Value {
        json!({
            "key_hash": "ab", "key": [name, 7], "name": name, "args": [7, "G"],
            "durability": "persistent", "value": "5", "live_until_ledger": 9, "archived": archived,
            "updated_ledger": updated,
        })
    }

    #[test]
    fn rows_are_by_name_and_archived_ones_are_marked() {
        let mut disputed = entry("A", 8, Some(true));
        disputed["archived_value"] = "disputed".into();
        let mut unnamed = entry("", 9, None);
        (unnamed["name"], unnamed["args"]) = (Value::Null, Value::Null);
        unnamed["live_until_ledger"] = Value::Null;
        let answer = json!({
            "instance": {
                "key_hash": "cd", "executable": { "stellar_asset": true }, "storage": [entry("Z", 1, None)],
                "live_until_ledger": null, "archived": true, "updated_ledger": 3,
            },
            "entries": [unnamed, entry("B", 2, Some(true)), entry("A", 1, Some(false)), disputed],
        });
        let rows = asked(None, None).rows(&answer);
        let told: Vec<_> =
            rows.iter().map(|row| (row[0].as_str(), row[1].as_str(), row[4].as_str())).collect();
        assert_eq!(
            told,
            [
                ("", "instance", "archived"),
                ("Z", "7, G", "9"),
                ("A", "7, G", "9, archived, its value disputed"),
                ("A", "7, G", "9"),
                ("B", "7, G", "9, archived"),
                ("", "[\"\",7]", "not known"),
            ]
        );
        assert_eq!(
            asked(Some("Z"), None).rows(&answer)[0][0],
            "Z",
            "the instance is not asked for"
        );
    }

    #[test]
    fn what_is_not_known_is_said_in_one_sentence() {
        let answer = |complete: bool, entries: Value, more: Value| {
            let mut answer = json!({
                "ledger": 7, "complete": complete, "instance": null, "entries": entries,
            });
            answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            answer
        };
        let (none, some) = (json!([]), json!([entry("A", 1, None)]));
        let known_in = json!({ "known_in": [2, 4] });
        for (asked, answer, expected) in [
            (
                asked(None, None),
                answer(false, none.clone(), known_in),
                "nothing is known of what the contract holds at the end of ledger 7; the contract is known in \
                 the ledgers from 2 to 4: give one of them with --at",
            ),
            (
                asked(Some("A"), None),
                answer(false, some.clone(), json!({})),
                "this may not be all that it holds under the name A at the end of ledger 7: entries of which \
                 the stored ledgers do not tell are left out",
            ),
            (
                asked(None, Some("A")),
                answer(false, none.clone(), json!({ "unknown": ["temporary", "persistent"] })),
                "what the contract holds under this key with the durability temporary, persistent at the end of \
                 ledger 7 is not known from the stored ledgers",
            ),
            (
                asked(None, Some("A")),
                answer(false, none.clone(), json!({ "unknown": [] })),
                "the contract holds nothing under this key at the end of ledger 7",
            ),
            (
                asked(None, None),
                answer(true, none, json!({})),
                "the contract holds nothing at the end of ledger 7",
            ),
        ] {
            assert_eq!(asked.told(&answer, true), expected);
        }
        let part = asked(None, None).told(&answer(false, some, json!({})), false);
        assert!(
            part.starts_with("this is a part of what it holds at the end of ledger 7; "),
            "{part}"
        );
    }
}
