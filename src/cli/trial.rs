//! Formats the result of a trial as tables: the runs, then the emitted rows of each table.

use serde_json::Value;

use super::grid::{cell, grid};

const RUNS: [&str; 7] =
    ["ledger_sequence", "tx_hash", "status", "fidelity", "fuel", "rows", "error_message"];

/// Formats the response of `POST /retroshade/try`.
pub fn draw(answer: &Value) -> String {
    let runs = list(&answer["transactions"]);
    if runs.is_empty() {
        return "no stored transaction calls these contracts\n".to_owned();
    }
    let rows: Vec<_> = runs.iter().map(run).collect();
    let mut text = grid(&RUNS, &rows);
    for (table, columns) in answer["tables"].as_object().into_iter().flatten() {
        text.push('\n');
        text.push_str(&emitted(table, list(columns), runs));
    }
    text
}

fn run(run: &Value) -> Vec<String> {
    let value = |name: &str| match name {
        "rows" => list(&run[name]).len().to_string(),
        "fidelity" if run["fidelity_difference"].is_string() => {
            format!("{}: {}", cell(&run[name]), cell(&run["fidelity_difference"]))
        }
        _ => cell(&run[name]),
    };
    RUNS.map(value).into()
}

/// Formats the rows of one table, in the order in which they were emitted.
fn emitted(table: &str, columns: &[Value], runs: &[Value]) -> String {
    let columns: Vec<_> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    let mut rows = Vec::new();
    for run in runs {
        for row in list(&run["rows"]).iter().filter(|row| row["table"] == table) {
            let injected = [cell(&run["ledger_sequence"]), cell(&row["contract_id"])];
            let own = columns.iter().map(|column| cell(&row["values"][column]));
            rows.push(injected.into_iter().chain(own).collect());
        }
    }
    let table = cell(&table.into());
    match rows.len() {
        0 => format!("{table}: no row\n"),
        count => {
            let names = [&["_ledger", "contract_id"], columns.as_slice()].concat();
            let rows = grid(&names, &rows);
            format!("{table}: {count} {}\n{rows}", if count == 1 { "row" } else { "rows" })
        }
    }
}

/// Returns the items of an array, or none for another value.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_are_listed_before_the_rows_of_each_table() {
        let answer = json!({
            "tables": {
                "deposit": [
                    { "name": "who", "type": "VARCHAR" }, { "name": "amount", "type": "HUGEINT" },
                ],
                "empty": [],
            },
            "transactions": [
                {
                    "tx_hash": "aa", "ledger_sequence": 7, "status": "success",
                    "error_message": null, "execution_us": 5, "fuel": 12, "fidelity": "exact",
                    "rows": [{
                        "table": "deposit", "contract_id": "C1",
                        "values": { "amount": "340282366920938463463374607431768211455", "who": "a\nb" },
                    }],
                },
                {
                    "tx_hash": "bb", "ledger_sequence": 8, "status": "error",
                    "error_message": "out of fuel", "execution_us": 5, "fuel": 99,
                    "fidelity": "diverged", "fidelity_difference": "an event", "rows": [],
                },
            ],
        });
        let expected = "\
ledger_sequence  tx_hash  status   fidelity            fuel  rows  error_message
7                aa       success  exact               12    1
8                bb       error    diverged: an event  99    0     out of fuel

deposit: 1 row
_ledger  contract_id  who   amount
7        C1           a\\nb  340282366920938463463374607431768211455

empty: no row
";
        assert_eq!(draw(&answer), expected);
    }

    #[test]
    fn a_trial_without_transactions_says_so() {
        let answer = json!({ "tables": {}, "transactions": [] });
        assert_eq!(draw(&answer), "no stored transaction calls these contracts\n");
    }
}
