//! `orrery list`: an owner's programs, those that fail before the others.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::{Value, json};

use super::remote::{Remote, draws_tables};
use super::{Failure, grid, output};

const COLUMNS: [&str; 8] =
    ["id", "project_name", "state", "errors", "behind", "public", "contracts", "cause"];

#[derive(Debug, Args)]
pub struct List {
    /// Print only the IDs of their contracts, each once, one a line
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    contracts: bool,
    /// Print only the names of their projects, one a line; the id of one that has no name yet
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        let answer = remote.get("retroshade/list")?;
        if !self.contracts && !self.quiet && !draws_tables(self.json) {
            return answer.print();
        }
        let listed = answer.json()?;
        let programs = listed.as_array().into_iter().flatten();
        if self.contracts {
            return output::print_each(contracts(&listed));
        }
        if self.quiet {
            return output::print_each(programs.map(name));
        }
        let with_status = programs.map(|program| {
            let status = remote.get(&format!("retroshade/{}/status", program["id"]));
            let unknown = |failure: Failure| {
                json!({ "last_error_message": format!("its status is not known: {failure}") })
            };
            (program, status.and_then(|status| status.json()).unwrap_or_else(unknown))
        });
        output::print(&draw(with_status.collect()))
    }
}

/// Returns the contracts of programs, each once, in the order of the programs.
fn contracts(listed: &Value) -> Vec<&str> {
    let programs = listed.as_array().into_iter().flatten();
    let all = programs.filter_map(|program| program["contracts"].as_array()).flatten();
    let mut known = BTreeSet::new();
    all.filter_map(Value::as_str).filter(|contract| known.insert(*contract)).collect()
}

/// Returns how commands name the program.
fn name(program: &Value) -> String {
    match program["project_name"].as_str() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => program["id"].to_string(),
    }
}

/// Formats programs with their statuses as a table.
fn draw(mut programs: Vec<(&Value, Value)>) -> String {
    programs
        .sort_by_key(|(program, status)| (!is_failing(program, status), program["id"].as_u64()));
    let row = |(program, status): &(&Value, Value)| -> Vec<String> {
        COLUMNS
            .map(|column| match column {
                "state" => state(program),
                "errors" => errors(status),
                "behind" => grid::cell(&status["lag_ledgers"]),
                "cause" => grid::cell(cause(program, status)),
                column => grid::cell(&program[column]),
            })
            .into()
    };
    let rows: Vec<_> = programs.iter().map(row).collect();
    grid::list(&COLUMNS, &rows)
}

fn is_failing(program: &Value, status: &Value) -> bool {
    let has_errors = status["total_errors"].as_u64().is_some_and(|errors| errors > 0);
    has_errors || !cause(program, status).is_null()
}

fn state(program: &Value) -> String {
    match (program["replaces"].as_str(), program["running"] == true) {
        _ if program["stopped_because"].is_string() => "stopped".to_owned(),
        (_, false) => "paused".to_owned(),
        (Some(replaced), true) => format!("replaces {}", grid::cell(&replaced.into())),
        (None, true) => "running".to_owned(),
    }
}

/// Returns how many of the newest runs failed.
fn errors(status: &Value) -> String {
    match (status["total_errors"].as_u64(), status["total_executions"].as_u64()) {
        (Some(0), _) => "0".to_owned(),
        (Some(errors), Some(runs)) => format!("{errors} of {runs}"),
        _ => String::new(),
    }
}

/// Returns why the program does not do what it should; null if nothing is known against it.
fn cause<'a>(program: &'a Value, status: &'a Value) -> &'a Value {
    let causes =
        [&program["stopped_because"], &status["replacement_failed"], &status["last_error_message"]];
    causes.into_iter().find(|it| it.is_string()).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_fail_come_first_with_the_reason() {
        let program = |id: u32, name: &str, running: bool| {
            json!({
                "id": id, "project_name": name, "running": running, "public": false,
                "contracts": ["C"],
            })
        };
        let status = |errors: u32, lag: u32, message: Option<&str>| {
            json!({
                "total_executions": 22, "total_errors": errors, "lag_ledgers": lag,
                "last_error_message": message,
            })
        };
        let [well, bad, paused] =
            [program(1, "well", true), program(2, "bad", true), program(3, "paused", false)];
        let mut stopped = program(4, "stopped", false);
        stopped["stopped_because"] = "100 runs in a row failed".into();
        let mut next = program(5, "", true);
        next["replaces"] = "well".into();
        let text = draw(vec![
            (&well, status(0, 0, None)),
            (&bad, status(22, 7, Some("no such function"))),
            (&paused, status(0, 90, None)),
            (&stopped, status(3, 9, Some("other"))),
            (&next, Value::Null),
        ]);
        let expected = "\
id  project_name  state          errors    behind  public  contracts  cause
2   bad           running        22 of 22  7       false   C          no such function
4   stopped       stopped        3 of 22   9       false   C          100 runs in a row failed
1   well          running        0         0       false   C
3   paused        paused         0         90      false   C
5                 replaces well                    false   C
";
        assert_eq!(text, expected);
        assert_eq!([&well, &next].map(name), ["well", "5"]);
        let listed = json!([{ "contracts": ["CB", "CA"] }, { "contracts": ["CA", "CC"] }]);
        assert_eq!(contracts(&listed), ["CB", "CA", "CC"]);
        assert!(draw(Vec::new()).ends_with("cause\nno rows\n"));
    }
}
