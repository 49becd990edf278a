//! What changed between two trials of a program on the same transactions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cli::grid::{cell, grid};
use crate::cli::trial::list;

/// Number of rows of a table that are shown.
const MOST_ROWS: usize = 40;

/// Formats what changed: columns, results of runs, then the rows of each table that are new (`+`) or
/// gone (`-`).
pub fn draw(before: &Value, after: &Value) -> String {
    let mut text = String::new();
    columns(before, after, &mut text);
    runs(before, after, &mut text);
    let (old, new) = (Rows::of(before), Rows::of(after));
    let tables: BTreeSet<&String> = old.0.keys().chain(new.0.keys()).collect();
    for table in tables {
        rows(table, after, &old, &new, &mut text);
    }
    let same = if text.is_empty() { ": all as before" } else { "" };
    let fuel = match (fuel(before), fuel(after)) {
        (was, now) if was == now => format!("{now} fuel"),
        (was, now) => format!("{now} fuel, {was} before"),
    };
    let runs = list(&after["transactions"]).len();
    text + &format!("{runs} transactions, {} rows, {fuel}{same}\n", new.len())
}

/// Says which tables and columns are new, gone, or of another type.
fn columns(before: &Value, after: &Value, text: &mut String) {
    let (old, new) = (typed(before), typed(after));
    let places: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for place in places {
        let (table, column) = place;
        let (table, column) = (cell(&json!(table)), cell(&json!(column)));
        match (old.get(place), new.get(place)) {
            (None, Some(kind)) => text.push_str(&format!("{table}: new column {column} {kind}\n")),
            (Some(_), None) => text.push_str(&format!("{table}: no column {column} any more\n")),
            (Some(was), Some(kind)) if was != kind => {
                text.push_str(&format!("{table}: column {column} is {kind}, was {was}\n"));
            }
            _ => {}
        }
    }
}

/// Returns the type of each column, by the names of its table and itself.
fn typed<'a>(answer: &'a Value) -> BTreeMap<(&'a str, &'a str), String> {
    let tables = answer["tables"].as_object().into_iter().flatten();
    let columns = tables.flat_map(|(table, columns)| {
        let typed = |column: &'a Value| Some((column["name"].as_str()?, cell(&column["type"])));
        let columns = list(columns).iter().filter_map(typed);
        columns.map(move |(name, kind)| ((table.as_str(), name), kind))
    });
    columns.collect()
}

/// Says which runs end differently.
fn runs(before: &Value, after: &Value, text: &mut String) {
    let old: BTreeMap<_, _> = list(&before["transactions"])
        .iter()
        .map(|run| (cell(&run["tx_hash"]), result(run)))
        .collect();
    for run in list(&after["transactions"]) {
        let (hash, now) = (cell(&run["tx_hash"]), result(run));
        match old.get(&hash) {
            Some(was) if *was == now => {}
            Some(was) => text.push_str(&format!("{hash}: {now}; before: {was}\n")),
            None => text.push_str(&format!("{hash}: {now}; not tried before\n")),
        }
    }
}

/// Returns how a run ended, without what differs between equal runs.
fn result(run: &Value) -> String {
    let parts = ["status", "error_message", "fidelity", "fidelity_difference"];
    let parts = parts.iter().map(|part| cell(&run[part])).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

fn fuel(answer: &Value) -> u64 {
    list(&answer["transactions"]).iter().filter_map(|run| run["fuel"].as_u64()).sum()
}

/// Rows of a trial by table, each with its text, which is equal for equal rows of a transaction.
struct Rows<'a>(BTreeMap<String, Vec<(String, Row<'a>)>>);

#[derive(Clone, Copy)]
struct Row<'a> {
    ledger: &'a Value,
    row: &'a Value,
}

impl<'a> Rows<'a> {
    fn of(answer: &'a Value) -> Self {
        let mut tables: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for run in list(&answer["transactions"]) {
            for row in list(&run["rows"]) {
                let text = json!([run["tx_hash"], row["contract_id"], row["values"]]).to_string();
                let table = row["table"].as_str().unwrap_or_default().to_owned();
                let ledger = &run["ledger_sequence"];
                tables.entry(table).or_default().push((text, Row { ledger, row }));
            }
        }
        Self(tables)
    }

    fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Returns the rows of a table that `other` has not, or has less often.
    fn without(&self, other: &Self, table: &str) -> Vec<Row<'a>> {
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        for (text, _) in other.0.get(table).into_iter().flatten() {
            *known.entry(text).or_default() += 1;
        }
        let rows = self.0.get(table).into_iter().flatten();
        let is_new = |(text, _): &&(String, Row<'a>)| match known.get_mut(text.as_str()) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        };
        rows.filter(is_new).map(|(_, row)| *row).collect()
    }
}

/// Lists the rows of one table that are new or gone.
fn rows(table: &str, after: &Value, old: &Rows<'_>, new: &Rows<'_>, text: &mut String) {
    let (gone, added) = (old.without(new, table), new.without(old, table));
    if gone.is_empty() && added.is_empty() {
        return;
    }
    let mut columns: Vec<&str> =
        list(&after["tables"][table]).iter().filter_map(|it| it["name"].as_str()).collect();
    // Columns that the new version no longer has.
    for name in gone.iter().flat_map(|it| it.row["values"].as_object()).flat_map(|it| it.keys()) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let line = |sign: &str, it: &Row<'_>| {
        let injected = [sign.to_owned(), cell(it.ledger), cell(&it.row["contract_id"])];
        injected
            .into_iter()
            .chain(columns.iter().map(|name| cell(&it.row["values"][name])))
            .collect()
    };
    let lines = gone.iter().map(|it| line("-", it)).chain(added.iter().map(|it| line("+", it)));
    let lines: Vec<Vec<String>> = lines.take(MOST_ROWS).collect();
    let names = [&["", "_ledger", "contract_id"], columns.as_slice()].concat();
    let (more, fewer) = (added.len(), gone.len());
    text.push_str(&format!("\n{}: {more} new, {fewer} gone\n", cell(&json!(table))));
    text.push_str(&grid(&names, &lines));
    if more + fewer > lines.len() {
        text.push_str(&format!("… and {} more\n", more + fewer - lines.len()));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(rows: &[(&str, i64)], fuel: u64, status: &str) -> Value {
        let rows: Vec<_> = rows
            .iter()
            .map(|(who, amount)| {
                json!({ "table": "deposit", "contract_id": "C1",
                        "values": { "who": who, "amount": amount } })
            })
            .collect();
        json!({
            "tables": { "deposit": [
                { "name": "who", "type": "VARCHAR" }, { "name": "amount", "type": "BIGINT" },
            ] },
            "transactions": [{ "tx_hash": "aa", "ledger_sequence": 7, "status": status,
                "error_message": null, "fidelity": "exact", "fuel": fuel, "rows": rows }],
        })
    }

    #[test]
    fn equal_trials_are_as_before() {
        let one = trial(&[("a", 1), ("a", 1)], 5, "success");
        assert_eq!(draw(&one, &one), "1 transactions, 2 rows, 5 fuel: all as before\n");
    }

    #[test]
    fn rows_are_compared_as_often_as_they_were_emitted() {
        let before = trial(&[("a", 1), ("a", 1), ("b", 2)], 5, "success");
        let after = trial(&[("a", 1), ("b", 3)], 4, "success");
        let expected = "
deposit: 1 new, 2 gone
   _ledger  contract_id  who  amount
-  7        C1           a    1
-  7        C1           b    2
+  7        C1           b    3

1 transactions, 2 rows, 4 fuel, 5 before
";
        assert_eq!(draw(&before, &after), expected);
    }

    #[test]
    fn results_and_columns_that_changed_are_named() {
        let before = trial(&[], 5, "success");
        let mut after = trial(&[], 5, "error");
        after["transactions"][0]["error_message"] = json!("out of fuel");
        after["tables"]["deposit"] =
            json!([{ "name": "who", "type": "BLOB" }, { "name": "fee", "type": "BIGINT" }]);
        let expected = "deposit: no column amount any more
deposit: new column fee BIGINT
deposit: column who is BLOB, was VARCHAR
aa: error, out of fuel, exact; before: success, exact
1 transactions, 0 rows, 5 fuel
";
        assert_eq!(draw(&before, &after), expected);
    }

    #[test]
    fn many_rows_are_cut_off() {
        let many: Vec<_> = (0..100).map(|number| ("a", number)).collect();
        let text = draw(&trial(&[], 5, "success"), &trial(&many, 5, "success"));
        assert!(text.contains("100 new, 0 gone") && text.contains("… and 60 more"), "{text}");
    }
}
