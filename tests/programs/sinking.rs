//! A database of PostgreSQL into which a service copies rows, and whether it has what our own SQL answers.

use std::collections::BTreeMap;

use orrery::control::{Client, SINK_CHECK, SINKS};
use orrery::sinks::{SinkProjectReport, SinkProjectRequest, SinkProjectState, SinkReport};
use serde_json::{Map, Value};

use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::postgres::Database;
use orrery_testkit::wait::wait_until;

/// Name of the sink.
const SINK: &str = "main";

/// Starts the service with a sink for all projects.
pub fn start(scene: &Scene, database: &Database<'_>) -> Service {
    start_with(scene, &database.url(), "*", &[])
}

/// As [`start`], with an address, some projects and further settings.
pub fn start_with(scene: &Scene, url: &str, projects: &str, more: &[(&str, &str)]) -> Service {
    let settings = [
        ("ORRERY_SINKS_MAIN_URL", url),
        ("ORRERY_SINKS_MAIN_PROJECTS", projects),
        ("ORRERY_SINKS_MAIN_SETTLE_SECONDS", "1"),
    ];
    Service::start_with(scene.path(), &[&settings[..], more].concat())
}

fn client(scene: &Scene) -> Client {
    Client::connect(scene.path()).unwrap().expect("the service runs")
}

/// What the service says of the sink.
pub fn report(scene: &Scene) -> SinkReport {
    let mut sinks = client(scene).ask(SINKS, &()).unwrap();
    assert_eq!((sinks.len(), &*sinks[0].name), (1, SINK));
    sinks.remove(0)
}

/// What it says of a project.
pub fn project(scene: &Scene, name: &str) -> Option<SinkProjectReport> {
    report(scene).projects.into_iter().find(|it| it.project == name)
}

/// Waits until a project is in a state.
pub fn wait_for(scene: &Scene, name: &str, state: SinkProjectState) -> SinkProjectReport {
    wait_until(&format!("{name} is {}", state.name()), || {
        let found = project(scene, name);
        found.clone().filter(|it| it.state == state).ok_or_else(|| format!("{found:?}"))
    })
}

/// Waits until all rows of a project are there, however often it is filled again meanwhile, and compares them: the
/// service's own digests with the server's, and every name in the schema with what our own SQL answers.
pub fn assert_equal(scene: &Scene, database: &Database<'_>, owner: &Owner, id: u32, name: &str) {
    wait_until(&format!("all rows of {name} are in the database"), || {
        let found = project(scene, name).ok_or("it is not there")?;
        let is_there = found.state == SinkProjectState::Live && found.entries == found.of;
        is_there.then_some(()).ok_or_else(|| format!("{found:?}"))?;
        let request = SinkProjectRequest { sink: SINK.to_owned(), project: name.to_owned() };
        let checked = client(scene).ask(SINK_CHECK, &request).map_err(|it| it.to_string())?;
        if let Some(wrong) = checked.iter().find_map(|it| it.difference.clone()) {
            return Err(wrong);
        }
        let status = owner.get(&format!("{id}/status"));
        if status["rows_in_tables"] != true {
            return Err(status.to_string());
        }
        compare(database, owner, name)
    });
}

/// Compares every table and view in the schema of a project with what our own SQL has under its name.
fn compare(database: &Database<'_>, owner: &Owner, project: &str) -> Result<(), String> {
    let listed = database.sql(&format!(
        "select object_name from orrery.objects where schema_name = '{project}' and kind in ('table', 'view') order by 1"
    ));
    let names: Vec<&str> = listed.lines().collect();
    for name in &names {
        let sql = format!("select * from \"{project}\".\"{name}\"");
        let own = match owner.try_query(&sql) {
            Ok(rows) => rows,
            Err(refused) => return Err(format!("{sql}: {refused:?}")),
        };
        let ours = sorted(own.iter().map(normal));
        let theirs = sorted(rows(database, project, name).iter().map(normal));
        if ours != theirs {
            let lacks: Vec<_> = ours.iter().filter(|it| !theirs.contains(it)).take(2).collect();
            let has: Vec<_> = theirs.iter().filter(|it| !ours.contains(it)).take(2).collect();
            return Err(format!("{name} lacks {lacks:?} and has {has:?}"));
        }
    }
    let sql = format!(
        "select distinct table_name from information_schema.columns where table_schema = '{project}'"
    );
    let shown = owner.query(&sql);
    let mut shown = shown.iter().filter_map(|it| it["table_name"].as_str());
    let lacking = shown.find(|it| !names.contains(it));
    lacking.map_or(Ok(()), |it| Err(format!("{it} is not in the database, which has {names:?}")))
}

/// The rows of a table or view as JSON, without their keys.
pub fn rows(database: &Database<'_>, project: &str, table: &str) -> Vec<Value> {
    // Numbers are read as texts: readers of JSON round them.
    let columns = database.sql(&format!(
        "select string_agg(case when format_type(atttypid, null) like 'numeric%[]' then format('%1$I::text[] as %1$I', \
         attname) when atttypid = 'numeric'::regtype then format('%1$I::text as %1$I', attname) else format('%I', \
         attname) end, ', ' order by attnum) from pg_attribute where attrelid = '\"{project}\".\"{table}\"'::regclass and \
         attnum > 0 and not attisdropped and attname <> '_row'"
    ));
    let json = database.sql(&format!(
        "select coalesce(json_agg(to_jsonb(t)), '[]') from (select {columns} from \"{project}\".\"{table}\") as t"
    ));
    serde_json::from_str(&json).unwrap()
}

fn sorted(rows: impl Iterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = rows.collect();
    rows.sort_unstable();
    rows
}

/// A row as text that does not depend on who wrote it: numbers as their digits, times to the second, bytes as digits.
fn normal(row: &Value) -> String {
    let members = row.as_object().unwrap().iter();
    let members = members.map(|(name, value)| {
        let value = match value {
            Value::String(text) if name.ends_with("closed_at") => {
                let digits = text.chars().filter(char::is_ascii_digit).take(14).collect();
                Value::String(digits)
            }
            value => plain(value),
        };
        (name.clone(), value)
    });
    let members: BTreeMap<String, Value> = members.collect();
    serde_json::to_string(&members).unwrap()
}

fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        // PostgreSQL's form of bytes.
        Value::String(text) if text.starts_with("\\x") => Value::String(text[2..].to_owned()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), plain(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
