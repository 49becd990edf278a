//! The verbs for sinks, next to a demo that copies its rows into a real PostgreSQL: `orrery sink …`.

mod changed;
mod example;
mod outside;
mod settings;
mod verbs;

use std::path::Path;

use orrery_testkit::binary::{Ran, Service, configure, orrery_in, run, token};
use orrery_testkit::postgres::Database;
use orrery_testkit::wait::wait_until;
use serde_json::Value;
use tempfile::TempDir;

/// Schemas of the projects that every demo has, and of one that tests make.
const SCHEMAS: [&str; 5] = ["orrery", "market", "demo", "pools", "mine"];
/// Tables of these projects that have rows soon.
const TABLES: [&str; 3] = ["market.trade", "demo.transfer", "pools.swap"];
/// Arguments of a verb that name the data directory.
const HERE: [&str; 2] = ["--data-dir", "d"];

/// A demo with the sink `main`.
struct Demo {
    service: Service,
    directory: TempDir,
}

impl Demo {
    /// Starts a demo whose sink has the rows of all its projects.
    fn sinking_into(url: &str) -> Self {
        Self::with(&sink(url, "['*']"))
    }

    /// Starts a demo with these settings.
    fn with(settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let service = begin(directory.path(), settings);
        Self { service, directory }
    }

    fn at(&self) -> &Path {
        self.directory.path()
    }

    /// Starts it again with these settings.
    fn again_with(self, settings: &str) -> Self {
        let Self { service, directory } = self;
        service.stop();
        let service = begin(directory.path(), settings);
        Self { service, directory }
    }

    /// Runs a verb of sinks.
    fn sink(&self, arguments: &[&str]) -> Ran {
        run(self.at(), &[&["sink"], arguments, &HERE].concat())
    }

    /// Runs a verb for projects, as the demo's owner.
    fn owner(&self, arguments: &[&str]) -> Ran {
        let token = token(&self.at().join("d"), "demo");
        let base = format!("{}/rest", self.service.base);
        let settings = [("ORRERY_BASE", base.as_str()), ("ORRERY_JWT", token.as_str())];
        orrery_in(self.at()).args(arguments).envs(settings).output().unwrap().into()
    }

    /// The first row of an answer in SQL.
    fn sql(&self, query: &str) -> Value {
        self.owner(&["query", "--numbers", "string", query]).json()[0].clone()
    }

    /// The sink as its status says.
    fn status(&self) -> Value {
        self.sink(&["status", "main", "--json"]).json()
    }

    /// A project as the sink's status says; null if there is none.
    fn project(&self, name: &str) -> Value {
        let status = self.status();
        let projects = status["projects"].as_array().unwrap();
        projects.iter().find(|it| it["project"] == name).cloned().unwrap_or_default()
    }

    /// Asserts that the tables have what was written, as a check says that may have to wait until they are filled.
    #[track_caller]
    fn has_what_was_written(&self, arguments: &[&str]) -> Value {
        wait_until("the tables can be checked", || {
            let checked = self.sink(&[&["check"], arguments].concat());
            assert!(!checked.stdout.contains("difference"), "{}", checked.stdout);
            if checked.code == 0 { Ok(checked.json()) } else { Err(checked) }
        })
    }

    /// Waits until a project is as wanted.
    #[track_caller]
    fn wait_for_project(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, || {
            let project = self.project(name);
            if is(&project) { Ok(project) } else { Err(self.status()) }
        })
    }

    /// Waits until all projects of the demo have rows in their tables.
    #[track_caller]
    fn wait_for_rows(&self, database: &Database<'_>) {
        for table in TABLES {
            wait_for_rows_of(database, table);
        }
        for project in ["market", "demo", "pools"] {
            self.wait_for_project(project, "the project is live", |it| it["state"] == "live");
        }
    }

    /// Waits until a table has in the database what our own SQL has, up to a ledger up to which all is there: the same
    /// number of rows, and of different values in these columns.
    #[track_caller]
    fn has_equal_rows(&self, database: &Database<'_>, table: &str, columns: &[&str]) {
        let (project, name) = table.split_once('.').unwrap();
        let column = if name == "events" { "ledger" } else { "_ledger" };
        let cursor = format!("select ledger from orrery.cursor where project = '{project}'");
        let counts: Vec<_> =
            columns.iter().map(|it| format!("count(distinct {it}) as {it}")).collect();
        wait_until(&format!("{table} has the same rows"), || {
            let ledger = database.sql(&cursor);
            let query = format!(
                "select count(*) as number, {} from {table} where {column} <= {ledger}",
                counts.join(", ")
            );
            let (own, there) = (self.sql(&query), database.sql(&query));
            let names = ["number"].iter().chain(columns).map(|name| name.trim_matches('"'));
            let expected: Vec<String> = names.map(|name| text(&own[name])).collect();
            let is_equal = there.split('|').eq(expected.iter().map(String::as_str));
            if is_equal && expected[0] != "0" { Ok(()) } else { Err((ledger, own, there)) }
        });
    }
}

fn begin(at: &Path, settings: &str) -> Service {
    let config = configure(at, settings);
    Service::demo(at, &[&["--close-time", "200"], &config[..]].concat()).0
}

/// Settings of the sink `main`.
fn sink(url: &str, projects: &str) -> String {
    format!("[sinks.main]\nurl = '{url}'\nprojects = {projects}\nsettle_seconds = 1\n")
}

fn text(value: &Value) -> String {
    value.to_string().trim_matches('"').to_owned()
}

#[track_caller]
fn wait_for_rows_of(database: &Database<'_>, table: &str) {
    wait_until(&format!("{table} has rows"), || {
        let rows = database.server.psql(&database.name, &format!("select count(*) from {table}"));
        let text = String::from_utf8(rows.stdout).unwrap();
        text.trim().parse().is_ok_and(|rows: u64| rows > 2)
    });
}

/// What an answer in JSON says of a table.
fn of_table<'a>(checked: &'a Value, name: &str) -> &'a Value {
    let mut tables = checked.as_array().unwrap().iter();
    tables.find(|it| it["name"] == name).unwrap_or_else(|| panic!("no {name}: {checked}"))
}
