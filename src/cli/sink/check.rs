//! `orrery sink check`: whether the tables have what was written into them.

use clap::Args;
use orrery::config::Settings;
use orrery::control::{ControlError, SINK_CHECK};
use orrery::sinks::{SinkCheckedTable, SinkProjectRequest};

use super::{projects, service, sink};
use crate::cli::{Failure, grid, output};

const COLUMNS: [&str; 4] = ["table", "rows", "expected", "difference"];

/// Compare the tables with what was written into them
///
/// The server counts the rows and computes a digest of them, which takes as long as it needs to read them all; no row
/// leaves it. Exits with code 1 when a table differs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery sink check main --data-dir d
  orrery sink check main --project xlm --project pools --data-dir d")]
pub struct Check {
    /// Name of the sink
    name: String,
    /// Check this project alone; may be repeated
    #[arg(long = "project", value_name = "NAME")]
    projects: Vec<String>,
    #[command(flatten)]
    output: output::Json,
}

impl Check {
    pub fn run(self, settings: &Settings) -> Result<(), Failure> {
        let mut client = service(settings)?;
        let sink = sink(&mut client, &self.name)?;
        let bar = output::progress_bar(None, "{spinner} checking {msg}");
        let mut checked: Vec<SinkCheckedTable> = Vec::new();
        let mut refused = Vec::new();
        for project in projects(&sink, &self.projects)? {
            bar.set_message(project.clone());
            let request = SinkProjectRequest { sink: self.name.clone(), project };
            match client.ask(SINK_CHECK, &request) {
                Ok(tables) => checked.extend(tables),
                // The others are checked all the same.
                Err(ControlError::Refused(sentence)) => refused.push(sentence),
                Err(error) => return Err(error.into()),
            }
        }
        bar.finish_and_clear();
        if self.output.json || !output::is_terminal() {
            output::print_json(&checked)?;
        } else {
            output::print(&table(&checked))?;
        }
        match found(&checked, &refused) {
            None => Ok(()),
            Some(sentence) => Err(Failure::failed(sentence)),
        }
    }
}

/// Says how many tables differ, and what could not be checked; `None` if all is as it should be.
fn found(checked: &[SinkCheckedTable], refused: &[String]) -> Option<String> {
    let differing = match checked.iter().filter(|table| table.difference.is_some()).count() {
        0 => None,
        1 => Some("1 table differs from what was written".to_owned()),
        differing => Some(format!("{differing} tables differ from what was written")),
    };
    let all: Vec<String> = differing.into_iter().chain(refused.iter().cloned()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn table(checked: &[SinkCheckedTable]) -> String {
    let row = |table: &SinkCheckedTable| {
        vec![
            table.name.clone(),
            table.rows.map(output::count).unwrap_or_default(),
            output::count(table.expected),
            table.difference.clone().unwrap_or_default(),
        ]
    };
    grid::list(&COLUMNS, &checked.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_shown_with_what_differs() {
        let checked = |name: &str, rows, difference: Option<&str>| SinkCheckedTable {
            name: name.to_owned(),
            rows,
            expected: 1_500,
            difference: difference.map(str::to_owned),
        };
        let tables = [
            checked("xlm.transfer", Some(1_500), None),
            checked("xlm.mint", Some(0), Some("xlm.mint has 0 rows, and 1500 were written")),
            checked("xlm.burn", None, Some("xlm.burn is missing")),
        ];
        let expected = "\
table         rows   expected  difference
xlm.transfer  1,500  1,500
xlm.mint      0      1,500     xlm.mint has 0 rows, and 1500 were written
xlm.burn             1,500     xlm.burn is missing
";
        assert_eq!(table(&tables), expected);
        assert!(table(&[]).ends_with("no rows\n"));
        let refused = ["the tables of pools are not filled yet".to_owned()];
        let expected =
            "2 tables differ from what was written; the tables of pools are not filled yet";
        assert_eq!(found(&tables, &refused).as_deref(), Some(expected));
        assert_eq!(found(&tables[..1], &[]), None);
    }
}
