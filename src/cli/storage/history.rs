//! The changes of one entry, or of an item in the map of a contract's instance.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::{ContractId, ENTERED_VALUE, Hash32};
use serde_json::Value;
use stellar_xdr::{ScVal, WriteXdr};

use super::super::remote::with_query;
use super::super::{Failure, grid, output};
use super::key::{self, Named};
use super::pages::{Found, Pages};
use super::shown::{key_of, life_of, unknown_in};

/// The history of a key of a contract.
pub struct History<'r> {
    pub contract: ContractId,
    pub pages: Pages<'r>,
}

/// What has a history: an entry, or an item in the map of the instance.
struct Subject {
    key_hash: Hash32,
    /// Base64 XDR of the item's key.
    item: Option<String>,
}

const COLUMNS: [&str; 9] =
    ["ledger", "closed", "change", "name", "key", "live_until", "tx", "previous", "value"];

impl History<'_> {
    /// Prints the history of a key, as the user names it.
    pub fn run(&self, of: &str, draws_tables: bool) -> Result<(), Failure> {
        let problem = |problem: String| Failure::usage(format!("--history {problem}"));
        let (mut found, none) = match key::named(of).map_err(problem)? {
            Named::Hash(key_hash) => {
                let found = self.of(&Subject { key_hash, item: None })?;
                (vec![found], format!("{key_hash}?decoded=true"))
            }
            Named::Key(key) => (self.of_key(&key)?, String::new()),
        };
        let has_changes = found.iter().any(|history| history.rows > 0);
        if has_changes {
            found.retain(|history| history.rows > 0);
        } else {
            found.truncate(1);
        }
        if draws_tables {
            let mut rows = Vec::new();
            for history in &found {
                rows.append(&mut rows_of(&history.body.json()?));
            }
            output::print(&grid::list(&COLUMNS, &rows))?;
        } else {
            for history in &found {
                history.body.print()?;
            }
        }
        if !has_changes {
            output::note(self.nothing(of, &none)?);
        }
        for history in &found {
            self.tell(history, draws_tables && has_changes)?;
        }
        Ok(())
    }

    /// Says from when on the changes are known, and how the list goes on.
    fn tell(&self, history: &Found, tells_extent: bool) -> Result<(), Failure> {
        let answer = history.body.json()?;
        if tells_extent && let Some(since) = answer["known_since"].as_u64() {
            output::note(format_args!("from ledger {since} on, no change is missing"));
        }
        if let Some(cursor) = &history.cursor {
            output::note(format_args!("there are older ones: go on with --cursor {cursor}"));
        }
        Ok(())
    }

    /// Returns the histories of all that has this key, or, if nothing has, the vector of it alone.
    fn of_key(&self, key: &ScVal) -> Result<Vec<Found>, Failure> {
        let found = self.of_exact_key(key)?;
        let has_changes = found.iter().any(|history| history.rows > 0);
        match key::vector_of(key) {
            Some(vector) if !has_changes => {
                let others = self.of_exact_key(&vector)?;
                let is_better = others.iter().any(|history| history.rows > 0);
                Ok(if is_better { others } else { found })
            }
            _ => Ok(found),
        }
    }

    fn of_exact_key(&self, key: &ScVal) -> Result<Vec<Found>, Failure> {
        let too_large = || Failure::usage("--history has a key that is too large");
        let (instance, entries) = key::hashes(&self.contract, key).ok_or_else(too_large)?;
        if *key == ScVal::LedgerKeyContractInstance {
            return Ok(vec![self.of(&Subject { key_hash: instance, item: None })?]);
        }
        let xdr = key.to_xdr(ENTERED_VALUE).map_err(|_| too_large())?;
        let item = Subject { key_hash: instance, item: Some(STANDARD.encode(xdr)) };
        let entries = entries.map(|key_hash| Subject { key_hash, item: None });
        [item].iter().chain(&entries).map(|subject| self.of(subject)).collect()
    }

    fn of(&self, subject: &Subject) -> Result<Found, Failure> {
        let path = format!("contracts/{}/storage/{}/history", self.contract, subject.key_hash);
        self.pages.read(&path, &[("key", subject.item.clone())], "changes")
    }

    /// Says why there are no changes.
    fn nothing(&self, of: &str, entry: &str) -> Result<String, Failure> {
        let unchanged = "it has not changed in the stored ledgers: see it without --history";
        let path = format!("contracts/{}/storage", self.contract);
        if !entry.is_empty() {
            // It is there, or the service says whether it is absent or not known.
            return match self.pages.remote.get(&format!("{path}/{entry}")) {
                Ok(_) => Ok(unchanged.to_owned()),
                Err(failure) => Ok(failure.to_string().replace("with 'key'", "with --key")),
            };
        }
        let parameters = [("key", Some(of.to_owned()))];
        let answer = self.pages.remote.get(&with_query(&path, &parameters))?;
        let answer = answer.json()?;
        let is_there = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        if is_there(&answer["entries"]) || is_there(&answer["instance"]["storage"]) {
            return Ok(unchanged.to_owned());
        }
        let unknown = unknown_in(&answer);
        let ledger = &answer["ledger"];
        Ok(match unknown.as_str() {
            "" => format!(
                "the contract has nothing under this key at the end of ledger {ledger}, and no stored \
                 ledger changed anything under it: see its keys without --history"
            ),
            unknown => format!(
                "no stored ledger changed anything under this key, and whether the contract has it with the \
                 durability {unknown} is not known"
            ),
        })
    }
}

fn rows_of(answer: &Value) -> Vec<Vec<String>> {
    let changes = answer["changes"].as_array().into_iter().flatten();
    let row = |change: &Value| -> Vec<String> {
        let cell = |column| match column {
            "closed" => grid::cell(&change["ledger_closed_at"]),
            "change" => grid::cell(&change["kind"]),
            "key" => key_of(change),
            "live_until" if change["live_until_ledger"].is_null() => String::new(),
            "live_until" => life_of(change),
            column => grid::cell(&change[column]),
        };
        COLUMNS.map(cell).into()
    };
    changes.map(row).collect()
}
