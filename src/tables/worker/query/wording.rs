//! Refusals of DuckDB in the words of the service, where DuckDB's own lead astray.

use std::collections::BTreeSet;

use crate::names::folded;

/// DuckDB's type of times with a time zone, whose arithmetic is part of an extension (ICU) that the
/// service does not have.
const ZONED: &str = "TIMESTAMP WITH TIME ZONE";
/// How DuckDB names that extension.
const ICU: [&str; 3] = ["in the icu extension", "extension 'icu", "extension \"icu\""];
/// Names under which transactions and ledgers are looked for.
const NOT_IN_SQL: [&str; 6] = ["transactions", "transaction", "txs", "tx", "ledgers", "ledger"];

/// Table of the chain with transactions, if the service has it.
const TRANSACTIONS: &str = "chain.transactions";

/// Returns what to tell the user about a statement that DuckDB does not prepare. `own` are the owner's
/// tables and views.
pub fn of(message: &str, own: &BTreeSet<String>) -> String {
    let first = message.lines().next().unwrap_or_default();
    let needs_zones =
        first.starts_with("Binder Error: No function matches") && first.contains(ZONED);
    if needs_zones || ICU.iter().any(|icu| message.contains(icu)) {
        return "Times with a time zone cannot be calculated with here: CAST the time to TIMESTAMP, which \
            is in UTC, as in to_timestamp(1)::TIMESTAMP + INTERVAL '1 day'"
            .to_owned();
    }
    if let Some(table) = between(first, "Table with name ", " does not exist!") {
        return of_table(message, table, own);
    }
    message.to_owned()
}

/// DuckDB's suggestions for a missing table include its own tables, which queries cannot read.
fn of_table(message: &str, table: &str, own: &BTreeSet<String>) -> String {
    let is_own = |name: &str| {
        let (name, in_schema) = (folded(name), format!(".{}", folded(name)));
        own.contains(&name) || own.iter().any(|own| own.ends_with(&in_schema))
    };
    if between(message, "Did you mean \"", "\"").is_some_and(is_own) {
        return message.to_owned();
    }
    let elsewhere = match (NOT_IN_SQL.contains(&folded(table).as_str()), own.contains(TRANSACTIONS))
    {
        (true, true) => ". Transactions are in chain.transactions, ledgers under /rest/ledgers",
        (true, false) => {
            ". Transactions are under /rest/txs and in exports, ledgers under /rest/ledgers"
        }
        (false, _) => "",
    };
    // The line with the name, and where it stands there.
    let place = message.find("\n\nLINE ").map_or("", |at| &message[at..]);
    format!(
        "Catalog Error: Table with name {table} does not exist: SQL has the events and rows of your \
         projects, and SHOW TABLES lists their tables{elsewhere}{place}"
    )
}

fn between<'m>(message: &'m str, before: &str, after: &str) -> Option<&'m str> {
    Some(message.split_once(before)?.1.split_once(after)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_tables_that_can_be_read() {
        let own = BTreeSet::from(["demo.transfer".to_owned(), "demo_transfer".to_owned()]);
        let message = |table: &str, suggested: &str| {
            let text = format!(
                "Catalog Error: Table with name {table} does not exist!\nDid you mean \
                 \"{suggested}\"?\n\nLINE 1: …"
            );
            of(&text, &own)
        };
        assert!(
            message("demo_transfr", "demo_transfer").contains("Did you mean \"demo_transfer\"?")
        );
        for suggested in ["Demo.Transfer", "transfer"] {
            assert!(message("x", suggested).contains("Did you mean"));
        }
        for table in ["transactions", "swaps"] {
            let said = message(table, "duckdb_constraints");
            assert!(said.contains(&format!("name {table} does not exist: SQL has")), "{said}");
            assert!(!said.contains("duckdb_constraints"), "{said}");
            assert_eq!(said.contains("/rest/txs"), table == "transactions", "{said}");
            assert!(said.ends_with("\n\nLINE 1: …"), "{said}");
        }
    }

    #[test]
    fn other_refusals_are_as_duckdb_words_them() {
        let candidates = "Binder Error: No function matches the given name and argument types \
             '+(VARCHAR, INTERVAL)'.\n\t\"+\"(TIMESTAMP WITH TIME ZONE, INTEGER)";
        for message in [candidates, "Parser Error: x", ""] {
            assert_eq!(of(message, &BTreeSet::new()), message);
        }
    }
}
