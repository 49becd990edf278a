//! Nothing but their rows becomes readable by the tables of the chain.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use orrery_tables::Protections;
use orrery_tables::chain::ChainFile;
use orrery_tables::query::QueryError;

use super::scene::{Scene, plain_rows};

/// Statements that try to reach files, settings or other databases by way of the tables of the chain.
const HOSTILE: [&str; 73] = [
    "select * from read_parquet('{events}/a.parquet')",
    "select * from read_parquet('{events}/*')",
    "select * from parquet_scan('{events}/a.parquet')",
    "select * from parquet_metadata('{events}/a.parquet')",
    "select * from '{events}/a.parquet'",
    "select * from \"{events}/a.parquet\"",
    "select * from glob('{events}/*')",
    "select * from read_blob('{events}/a.parquet')",
    "select * from read_text('{root}/manifest.json')",
    "select * from read_csv('{root}/data/programs/p.parquet')",
    "select * from chain.events, read_text('{root}/manifest.json')",
    "select * from orrery_chain('events', 'id BIGINT')",
    "select * from retroshade.orrery_chain('events', 'id BIGINT')",
    "select * from system.main.orrery_chain('events', 'id BIGINT')",
    "select orrery_chain('events', 'id BIGINT')",
    "from chain.events, lateral (select * from orrery_chain('events', 'id BIGINT'))",
    "select * from orrery_chain_events()",
    "select * from temp.main.orrery_chain_events()",
    "select * from orrery_plan_events",
    "select * from temp.main.orrery_plan_events",
    "select * from temp.orrery_plan_events",
    "copy chain.events to '{events}/stolen.parquet'",
    "copy (select * from chain.events) to '{root}/stolen.csv'",
    "copy chain.events from '{events}/a.parquet'",
    "insert into chain.events values (1)",
    "delete from chain.events",
    "update chain.events set id = 1",
    "drop view chain.events",
    "create or replace view chain.events as select 1",
    "create table chain.mine as select 1",
    "alter view chain.events rename to x",
    "attach '{events}/a.parquet' as x",
    "attach '{root}/x.duckdb'",
    "install parquet",
    "load parquet",
    "load '{root}/data/programs/p.parquet'",
    "pragma database_list",
    "pragma show_tables_expanded",
    "set enable_external_access = true",
    "set allowed_directories = ['{root}']",
    "select * from duckdb_settings()",
    "select * from duckdb_views()",
    "select * from duckdb_functions()",
    "select sql from duckdb_views",
    "select * from pg_catalog.pg_views",
    "select view_definition from information_schema.views",
    "select current_setting('allowed_directories')",
    "select * from query('select * from chain.events')",
    "select * from chain.programs",
    "from \"chain.events\"",
    "from 'chain.events'",
    "from E'\\x63hain.events'",
    "select * from temp.chain.events",
    "select * from system.chain.events",
    "select * from orrery.chain.events",
    "select * from chain.main.events",
    "select * from chain.orrery_chain('events', 'id BIGINT')",
    "select * from temp.orrery_chain_events()",
    "select * from chain.orrery_chain_events()",
    "select * from chain.events() e",
    "select json_serialize_plan('select * from chain.events')",
    "from json_execute_serialized_sql('{events}')",
    "select getenv('PATH') from chain.events",
    "select getvariable('x') from chain.events",
    "select nextval('chain.events')",
    "select * from query_table('chain.events')",
    "select * from query_table(['chain.events', '{events}/a.parquet'])",
    "select read_blob('{events}/a.parquet') from chain.events",
    "select * from sniff_csv('{events}/a.parquet')",
    "select * from chain.events, lateral read_text(name)",
    "select * from read_parquet('http://127.0.0.1:1/a.parquet')",
    "with chain as (select 1) select * from pragma_table_info('chain.events')",
    "explain select * from read_parquet('{events}/a.parquet')",
];

/// Statements that are answered, whose answers must not say where anything is.
const TELLING: [&str; 26] = [
    "explain select * from chain.events where ledger > 3",
    "explain analyze select count(name) from chain.events",
    "explain (format json) select * from chain.events",
    "explain (analyze, format json) select max(ledger) from chain.events",
    "explain (format graphviz) select * from chain.events order by ledger desc limit 3",
    "describe chain.events",
    "describe select * from chain.events",
    "summarize chain.events",
    "show all tables",
    "show tables",
    "select * from information_schema.tables",
    "select * from information_schema.columns",
    "select typeof(x) from chain.events x limit 1",
    "select x::varchar from chain.events x limit 1",
    "select nope from chain.events",
    "select * from chain.event",
    "explain analyze select * from chain.events a join chain.events b using (ledger) limit 1",
    "explain select name from (select * from chain.events where name > 'x' order by id) limit 1",
    "select cast(name as integer) from chain.events",
    "select error_of from chain.events e where e.nope = 1",
    "select topics[1]::date from chain.events",
    "select id // 0 from chain.events",
    "select 1 / (id - id) from chain.events where id / 0 > 1",
    "select * from chain.events positional join chain.events",
    "describe select x from chain.events x",
    "summarize select id from chain.events",
];

#[test]
fn hostile_statements_reach_no_file_and_learn_no_path() {
    let all = Protections::default();
    for protections in
        [all, Protections { process: false, ..all }, Protections { lock: false, ..all }]
    {
        let scene = Scene::with(protections);
        let (owner, root) =
            (scene.owner("mallory"), scene.export.path().to_str().unwrap().to_owned());
        fs::create_dir_all(scene.export.path().join("data/programs")).unwrap();
        let secret = "canary-5c1d";
        fs::write(scene.export.path().join("manifest.json"), secret).unwrap();
        fs::write(scene.export.path().join("data/programs/p.parquet"), secret).unwrap();
        let file = scene.chain.write("a.parquet", &plain_rows(1, 30), false);
        scene.chain.change(|state| state.files = vec![file]);
        let names = || {
            let mut all: Vec<_> =
                walk(scene.export.path()).into_iter().map(|(name, _)| name).collect();
            all.sort();
            all
        };
        let before = names();
        let events = scene.chain.events();
        let filled =
            |sql: &str| sql.replace("{events}", events.to_str().unwrap()).replace("{root}", &root);
        for sql in HOSTILE {
            let refused = scene.ask(&owner, &filled(sql));
            assert!(matches!(refused, Err(QueryError::Refused(_))), "{sql}: {refused:?}");
            let said = refused.unwrap_err().to_string();
            assert!(!said.contains(secret), "{sql}: {said}");
            // DuckDB may quote the statement.
            assert!(sql.contains('{') || !said.contains(&root), "{sql}: {said}");
        }
        for sql in TELLING {
            let said = scene.text(&owner, sql);
            let has = |part: &str| said.to_lowercase().contains(&part.to_lowercase());
            assert!(!has(&root) && !has(".parquet") && !has("data/events"), "{sql}: {said}");
        }
        assert_eq!(scene.text(&owner, "select count(*) as n from chain.events"), r#"[{"n":30}]"#);
        assert_eq!(names(), before);
    }
}
#[test]
fn links_other_directories_and_damaged_files_are_refused_in_a_sentence() {
    let scene = Scene::new();
    let owner = scene.owner("ana");
    let rows = plain_rows(1, 300);
    let good = scene.chain.write("good.parquet", &rows, false);
    let events = scene.chain.events();
    let programs = scene.export.path().join("data/programs");
    fs::create_dir_all(&programs).unwrap();
    fs::copy(events.join("good.parquet"), programs.join("other.parquet")).unwrap();
    symlink(programs.join("other.parquet"), events.join("link.parquet")).unwrap();
    symlink("/etc/passwd", events.join("passwd.parquet")).unwrap();
    let bytes = fs::read(events.join("good.parquet")).unwrap();
    fs::write(events.join("short.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 3..bytes.len() / 3 + 60].fill(0xff);
    fs::write(events.join("flipped.parquet"), flipped).unwrap();
    let named = |name: &str| ChainFile { name: name.to_owned(), ..good.clone() };
    for name in [
        "link.parquet",
        "passwd.parquet",
        "../programs/other.parquet",
        ".",
        "missing.parquet",
        "short.parquet",
        "flipped.parquet",
    ] {
        scene.chain.change(|state| state.files = vec![named(name)]);
        let refused = scene.ask(&owner, "select * from chain.events");
        let Err(QueryError::Unavailable(said)) = refused else { panic!("{name}: {refused:?}") };
        assert!(said.contains("tell the operator") && !said.contains('/'), "{name}: {said}");
    }
    let fewer = ChainFile { rows: 299, ..good.clone() };
    scene.chain.change(|state| state.files = vec![fewer]);
    let said = scene.text(&owner, "select * from chain.events");
    assert!(said.contains("has other rows than the export says"), "{said}");
    // A file in a directory that the process may not read.
    let elsewhere = ChainFile { directory: programs, ..named("other.parquet") };
    scene.chain.change(|state| state.files = vec![elsewhere]);
    let refused = scene.ask(&owner, "select * from chain.events");
    assert!(matches!(refused, Err(QueryError::Unavailable(_))), "{refused:?}");
    scene.chain.change(|state| state.files = vec![good]);
    assert_eq!(scene.text(&owner, "select count(id) as n from chain.events"), r#"[{"n":300}]"#);
    scene.chain.change(|state| state.unavailable = true);
    let said = scene.text(&owner, "select 1 from chain.events");
    assert_eq!(said, "the export is behind; try again");
    assert_eq!(scene.text(&owner, "select 1 as a"), r#"[{"a":1}]"#);
}
/// Files below a directory with their sizes.
fn walk(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let (path, kind) = entry.map(|it| (it.path(), it.file_type().unwrap())).unwrap();
        match kind.is_dir() {
            true => found.extend(walk(&path)),
            false => found.push((path.clone(), path.symlink_metadata().unwrap().len())),
        }
    }
    found
}
