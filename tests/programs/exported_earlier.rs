//! Exports that earlier versions have written are continued: their tables become Iceberg's, and no file is written
//! anew for it.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use orrery::domain::ContractId;
use orrery::export::{DataFile, ExportedTable};
use orrery::iceberg::{Columns, KnownColumn};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::ScVal;

use crate::exported::{Lake, assert_ids, assert_same, export, manifest};
use crate::network::{Chain, built};
use crate::network_growth::silent;
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::exported::{assert_no_strays, views};
use orrery_testkit::lake_tables::LakeTable;
use orrery_testkit::values::{fields, list, symbol};

/// Removes what a version before Iceberg did not record of a file.
fn forget(file: &mut DataFile) {
    (file.bounds, file.sorted, file.digest, file.place) = (None, false, None, None);
}

/// Writes a manifest as a version before Iceberg does, and removes what such a version has none of.
fn write_manifest(of: &Path, mut manifest: Value, format: u32) {
    manifest["format"] = json!(format);
    let tables = manifest["programs"].as_array_mut().into_iter().flatten();
    let tables = tables.flat_map(|program| program["tables"].as_array_mut().unwrap());
    tables.for_each(|table| drop(table.as_object_mut().unwrap().remove("state").unwrap()));
    fs::write(of.join("manifest.json"), manifest.to_string()).unwrap();
    fs::remove_dir_all(of.join("iceberg")).unwrap();
}

/// Makes an export one of the second version: its files, and the ids of columns, are the same.
fn make_second(of: &Path) {
    let mut manifest = manifest(of);
    let tables = manifest.programs.iter_mut().flat_map(|program| &mut program.tables);
    let tables = tables.map(|table| &mut table.files);
    let chain = [&mut manifest.tables.events, &mut manifest.tables.transactions];
    tables.chain(chain).flatten().for_each(forget);
    let mut earlier = serde_json::to_value(&manifest).unwrap();
    for table in ["events", "transactions"] {
        earlier["chain"][table].as_object_mut().unwrap().remove("state").unwrap();
    }
    write_manifest(of, earlier, 2);
}

/// Makes an export one of the first version: files are below the names of programs and tables, with 128-bit integers
/// as texts, and without ids.
fn make_first(of: &Path) {
    let mut manifest = manifest(of);
    for program in &mut manifest.programs {
        let directory = format!("programs/{}-{}", program.id, program.project);
        program.tables.iter_mut().for_each(|table| make_first_table(of, &directory, table));
    }
    for (table, files) in [
        ("events", &mut manifest.tables.events),
        ("transactions", &mut manifest.tables.transactions),
    ] {
        fs::create_dir(of.join(table)).unwrap();
        for (number, file) in files.iter_mut().enumerate() {
            let (first, last) = (file.first_ledger, file.last_ledger);
            let path = format!("{table}/{first:010}-{last:010}-{number}.parquet");
            fs::rename(of.join(&file.path), of.join(&path)).unwrap();
            file.path = path;
            file.columns = None;
            forget(file);
        }
    }
    let mut earlier = serde_json::to_value(&manifest).unwrap();
    earlier.as_object_mut().unwrap().remove("chain");
    write_manifest(of, earlier, 1);
    ["data", "tables"].iter().for_each(|it| fs::remove_dir_all(of.join(it)).unwrap());
    fs::remove_file(of.join("views.sql")).unwrap();
}

fn make_first_table(of: &Path, directory: &str, table: &mut ExportedTable) {
    let exact: Vec<_> = table.identity.current().filter(|it| it.exact_of.is_some()).collect();
    table.columns.retain(|(name, _)| !exact.iter().any(|it| it.name == *name));
    for (name, kind) in &mut table.columns {
        if exact.iter().any(|it| it.exact_of.as_ref() == Some(name)) {
            *kind = "Utf8".to_owned();
        }
    }
    let directory = format!("{directory}/{}", table.name);
    fs::create_dir_all(of.join(&directory)).unwrap();
    for (number, file) in table.files.iter_mut().enumerate() {
        let bytes = with_texts(&of.join(&file.path), &exact);
        fs::remove_file(of.join(&file.path)).unwrap();
        file.path = format!("{directory}/{number:010}.parquet");
        file.bytes = bytes.len() as u64;
        file.sha256 = hex::encode(Sha256::digest(&bytes));
        file.columns = None;
        forget(file);
        fs::write(of.join(&file.path), bytes).unwrap();
    }
    (table.identity, table.state) = (Columns::default(), Default::default());
}

/// The rows of a file in another one, with the digits of numbers in their place, which `exact` are.
fn with_texts(path: &Path, exact: &[&KnownColumn]) -> Vec<u8> {
    let digits_of = |name: &str| exact.iter().find(|it| it.exact_of.as_deref() == Some(name));
    let is_digits = |name: &str| exact.iter().any(|it| it.name == name);
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap());
    let batches = reader.unwrap().build().unwrap().map(|batch| {
        let batch = batch.unwrap();
        let schema = batch.schema();
        let names = schema.fields().iter().map(|field| field.name());
        let columns = names.filter(|name| !is_digits(name)).map(|name| {
            let own = digits_of(name).map_or(name, |digits| &digits.name);
            (name, Arc::clone(batch.column_by_name(own).unwrap()), true)
        });
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    });
    let batches: Vec<_> = batches.collect();
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder().set_coerce_types(true).build();
    let schema = batches[0].schema();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
    bytes
}

/// A service with a project, and an export of it by hand.
struct World {
    _service: Service,
    scene: Scene,
    owner: Owner,
    chain: Chain,
    contract: ContractId,
    lake: Lake,
    rows: usize,
}

impl World {
    fn new() -> Self {
        let mut chain = Chain::new();
        let contract = chain.create_of(&silent(), Vec::new());
        let scene = Scene::new();
        let service = Service::start(scene.path());
        let owner = scene.owner(&service, "ana");
        let contracts = [contract.to_string()];
        let deploy = json!({ "code": built("raw"), "project_name": "raw", "contracts": contracts });
        owner.post("deploy", &deploy);
        let lake = Lake::directory(scene.path().join("lake"));
        Self { scene, _service: service, owner, chain, contract, lake, rows: 0 }
    }

    fn of(&self) -> &Path {
        &self.lake.directory
    }

    /// Exports, and compares the table with SQL; returns the number of rows that are new.
    fn export(&self) -> Value {
        let new = export(&self.scene, &self.lake, &[])["new_rows"].clone();
        assert_same(&self.owner, self.of(), 1, "t");
        assert_no_strays(self.of());
        new
    }

    /// Adds a row to the table, and exports it.
    fn emit(&mut self, row: ScVal) {
        self.chain.call(self.contract, "emit", vec![symbol("t"), row]);
        self.chain.import_into(&self.scene);
        self.rows += 1;
        self.owner.wait_for_rows("raw_t", self.rows);
        assert_eq!(self.export(), 1);
    }

    fn columns(&self) -> Columns {
        manifest(self.of()).programs[0].tables[0].identity.clone()
    }

    fn table(&self) -> LakeTable {
        LakeTable::read(self.of(), &self.columns().uuid).unwrap()
    }

    fn newest_operation(&self) -> String {
        self.table().snapshots().pop().unwrap().operation
    }

    fn paths(&self) -> Vec<String> {
        manifest(self.of()).files().map(|file| file.path.clone()).collect()
    }

    /// Asserts that the export is continued: its tables are Iceberg's, of the files `earlier`.
    fn assert_continued(&self, earlier: &[String]) {
        assert_eq!(self.export(), 0);
        assert_eq!(self.paths(), earlier);
        let newest = self.table().snapshots().pop().unwrap();
        assert_eq!((newest.rows, &*newest.operation), (2, "append"));
        assert!(newest.files.iter().all(|path| earlier.contains(path)));
        let manifest = manifest(self.of());
        // The contract emits no events, and a table without rows has no snapshot.
        let [events, transactions] = LakeTable::of_chain(self.of(), &manifest);
        assert_eq!(events.unwrap().snapshots(), []);
        let newest = transactions.unwrap().snapshots().pop().unwrap();
        assert!(newest.rows > 0 && newest.files.iter().all(|path| earlier.contains(path)));
    }
}

#[test]
fn an_export_of_the_first_version_is_continued() {
    let mut world = World::new();
    world.emit(fields([("v", ScVal::from(i128::MIN)), ("w", ScVal::U32(1))]));
    world.emit(fields([("v", ScVal::from(5i128)), ("deep", list([ScVal::from(7i128)]))]));
    make_first(world.of());
    // What a killed export of such a version has left.
    let stray = world.of().join("programs/1-raw/t/0000000009.parquet");
    fs::write(&stray, "").unwrap();
    let earlier = world.paths();
    world.assert_continued(&earlier);
    assert!(!stray.exists());
    let views = &views(world.of())["tables/raw/views.sql"];
    let cast =
        "select * replace (try_cast(\"v\" as decimal(38, 0)) as \"v\"), \"v\" as \"v_exact\" from";
    assert!(views.contains(cast), "{views}");
    let properties = &world.table().metadata["properties"];
    assert!(properties["schema.name-mapping.default"].is_string(), "{properties}");
    // New rows get files of their own; the texts of those of before are the digits.
    let before = world.columns();
    let digits = before.fields.iter().find(|field| field.name == "v_exact").unwrap();
    assert_eq!((digits.earlier_name.as_deref(), digits.id), (Some("v"), 6));
    assert!(before.current().all(|field| field.name == "v" || field.id <= 9));
    world.emit(fields([("v", ScVal::from(6i128)), ("x", ScVal::from(i128::MAX))]));
    // Small ones were merged; whoever reads the snapshot of before finds them for a day.
    assert!(earlier.iter().all(|path| world.of().join(path).exists()));
    assert_eq!(world.newest_operation(), "replace");
    assert_ids(world.of());
    assert_eq!(world.columns().fields[..before.fields.len()], before.fields);
    // Once they are written anew, nothing of before is left in the table.
    world.emit(fields([("w", ScVal::from(i128::MIN))]));
    assert_eq!(world.newest_operation(), "overwrite");
    let files = manifest(world.of()).programs[0].tables[0].files.clone();
    assert!(files.iter().all(|file| file.path.starts_with("data/")));
    assert_ids(world.of());
}

#[test]
fn an_export_of_the_second_version_is_continued() {
    let mut world = World::new();
    world.emit(fields([("v", ScVal::from(i128::MIN))]));
    world.emit(fields([("v", ScVal::from(5i128))]));
    make_second(world.of());
    let (earlier, before) = (world.paths(), world.columns());
    world.assert_continued(&earlier);
    assert_eq!(world.columns(), before);
    // Its files have ids.
    let properties = &world.table().metadata["properties"];
    assert!(properties["schema.name-mapping.default"].is_null(), "{properties}");
    world.emit(fields([("v", ScVal::from(6i128)), ("x", ScVal::from(i128::MAX))]));
    assert_eq!(world.newest_operation(), "replace");
    assert!(earlier.iter().all(|path| world.of().join(path).exists()));
    assert_ids(world.of());
    let files = manifest(world.of()).programs[0].tables[0].files.clone();
    assert!(files.iter().any(|file| file.sorted && file.bounds.is_some()));
}
