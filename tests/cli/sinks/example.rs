//! The files of `examples/postgres`, as far as they work without containers.

use std::path::{Path, PathBuf};
use std::process::Command;

use orrery_testkit::binary::{Ran, orrery_in};
use orrery_testkit::postgres::{Database, is_missing};

use super::{Demo, sink, wait_for_rows_of};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/postgres")
}

fn run_roles(database: &Database<'_>, sink: &str, reader: &str) {
    let server = database.server;
    let output = Command::new("sh")
        .arg(example().join("roles.sh"))
        .envs([("SINK_PASSWORD", sink), ("READER_PASSWORD", reader)])
        .envs([("POSTGRES_USER", "root"), ("POSTGRES_DB", &*database.name)])
        .envs([
            ("PGHOST", server.directory.to_str().unwrap()),
            ("PGPORT", &*server.port.to_string()),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_composition_names_files_and_settings_that_are_there() {
    let text = std::fs::read_to_string(example().join("compose.yaml")).unwrap();
    let composed: serde_json::Value = serde_yaml_ng::from_str(&text).unwrap();
    let services = composed["services"].as_object().unwrap();
    let volumes = composed["volumes"].as_object().unwrap();
    for (name, service) in services {
        for volume in service["volumes"].as_array().unwrap() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            let is_there = volumes.contains_key(source) || example().join(source).exists();
            assert!(is_there, "{name}: {source}");
        }
    }
    // The image's own settings, and the password that compose gives.
    let variables = services["orrery"]["environment"].as_object().unwrap();
    assert_eq!(variables.keys().collect::<Vec<_>>(), ["ORRERY_SINKS_MAIN_PASSWORD"]);
    let directory = tempfile::tempdir().unwrap();
    let mut command = orrery_in(directory.path());
    command.args(["config", "print", "--config"]).arg(example().join("orrery.toml"));
    let printed: Ran =
        command.env("ORRERY_SINKS_MAIN_PASSWORD", "a-secret").output().unwrap().into();
    let printed = printed.succeeded();
    assert!(printed.contains("[sinks.main]") && !printed.contains("a-secret"), "{printed}");
    // The address names the other service.
    let settings = std::fs::read_to_string(example().join("orrery.toml")).unwrap();
    assert!(
        settings.contains("orrery@postgres/") && services.contains_key("postgres"),
        "{settings}"
    );
}

#[test]
fn its_roles_write_and_read_also_what_comes_later() {
    if is_missing() {
        return;
    }
    let server = orrery_testkit::postgres::Server::start(&[]);
    let database = Database::on(&server, &[]);
    run_roles(&database, "it's one", "another");
    let url = format!("postgres://orrery@127.0.0.1:{}/{}", server.port, database.name);
    let demo = Demo::with(&sink(&url, "['market']"));
    wait_for_rows_of(&database, "market.trade");
    let read = server.psql_as("reader", &database.name, "select count(*) from market.trade");
    assert!(read.status.success(), "{read:?}");
    let written = server.psql_as("reader", &database.name, "delete from market.trade");
    assert!(!written.status.success(), "{written:?}");
    // Also after tables were made again.
    demo.sink(&["replace", "main", "--project", "market"]).succeeded();
    let read = server.psql_as("reader", &database.name, "select count(*) from market.trade");
    assert!(read.status.success(), "{read:?}");
}
