//! A writer that is killed after any step, and one that continues.

use std::collections::BTreeSet;

use orrery_iceberg::{Change, Table, layout, order};

use crate::disk::{Disk, Export, MANIFEST, UUID, file, table};

/// What a new writer does first.
fn begin(disk: &mut Disk) -> Export {
    let Some(manifest) = disk.files.get(MANIFEST) else { return Export::new() };
    let mut export: Export = serde_json::from_slice(manifest).unwrap();
    let pointer = disk.files.get(&layout::pointer(UUID)).map(Vec::as_slice);
    let restored = {
        let Export { columns, state, files } = &mut export;
        // Each writer has a mark of its own.
        let mark = format!("{:08x}", state.commit);
        let table = Table { mark: Some(&mark), ..table(columns) };
        orrery_iceberg::restore(state, &table, files, pointer).unwrap()
    };
    if export.state.commit > 0 && restored.is_none() {
        let written = export.state.paths().all(|path| disk.files.contains_key(path));
        assert!(written, "the pointer is written last");
    }
    disk.manifest = serde_json::to_vec(&export).unwrap();
    let steps = order::plan(restored.into_iter().collect(), Vec::new(), |_| true);
    order::execute(&steps, disk).unwrap();
    let names = export.names();
    let other = [MANIFEST.to_owned(), layout::pointer(UUID)];
    disk.files.retain(|path, _| names.contains(path) || other.contains(path));
    export
}

/// Makes a commit that adds a file, and with an even number removes the first; returns its steps.
fn steps_of(export: &mut Export, disk: &mut Disk, number: u64, now_ms: i64) -> Vec<order::Step> {
    let ledger = number as u32;
    let made = file(number, (ledger, ledger), 100);
    disk.put(&made);
    let mut retired = Vec::new();
    if number.is_multiple_of(2) && !export.files.is_empty() {
        let first = export.files.remove(0);
        retired.extend(export.state.retire(first).map(|file| file.path));
    }
    export.files.push(made);
    let commit = export.commit(Change::at(now_ms)).unwrap();
    disk.manifest = serde_json::to_vec(&export).unwrap();
    let names = export.names();
    order::plan(vec![commit], retired, |path| names.contains(path))
}

#[test]
fn a_reader_finds_all_files_whenever_the_writer_is_killed() {
    let (mut disk, mut now_ms) = (Disk::default(), 1_800_000_000_000);
    let mut killed = BTreeSet::new();
    for number in 0..70 {
        let mut export = begin(&mut disk);
        assert_eq!(
            disk.snapshots().last().map(|it| it.id),
            export.state.newest().map(|it| it.commit)
        );
        now_ms += if number % 10 == 0 { 40_000_000 } else { 60_000 };
        let steps = steps_of(&mut export, &mut disk, number, now_ms);
        let before = disk.snapshots();
        let carried_out = number as usize % (steps.len() + 1);
        for step in &steps[..carried_out] {
            order::execute(std::slice::from_ref(step), &mut disk).unwrap();
            // Reads everything.
            disk.snapshots();
        }
        killed.insert((carried_out, steps.len()));
        if carried_out == 0 {
            assert_eq!(disk.snapshots(), before);
        }
    }
    assert!(killed.len() > 12, "{killed:?}");
    let export = begin(&mut disk);
    let again = begin(&mut disk);
    assert_eq!(export, again);
}

#[test]
fn another_encoding_of_the_newest_commit_is_written_under_new_names() {
    let mut disk = Disk::default();
    let mut export = Export::new();
    let steps = steps_of(&mut export, &mut disk, 1, 1_800_000_000_000);
    let before = export.clone();
    export.state.manifests[0].path = "iceberg/x.avro".to_owned();
    export.state.manifests[0].bytes = 7;
    export.state.snapshots[0].list.clear();
    let restored =
        orrery_iceberg::restore(&mut export.state, &table(&export.columns), &export.files, None);
    assert_eq!(export, before);
    let names = |steps: &[order::Step]| {
        let name = |step: &order::Step| match step {
            order::Step::Write(file) | order::Step::Point(file) => Some(file.clone()),
            _ => None,
        };
        steps.iter().filter_map(name).collect::<Vec<_>>()
    };
    let restored = order::plan(restored.unwrap().into_iter().collect(), Vec::new(), |_| true);
    assert_eq!(names(&restored), names(&steps));
}
