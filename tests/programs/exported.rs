//! Tables of programs in an export: the files hold what SQL returns, each row once, whatever tables
//! grew, and whatever was deleted or killed meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery::export::Manifest;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built, call};
use crate::network_growth::silent;
use crate::service::{Owner, Recorded, Scene, assert_rows};
use orrery_testkit::binary::{Service, orrery};
use orrery_testkit::exported::{self, assert_no_strays, rows_of_program};
use orrery_testkit::provider::Reply;
use orrery_testkit::s3::{BUCKET, KEY_ID, Rights, S3Server, SECRET};
use orrery_testkit::size;
use orrery_testkit::values::{bytes, fields, list, map, string, symbol};

/// Destination of an export, and the directory in which its files appear.
pub(crate) struct Lake {
    into: String,
    pub(crate) directory: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl Lake {
    pub(crate) fn directory(path: PathBuf) -> Self {
        Self { into: path.to_str().unwrap().to_owned(), directory: path, settings: Vec::new() }
    }

    fn bucket(server: &S3Server) -> Self {
        let settings = vec![
            ("ORRERY_EXPORT_S3_ENDPOINT", server.endpoint()),
            ("ORRERY_EXPORT_S3_ACCESS_KEY_ID", KEY_ID.to_owned()),
            ("ORRERY_EXPORT_S3_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ];
        Self { into: format!("s3://{BUCKET}/lake"), directory: server.directory("lake"), settings }
    }
}

/// Exports manually beside the running service; returns the command's JSON output.
pub(crate) fn export(scene: &Scene, lake: &Lake, arguments: &[&str]) -> Value {
    let exported = orrery()
        .envs(lake.settings.iter().map(|(name, value)| (name, value)))
        .args(["export", "--json", "--into", &lake.into, "--data-dir"])
        .arg(scene.path())
        .args(arguments)
        .output()
        .unwrap();
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    serde_json::from_slice(&exported.stdout).unwrap()
}

fn manifest(of: &Path) -> Manifest {
    exported::manifest(of).unwrap()
}

/// Converts rows to sorted texts, with every number converted to text.
fn canonical(rows: &[Value]) -> Vec<String> {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Number(number) => Value::String(number.to_string()),
            Value::Array(values) => values.iter().map(plain).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
            }
            other => other.clone(),
        }
    }
    let mut rows: Vec<_> = rows.iter().map(|row| plain(row).to_string()).collect();
    rows.sort();
    rows
}

/// Rows of a table, as an export holds them and as SQL returns them, with all columns.
pub(crate) fn both(
    owner: &Owner,
    of: &Path,
    program: u32,
    table: &str,
) -> (Vec<String>, Vec<String>) {
    let exported = rows_of_program(of, program, table);
    let ids: BTreeSet<_> = exported.iter().map(|row| row["_service_event_id"].as_str()).collect();
    assert_eq!(ids.len(), exported.len());
    // A file has JSON as text.
    let described = owner.try_query(&format!("describe program_{program}_{table}"));
    let columns = match described {
        Ok(columns) => columns,
        // The table will be there with the next rows.
        Err((status, body)) => return (canonical(&exported), vec![format!("{status} {body}")]),
    };
    let json = columns.iter().filter(|it| it["column_type"] == "JSON");
    let as_text = json.map(|it| {
        let name = it["column_name"].as_str().unwrap().replace('"', "\"\"");
        format!(", \"{name}\"::varchar as \"{name}\"")
    });
    let as_text: String = as_text.collect();
    let sql = format!(
        "select * replace (epoch_us(_ledger_closed_at) as _ledger_closed_at{as_text}) from program_{program}_{table}"
    );
    (canonical(&exported), canonical(&owner.query(&sql)))
}

/// Asserts that the export of a table holds what SQL returns.
fn assert_same(owner: &Owner, of: &Path, program: u32, table: &str) {
    let (exported, sql) = both(owner, of, program, table);
    assert_eq!(exported, sql, "{program} {table}");
}

/// Returns the type of a column of program 1, as the manifest names it.
fn kind(of: &Path, table: &str, column: &str) -> String {
    let manifest = manifest(of);
    let table = manifest.programs[0].tables.iter().find(|it| it.name == table).unwrap();
    table.columns.iter().find(|(name, _)| name == column).unwrap().1.clone()
}

#[test]
fn program_tables_are_exported_with_every_row_once() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &recorded.deploy("vault"));
    scene.import(&recorded.ledgers());
    assert_rows(&ana, &recorded, 1);
    let lake = Lake::directory(scene.path().join("lake"));
    let summary = export(&scene, &lake, &[]);
    assert_eq!(summary["new_rows"], 54, "{summary}");
    let tables = ["balance_changed", "batch_done"];
    tables.iter().for_each(|table| assert_same(&ana, &lake.directory, 1, table));
    let before = manifest(&lake.directory);
    let program = &before.programs[0];
    assert_eq!((program.owner.as_str(), program.project.as_str()), ("ana", "vault"));
    assert_eq!(kind(&lake.directory, "balance_changed", "amount"), "Utf8");
    assert!(kind(&lake.directory, "balance_changed", "_ledger_closed_at").contains("UTC"));
    // Nothing is new, so the second export adds nothing.
    assert_eq!(export(&scene, &lake, &[])["new_rows"], 0);
    assert_eq!(manifest(&lake.directory), before);

    // The export keeps the tables of a deleted program; the program that is deployed again gets a
    // number of its own.
    ana.ask("DELETE", "1", None);
    ana.post("deploy", &recorded.deploy("vault"));
    ana.post("2/backfill", &json!({ "from": 1, "to": 1_000_000 }));
    assert_rows(&ana, &recorded, 2);
    assert_eq!(export(&scene, &lake, &[])["new_rows"], 54);
    let after = manifest(&lake.directory);
    assert!(after.programs[0].deleted && !after.programs[1].deleted);
    assert_eq!(after.programs[0].tables, before.programs[0].tables);
    tables.iter().for_each(|table| assert_same(&ana, &lake.directory, 2, table));
    assert_no_strays(&lake.directory);
    // Without programs on request, and whenever only some ledgers are exported.
    let first = after.ledgers.ranges()[0].first.to_string();
    for (arguments, into) in [(&["--no-programs"][..], "none"), (&["--from", &first], "some")] {
        let lake = Lake::directory(scene.path().join(into));
        assert_eq!(export(&scene, &lake, arguments)["new_rows"], 0);
        assert_eq!(manifest(&lake.directory).programs, []);
    }
}

#[test]
fn exported_files_follow_growing_tables() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let contracts = [contract.to_string()];
    let deploy = json!({ "code": built("raw"), "project_name": "raw", "contracts": contracts });
    owner.post("deploy", &deploy);
    let server = S3Server::start(Rights::Closed);
    let lakes = [Lake::directory(scene.path().join("lake")), Lake::bucket(&server)];
    let mut rows = 0;
    let mut emit = |row: ScVal, files: &[&str], kind_of_v: &str| {
        chain.call(contract, "emit", vec![symbol("t"), row]);
        chain.import_into(&scene);
        rows += 1;
        owner.wait_for_rows("raw_t", rows);
        for lake in &lakes {
            assert_eq!(export(&scene, lake, &[])["new_rows"], 1);
            assert_same(&owner, &lake.directory, 1, "t");
            assert_no_strays(&lake.directory);
            assert_eq!(kind(&lake.directory, "t", "v"), kind_of_v);
            let exported = &manifest(&lake.directory).programs[0].tables[0].files;
            let names = exported.iter().map(|file| file.path.rsplit('/').next().unwrap());
            let numbers: Vec<_> = names.map(|name| name[..10].trim_start_matches('0')).collect();
            assert_eq!(numbers, files, "{}", lake.into);
        }
    };
    let v = |value: ScVal| fields([("v", value)]);
    emit(v(ScVal::U32(7)), &[""], "Int64");
    // A wider integer or a new column leaves existing files unchanged.
    emit(v(ScVal::I64(i64::MIN)), &["", "1"], "Int64");
    let both = fields([("v", ScVal::U32(1)), ("w", ScVal::U64(u64::MAX))]);
    emit(both, &["", "1", "2"], "Int64");
    // A value that does not fit into 64 bits changes the column to text, so all earlier files are
    // replaced.
    emit(v(ScVal::from(i128::MIN)), &["3"], "Utf8");
    emit(v(ScVal::U32(2)), &["3", "4"], "Utf8");
    // The type of a column that had only nulls was unknown, so its first value replaces all files.
    emit(fields([("n", ScVal::Void)]), &["3", "4", "5"], "Utf8");
    let numbers = list([ScVal::U32(1), ScVal::U32(2)]);
    emit(fields([("n", numbers.clone())]), &["6"], "Utf8");
    // A failed write leaves the manifest unchanged, and no stray objects.
    let before = manifest(&lakes[1].directory);
    chain.call(contract, "emit", vec![symbol("t"), fields([("n", numbers)])]);
    chain.import_into(&scene);
    owner.wait_for_rows("raw_t", 8);
    server.set_fault(|request, honest| {
        let is_of_program = request.target.contains("programs");
        match request.method.as_str() {
            "PUT" if is_of_program => Reply::status(403),
            _ => honest(),
        }
    });
    let failed = orrery()
        .envs(lakes[1].settings.iter().map(|(name, value)| (name, value)))
        .args(["export", "--into", &lakes[1].into, "--data-dir"])
        .arg(scene.path())
        .output();
    assert!(!failed.unwrap().status.success());
    assert_eq!(manifest(&lakes[1].directory).programs, before.programs);
    server.clear_fault();

    // The other types that a column can have.
    let all = fields([
        ("bool", ScVal::Bool(true)),
        ("bytes", bytes(&[0, 255])),
        ("deep", list([list([ScVal::U64(1)]), list([])])),
        ("map", map([(string("a"), ScVal::U32(1)), (string("b"), ScVal::I32(-1))])),
        ("mixed", list([ScVal::U32(1), string("b")])),
    ]);
    chain.call(contract, "emit", vec![symbol("all"), all]);
    chain.import_into(&scene);
    owner.wait_for_rows("raw_all", 1);
    for lake in &lakes {
        assert_eq!(export(&scene, lake, &[])["new_rows"], 2);
        let [row] = rows_of_program(&lake.directory, 1, "all").try_into().unwrap();
        let expected = [
            ("bool", json!(true)),
            ("bytes", json!("00ff")),
            ("deep", json!([["1"], []])),
            ("map", json!([["a", 1], ["b", -1]])),
            ("mixed", json!("{\"vec\":[{\"u32\":1},{\"string\":\"b\"}]}")),
        ];
        expected.into_iter().for_each(|(name, value)| assert_eq!(row[name], value, "{name}"));
        assert_same(&owner, &lake.directory, 1, "t");
        assert_no_strays(&lake.directory);
    }
}

/// Small: 5 kills; full: 50.
#[test]
fn rows_are_exported_once_through_kills() {
    let kills = size::choose(5, 50);
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let by_hand = Lake::directory(scene.path().join("lake"));
    let lake = by_hand.directory.as_path();
    let settings = [("ORRERY_EXPORT_TO", &*by_hand.into), ("ORRERY_EXPORT_LEDGERS_PER_FILE", "2")];
    let start = || Service::start_with(scene.path(), &settings);
    let mut service = start();
    let contracts = [contract.to_string()];
    let deploy = json!({ "code": built("raw"), "project_name": "raw", "contracts": contracts });
    scene.owner(&service, "ana").post("deploy", &deploy);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut emitted = 0;
    for kill in 0..kills {
        let mut calls = Vec::new();
        for _ in 0..rng.random_range(1..6) {
            // Occasionally, a value needs a wider type than the column has in the export.
            let row = match rng.random_bool(0.1) {
                true => fields([("v", ScVal::from(i128::MAX))]),
                false => fields([("v", ScVal::U64(emitted)), ("kill", ScVal::U64(kill))]),
            };
            let target = symbol(["t", "u"][kill as usize % 2]);
            calls.push(call(contract, "emit", vec![target, row]));
            emitted += 1;
        }
        chain.close(&calls);
        chain.import_into(&scene);
        // The process is killed at a random moment; there is no condition to wait for.
        std::thread::sleep(Duration::from_millis(rng.random_range(0..1500)));
        drop(service);
        if lake.join("manifest.json").exists() {
            for table in ["t", "u"] {
                let rows = rows_of_program(lake, 1, table);
                let ids: BTreeSet<_> =
                    rows.iter().map(|row| row["_service_event_id"].as_str()).collect();
                assert_eq!(ids.len(), rows.len(), "{table}");
            }
        }
        service = start();
    }
    let owner = scene.owner(&service, "ana");
    let count = |owner: &Owner| -> u64 {
        let sql = "select (select count(*) from raw_t) + (select count(*) from raw_u) n";
        owner.query(sql)[0]["n"].as_u64().unwrap()
    };
    owner.wait("all rows are there", |owner| count(owner) == emitted);
    // The service exports rows along with the ledgers that follow them; a manual export adds the
    // rest.
    (0..4).for_each(|_| drop(chain.close(&[])));
    chain.import_into(&scene);
    owner.wait("rows go with the ledgers", |_| !manifest(lake).programs.is_empty());
    drop(service);
    export(&scene, &by_hand, &[]);
    let service = start();
    let owner = scene.owner(&service, "ana");
    ["t", "u"].iter().for_each(|table| assert_same(&owner, lake, 1, table));
    assert_no_strays(lake);
}
