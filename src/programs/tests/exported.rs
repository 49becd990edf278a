//! Tests the continuous export of program rows.

use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::row_log;
use orrery_export::{
    AddedNow, AddedRows, Continuous, Destination, Export, ExportScope, ExportedProgram, Interrupt,
    Manifest as ExportManifest,
};
use orrery_sandbox::network::MARKET_PROGRAM;

#[test]
fn rows_without_following_ledgers_are_exported_after_a_delay() {
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(FIRST..=LAST);
    scene.run_until_idle();
    let rows = scene.rows(id).len() as u64;
    assert!(rows > 50);
    let lake = TempDir::new().unwrap();
    // The portion size is too large for any portion of ledgers to become complete.
    let export = |programs| {
        let taken = ExportScope { portion: u32::MAX, programs };
        let (store, place) =
            (Arc::clone(&scene.store), Destination::directory(lake.path().join("x")));
        Continuous::new(store, place, taken, Interrupt::default())
    };
    let (begun, minutes) = (Instant::now(), |count: u64| Duration::from_secs(60 * count));
    let mut without = export(false);
    let mut with = export(true);
    for minute in 0..10 {
        for export in [&mut without, &mut with] {
            let added = export.step(begun + minutes(minute), |_| {}).unwrap();
            assert_eq!(added, AddedNow::default(), "{minute}");
        }
    }
    let added = with.step(begun + minutes(10), |_| {}).unwrap();
    assert_eq!((added.programs.rows, added.ledgers.ledgers), (rows, 0));
    assert_eq!(with.progress().rows, rows);
    for export in [&mut without, &mut with] {
        let added = export.step(begun + minutes(30), |_| {}).unwrap();
        assert_eq!(added, AddedNow::default());
    }
}

/// Returns the entry of the only program in the manifest of the export in this directory.
fn exported(directory: &Path) -> ExportedProgram {
    let text = std::fs::read(directory.join("manifest.json")).unwrap();
    let [program] =
        ExportManifest::parse(&text, "manifest.json").unwrap().programs.try_into().unwrap();
    program
}

fn export(scene: &Scene, directory: &Path) -> AddedRows {
    let place = Destination::directory(directory);
    let mut export = Export::open(&place, &scene.store, Interrupt::default()).unwrap();
    let added = export.add_programs(&scene.store).unwrap();
    export.finish().unwrap();
    added
}

#[test]
fn tables_without_rows_are_exported_too() {
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", MARKET_PROGRAM, market()).unwrap().id;
    let lake = TempDir::new().unwrap();
    let lake = lake.path().join("x");
    assert_eq!(export(&scene, &lake), AddedRows::default());
    let tables = exported(&lake).tables;
    let names: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
    assert!(!names.is_empty());
    let stored = row_log::programs(&scene.store).unwrap();
    let targets = stored[0].manifest.schema.tables().iter().map(|table| table.target.as_str());
    assert_eq!(names, targets.collect::<Vec<_>>());
    let views = std::fs::read_to_string(lake.join("tables/seen/views.sql")).unwrap();
    for table in &tables {
        assert!(table.files.is_empty() && table.columns.len() >= 5, "{table:?}");
        let view = format!("create or replace view \"seen\".\"{}\" as", table.name);
        assert!(views.contains(&view), "{views}");
    }
    // Their identity stays with the first rows.
    scene.add_all(FIRST..=LAST);
    scene.run_until_idle();
    assert_eq!(export(&scene, &lake).rows, scene.rows(id).len() as u64);
    for table in exported(&lake).tables {
        let before = tables.iter().find(|it| it.name == table.name);
        assert!(before.is_none_or(|it| it.identity == table.identity), "{table:?}");
    }
}

#[test]
fn exports_of_older_or_other_stores_are_not_mixed() {
    let middle = FIRST.midpoint(LAST);
    let scene = |ledgers: std::ops::RangeInclusive<u32>| {
        let scene = Scene::new();
        let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
        scene.add_all(ledgers);
        scene.run_until_idle();
        let rows = scene.rows(id).len() as u64;
        (scene, rows)
    };
    let lake = TempDir::new().unwrap();
    let lake = lake.path().join("x");
    let (whole, rows) = scene(FIRST..=LAST);
    assert_eq!(export(&whole, &lake).rows, rows);
    let before = exported(&lake);
    assert_eq!((before.runs, before.rows()), (rows, rows));

    // A store restored from an older checkpoint.
    let (older, fewer) = scene(FIRST..=middle);
    assert!(0 < fewer && fewer < rows);
    assert_eq!(export(&older, &lake).rows, 0);
    assert_eq!(exported(&lake), before);

    // The same program with its runs in another order, as after restoring a backup and filling in
    // ledgers.
    let other = Scene::new();
    other.add_all(FIRST..=middle);
    let id = other.deploy("ana", "seen", &module(""), market()).unwrap().id;
    other.add_all(middle + 1..=LAST);
    other.run_until_idle();
    other.begin(id, FIRST, middle).unwrap();
    other.run_until_idle();
    assert_eq!(other.rows(id).len() as u64, rows);
    assert_eq!(export(&other, &lake).failed, 0);
    let after = exported(&lake);
    assert_ne!(after.last_run, before.last_run);
    assert_eq!((after.runs, after.rows()), (rows, rows));
    let files = |of: &ExportedProgram| -> BTreeSet<String> {
        of.tables[0].files.iter().map(|file| file.path.clone()).collect()
    };
    // All rows were written anew. They are the same, so the table keeps its files and its snapshot.
    assert_eq!(files(&after), files(&before));
    assert!(files(&after).iter().all(|file| lake.join(file).exists()));
    assert_eq!(after.tables[0].state.newest(), before.tables[0].state.newest());
}
