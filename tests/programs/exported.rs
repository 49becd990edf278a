//! Tables of programs in an export: the files hold what SQL returns, each row once, whatever tables
//! grew, and whatever was deleted or killed meanwhile.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery::domain::ContractId;
use orrery::export::{ExportedTable, Manifest};
use orrery::iceberg::Operation;
use orrery::sandbox::network::Request;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
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

pub(crate) fn manifest(of: &Path) -> Manifest {
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
pub(crate) fn assert_same(owner: &Owner, of: &Path, program: u32, table: &str) {
    let (exported, sql) = both(owner, of, program, table);
    assert_eq!(exported, sql, "{program} {table}");
}

/// Returns the type of a column of program 1, as the manifest names it.
fn kind(of: &Path, table: &str, column: &str) -> String {
    let manifest = manifest(of);
    let table = manifest.programs[0].tables.iter().find(|it| it.name == table).unwrap();
    table.columns.iter().find(|(name, _)| name == column).unwrap().1.clone()
}

/// What becomes of a table's files.
#[derive(Clone, Copy)]
enum Files {
    /// One is added, and small ones are merged.
    Added,
    /// One has the rows of all.
    Replaced,
}

/// Asserts that the columns of all files written by this version have the ids that the manifest gives
/// them, and that none has two.
pub(crate) fn assert_ids(of: &Path) {
    let manifest = manifest(of);
    let chain = &manifest.chain;
    let tables = manifest.programs.iter().flat_map(|program| &program.tables);
    let tables = tables.map(|table| (&table.identity, &table.files));
    let tables = tables.chain([
        (&chain.events.identity, &manifest.tables.events),
        (&chain.transactions.identity, &manifest.tables.transactions),
    ]);
    let mut uuids = BTreeSet::new();
    for (identity, files) in tables {
        assert!(uuids.insert(&identity.uuid), "{}", identity.uuid);
        let given: BTreeSet<u32> = identity.fields.iter().map(|field| field.id).collect();
        assert_eq!(given.len(), identity.fields.len());
        assert!(given.iter().all(|id| *id <= identity.last_column_id));
        for file in files.iter().filter(|file| file.columns.is_some()) {
            let opened = File::open(of.join(&file.path)).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(opened).unwrap();
            let fields = reader.schema().fields();
            assert_eq!(Some(fields.len() as u32), file.columns);
            for field in fields {
                let id = &field.metadata()["PARQUET:field_id"];
                let known = identity.fields.iter().find(|known| known.id.to_string() == *id);
                let known = known.unwrap();
                assert_eq!((&known.name, known.dropped), (field.name(), false));
            }
        }
    }
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
    assert_eq!(kind(&lake.directory, "balance_changed", "amount"), "Decimal128(38, 0)");
    assert_eq!(kind(&lake.directory, "balance_changed", "amount_exact"), "Utf8");
    assert_ids(&lake.directory);
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

/// A project whose tables grow, and exports of it to a directory and to a bucket after each row.
struct Growing {
    _service: Service,
    scene: Scene,
    chain: Chain,
    contract: ContractId,
    owner: Owner,
    server: S3Server,
    lakes: [Lake; 2],
    /// Rows of the table `t`.
    rows: usize,
    /// Its files in each of the two after the row before.
    before: [Vec<String>; 2],
}

impl Growing {
    fn new() -> Self {
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
        let before = Default::default();
        Self { chain, contract, scene, _service: service, owner, server, lakes, rows: 0, before }
    }

    /// Adds a row to the table `t`.
    fn call(&mut self, row: ScVal) {
        self.chain.call(self.contract, "emit", vec![symbol("t"), row]);
        self.chain.import_into(&self.scene);
        self.rows += 1;
        self.owner.wait_for_rows("raw_t", self.rows);
    }

    /// Adds a row to the table `t`, exports it, and asserts what becomes of the table's files, and of the type of `v`.
    fn emit(&mut self, row: ScVal, file: Files, kind_of_v: &str) {
        self.call(row);
        for lake in &self.lakes {
            assert_eq!(export(&self.scene, lake, &[])["new_rows"], 1);
            assert_same(&self.owner, &lake.directory, 1, "t");
            assert_no_strays(&lake.directory);
            assert_ids(&lake.directory);
            assert_eq!(kind(&lake.directory, "t", "v"), kind_of_v);
        }
        let now = self.lakes.each_ref().map(|lake| table(lake, "t"));
        for (now, before) in now.iter().zip(&self.before) {
            self.assert_files(now, before, file);
        }
        self.before = now.map(|table| table.files.into_iter().map(|file| file.path).collect());
    }

    fn assert_files(&self, now: &ExportedTable, before: &[String], file: Files) {
        let files: Vec<_> = now.files.iter().map(|file| file.path.clone()).collect();
        let operations: Vec<_> = now.state.snapshots.iter().map(|it| it.operation).collect();
        let newest = now.state.newest().unwrap();
        assert!(files.len() <= 2, "{files:?}");
        match file {
            Files::Added if before.len() < 2 => {
                assert_eq!(files[..files.len() - 1], *before);
                assert_eq!(newest.operation, Operation::Append);
            }
            Files::Added => {
                assert!(operations.ends_with(&[Operation::Append, Operation::Replace]))
            }
            Files::Replaced => {
                assert!(files.len() == 1 && !before.contains(&files[0]));
                // All rows change at once.
                assert_eq!(newest.operation, Operation::Overwrite);
                assert_eq!((newest.total.rows, newest.total.files), (self.rows as u64, 1));
            }
        }
    }

    /// A failed write leaves the manifest unchanged, and no stray objects.
    fn assert_failed_write_changes_nothing(&mut self) {
        let before = manifest(&self.lakes[1].directory);
        let numbers = list([ScVal::U32(1), ScVal::U32(2)]);
        self.call(fields([("n", numbers)]));
        self.server.set_fault(|request, honest| {
            let is_of_program = request.target.contains("programs");
            match request.method.as_str() {
                "PUT" if is_of_program => Reply::status(403),
                _ => honest(),
            }
        });
        let failed = orrery()
            .envs(self.lakes[1].settings.iter().map(|(name, value)| (name, value)))
            .args(["export", "--into", &self.lakes[1].into, "--data-dir"])
            .arg(self.scene.path())
            .output();
        assert!(!failed.unwrap().status.success());
        assert_eq!(manifest(&self.lakes[1].directory).programs, before.programs);
        self.server.clear_fault();
    }

    /// The other types that a column can have.
    fn emit_all_types(&mut self) {
        let all = fields([
            ("bool", ScVal::Bool(true)),
            ("bytes", bytes(&[0, 255])),
            ("deep", list([list([ScVal::U64(1)]), list([])])),
            ("map", map([(string("a"), ScVal::U32(1)), (string("b"), ScVal::I32(-1))])),
            ("mixed", list([ScVal::U32(1), string("b")])),
        ]);
        self.chain.call(self.contract, "emit", vec![symbol("all"), all]);
        self.chain.import_into(&self.scene);
        self.owner.wait_for_rows("raw_all", 1);
        for lake in &self.lakes {
            // With the row whose write has failed.
            assert_eq!(export(&self.scene, lake, &[])["new_rows"], 2);
            let [row] = rows_of_program(&lake.directory, 1, "all").try_into().unwrap();
            let expected = [
                ("bool", json!(true)),
                ("bytes", json!("00ff")),
                ("deep", json!([["1"], []])),
                ("map", json!([["a", 1], ["b", -1]])),
                ("mixed", json!("{\"vec\":[{\"u32\":1},{\"string\":\"b\"}]}")),
            ];
            expected.into_iter().for_each(|(name, value)| assert_eq!(row[name], value, "{name}"));
            assert_same(&self.owner, &lake.directory, 1, "t");
            assert_no_strays(&lake.directory);
        }
    }

    /// When rows are written anew, a table whose rows have not changed keeps its files and its snapshot.
    fn assert_other_table_stays(&mut self) {
        let before = self.lakes.each_ref().map(|lake| table(lake, "all"));
        for z in [ScVal::Void, ScVal::U32(1)] {
            self.call(fields([("z", z)]));
            self.lakes.iter().for_each(|lake| drop(export(&self.scene, lake, &[])));
        }
        for (lake, before) in self.lakes.iter().zip(before) {
            let operation = table(lake, "t").state.newest().unwrap().operation;
            assert_eq!(operation, Operation::Overwrite, "{}", lake.into);
            let after = table(lake, "all");
            assert_eq!((after.files, after.state.newest()), (before.files, before.state.newest()));
            assert_same(&self.owner, &lake.directory, 1, "t");
            assert_no_strays(&lake.directory);
        }
    }
}

/// A table of program 1, as the manifest has it.
fn table(lake: &Lake, name: &str) -> ExportedTable {
    let tables = manifest(&lake.directory).programs[0].tables.clone();
    tables.into_iter().find(|it| it.name == name).unwrap()
}

#[test]
fn exported_files_follow_growing_tables() {
    let mut growing = Growing::new();
    let v = |value: ScVal| fields([("v", value)]);
    let (added, replaced, decimal) = (Files::Added, Files::Replaced, "Decimal128(38, 0)");
    growing.emit(v(ScVal::U32(7)), added, "Int64");
    // A wider integer or a new column leaves existing files unchanged.
    growing.emit(v(ScVal::I64(i64::MIN)), added, "Int64");
    let both = fields([("v", ScVal::U32(1)), ("w", ScVal::U64(u64::MAX))]);
    growing.emit(both, added, "Int64");
    // A value that does not fit into 64 bits changes the column to decimals, so all earlier files are
    // replaced.
    growing.emit(v(ScVal::from(i128::MIN)), replaced, decimal);
    growing.emit(v(ScVal::U32(2)), added, decimal);
    // The type of a column that had only nulls was unknown, so its first value replaces all files.
    growing.emit(fields([("n", ScVal::Void)]), added, decimal);
    let numbers = list([ScVal::U32(1), ScVal::U32(2)]);
    growing.emit(fields([("n", numbers)]), replaced, decimal);
    // A column of decimals that gets digits: those of earlier rows are missing in the files.
    growing.emit(fields([("w", ScVal::from(i128::MAX))]), replaced, decimal);
    growing.assert_failed_write_changes_nothing();
    growing.emit_all_types();
    growing.assert_other_table_stays();
}

/// Calls that emit rows, to one table after each second kill and to another one after the others.
fn some_calls(
    rng: &mut ChaCha8Rng,
    contract: ContractId,
    kill: u64,
    emitted: &mut u64,
) -> Vec<Request> {
    let mut calls = Vec::new();
    for _ in 0..rng.random_range(1..6) {
        // Occasionally, a value needs a wider type than the column has in the export.
        let row = match rng.random_bool(0.1) {
            true => fields([("v", ScVal::from(i128::MAX))]),
            false => fields([("v", ScVal::U64(*emitted)), ("kill", ScVal::U64(kill))]),
        };
        let target = symbol(["t", "u"][kill as usize % 2]);
        calls.push(call(contract, "emit", vec![target, row]));
        *emitted += 1;
    }
    calls
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
        let calls = some_calls(&mut rng, contract, kill, &mut emitted);
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
