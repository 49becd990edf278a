//! Random sequences of commits against a model: every snapshot is what it was when it was made, until it
//! expires, and then its files are gone.

use std::collections::{BTreeMap, BTreeSet};

use orrery_iceberg::{Change, Column, DataFile, SNAPSHOT_MS, TableState, Type, merges, order};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::disk::{Disk, Export, Found, ROOT, file};

const FILE_BYTES: u64 = 1000;

struct World {
    random: ChaCha8Rng,
    now_ms: i64,
    /// The latest time so far: the clock goes back sometimes.
    latest_ms: i64,
    next: u64,
    ledger: u32,
    export: Export,
    disk: Disk,
    /// What each snapshot was when it was made, with its time.
    made: BTreeMap<u64, (i64, Found)>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            now_ms: 1_800_000_000_000,
            latest_ms: 0,
            next: 0,
            ledger: 100,
            export: Export::new(),
            disk: Disk::default(),
            made: BTreeMap::new(),
        }
    }

    fn make_file(&mut self, ledgers: (u32, u32), bytes: u64, rows: Option<u64>) -> DataFile {
        self.next += 1;
        let mut made = file(self.next, ledgers, bytes);
        made.rows = rows.unwrap_or(made.rows);
        self.disk.put(&made);
        made
    }

    fn append(&mut self) {
        for _ in 0..self.random.random_range(1..4) {
            let ledgers = (self.ledger, self.ledger + self.random.random_range(0..10));
            self.ledger = ledgers.1 + 1;
            let bytes = self.random.random_range(1..700);
            let made = self.make_file(ledgers, bytes, None);
            self.export.files.push(made);
        }
    }

    /// Takes files out of the table. Those that no snapshot had are gone at once.
    fn retire(&mut self, places: &BTreeSet<usize>) -> Vec<String> {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (at, file) in std::mem::take(&mut self.export.files).into_iter().enumerate() {
            match places.contains(&at) {
                true => gone.extend(self.export.state.retire(file).map(|file| file.path)),
                false => kept.push(file),
            }
        }
        self.export.files = kept;
        gone
    }

    fn merge(&mut self) -> Vec<String> {
        let groups = merges(&self.export.files, FILE_BYTES);
        let mut new = Vec::new();
        for group in &groups {
            let files: Vec<_> = group.iter().map(|at| self.export.files[*at].clone()).collect();
            let first = files.iter().map(|file| file.first_ledger).min().unwrap();
            let last = files.iter().map(|file| file.last_ledger).max().unwrap();
            let sum = |of: fn(&DataFile) -> u64| files.iter().map(of).sum::<u64>();
            new.push(self.make_file((first, last), sum(|it| it.bytes), Some(sum(|it| it.rows))));
        }
        let gone = self.retire(&groups.into_iter().flatten().collect());
        self.export.files.extend(new);
        let bytes: u64 = self.export.files.iter().map(|file| file.bytes).sum();
        assert!(self.export.files.len() as u64 <= 2 + 2 * bytes / FILE_BYTES);
        gone
    }

    fn overwrite(&mut self) -> Vec<String> {
        let from = self.random.random_range(0..=self.export.files.len());
        let gone = self.retire(&(from..self.export.files.len()).collect());
        if self.random.random_bool(0.7) {
            self.append();
        }
        gone
    }

    fn step(&mut self) {
        self.now_ms += match self.random.random_range(0..20) {
            0 => self.random.random_range(0..2 * SNAPSHOT_MS),
            1 => -3_600_000,
            _ => self.random.random_range(0..600_000),
        };
        self.latest_ms = self.latest_ms.max(self.now_ms);
        let now_ms = self.now_ms;
        let (retired, same_rows) = match self.random.random_range(0..10) {
            0..5 => {
                self.append();
                (Vec::new(), false)
            }
            5..8 => (self.merge(), true),
            8 => (self.overwrite(), false),
            _ => (Vec::new(), false),
        };
        self.commit(Change { same_rows, ..Change::at(now_ms) }, retired);
    }

    fn commit(&mut self, change: Change, retired: Vec<String>) {
        let before = self.export.state.clone();
        let commit = self.export.commit(change);
        let is_snapshot = self.export.state.newest() != before.newest();
        self.check_times(&before);
        self.disk.manifest = serde_json::to_vec(&self.export).unwrap();
        let names = self.export.names();
        let steps = order::plan(commit.into_iter().collect(), retired, |path| names.contains(path));
        order::execute(&steps, &mut self.disk).unwrap();
        let found = self.disk.snapshots();
        if is_snapshot {
            let newest = found.last().unwrap();
            let paths = self.export.files.iter().map(|file| format!("{ROOT}/{}", file.path));
            assert_eq!(newest.files, paths.collect());
            let made = (self.export.state.timestamp_ms, newest.clone());
            assert!(self.made.insert(newest.id, made).is_none(), "an id is given once");
        }
        self.latest_ms = self.latest_ms.max(change.now_ms);
        self.check(&found);
    }

    fn check_times(&self, before: &TableState) {
        let state = &self.export.state;
        if state.commit > before.commit {
            assert_eq!(state.commit, before.commit + 1);
            assert!(state.timestamp_ms > before.timestamp_ms, "time never goes back");
        }
    }

    /// Every snapshot that is there is what it was; those that are not were superseded a day ago.
    fn check(&self, found: &[Found]) {
        let there: BTreeMap<u64, &Found> = found.iter().map(|it| (it.id, it)).collect();
        let mut later = self.made.iter().skip(1);
        for (id, (_, made)) in &self.made {
            let next = later.next().map(|(_, (next, _))| *next);
            match there.get(id) {
                Some(found) => assert_eq!(*found, made),
                None => assert!(next.unwrap() + SNAPSHOT_MS <= self.latest_ms),
            }
        }
        let names = self.export.names();
        let here: BTreeSet<_> = self.disk.files.keys().cloned().collect();
        let other =
            [crate::disk::MANIFEST.to_owned(), orrery_iceberg::layout::pointer(crate::disk::UUID)];
        let left: Vec<_> = here.difference(&names).filter(|path| !other.contains(path)).collect();
        assert!(left.is_empty(), "what nothing names is removed: {left:?}");
        assert!(names.is_subset(&here), "what is named is there");
    }
}

#[test]
fn every_snapshot_stays_what_it_was() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        for _ in 0..100 {
            world.step();
        }
        let operations: BTreeSet<_> =
            world.made.values().map(|(_, made)| made.operation.clone()).collect();
        assert_eq!(operations.into_iter().collect::<Vec<_>>(), ["append", "overwrite", "replace"]);
    }
}

#[test]
fn a_snapshot_is_the_same_after_a_hundred_commits() {
    let mut world = World::new(77);
    for _ in 0..10 {
        world.append();
        world.commit(Change::at(world.now_ms), Vec::new());
    }
    let tenth = world.disk.snapshots().pop().unwrap();
    for number in 0..100 {
        world.now_ms += 60_000;
        world.append();
        let retired = if number % 3 == 0 { world.merge() } else { Vec::new() };
        world.commit(Change::at(world.now_ms), retired);
    }
    assert!(world.disk.snapshots().contains(&tenth));
    // A day after the last commit, the newest alone is left.
    world.now_ms += SNAPSHOT_MS;
    world.commit(Change::at(world.now_ms), Vec::new());
    assert_eq!(world.disk.snapshots().len(), 1);
    let before = world.export.clone();
    assert!(world.export.commit(Change::at(world.now_ms + 10 * SNAPSHOT_MS)).is_none());
    assert_eq!(world.export, before);
}

#[test]
fn a_moved_destination_is_rebased() {
    let mut world = World::new(5);
    for _ in 0..30 {
        world.step();
    }
    let Export { columns, mut state, mut files } = world.export.clone();
    let table = orrery_iceberg::Table { root: "/mnt/moved", ..crate::disk::table(&columns) };
    let now = crate::disk::columns_of();
    let change = Change::at(world.now_ms + 1);
    let before = state.clone();
    let moved = orrery_iceberg::commit(&mut state, &table, &now, &mut files, change);
    assert!(moved.unwrap_err().to_string().contains("--rebase"));
    assert_eq!(state, before);
    let change = Change { rebase: true, ..change };
    let commit =
        orrery_iceberg::commit(&mut state, &table, &now, &mut files, change).unwrap().unwrap();
    assert_eq!((state.snapshots.len(), state.commit), (1, before.commit + 1));
    let texts: Vec<_> = commit.files.iter().map(|it| String::from_utf8_lossy(&it.bytes)).collect();
    assert!(!texts.iter().any(|text| text.contains(ROOT)));
    for path in before.paths().filter(|path| path.starts_with("iceberg/")) {
        assert!(commit.unneeded.iter().any(|it| it == path), "{path}");
    }
    assert!(files.iter().all(|file| !commit.unneeded.contains(&file.path)));
    let again = orrery_iceberg::commit(&mut state, &table, &now, &mut files, change);
    assert_eq!(again.unwrap(), None);
}

#[test]
fn a_snapshot_keeps_its_schema() {
    let mut world = World::new(9);
    world.append();
    world.commit(Change::at(world.now_ms), Vec::new());
    let Export { mut columns, mut state, mut files } = world.export.clone();
    let mut now = crate::disk::columns_of();
    now.insert(2, Column::new("memo", Type::String));
    columns.set(&now);
    let table = crate::disk::table(&columns);
    let mut commit = |state: &mut TableState, now_ms: i64| {
        let change = Change::at(now_ms);
        orrery_iceberg::commit(state, &table, &now, &mut files, change).unwrap()
    };
    // Columns alone make metadata, and no snapshot.
    let made = commit(&mut state, world.now_ms + 1).unwrap();
    assert_eq!((made.number, made.files.len(), made.unneeded.len()), (2, 1, 0));
    let metadata: serde_json::Value = serde_json::from_slice(&made.files[0].bytes).unwrap();
    assert_eq!(
        (&metadata["current-schema-id"], &metadata["current-snapshot-id"]),
        (&1.into(), &1.into())
    );
    assert_eq!(metadata["snapshots"][0]["schema-id"], 0);
    let ids = |schema: &serde_json::Value| -> Vec<u64> {
        let fields = schema["fields"].as_array().unwrap().iter();
        fields.map(|field| field["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&metadata["schemas"][0]), [1, 2, 3, 4]);
    assert_eq!(ids(&metadata["schemas"][1]), [1, 2, 5, 3, 4]);
    assert_eq!(metadata["last-column-id"], 5);
    assert_eq!(metadata["last-sequence-number"], 1);
    assert!(commit(&mut state, world.now_ms + 2).is_none());
    // The newest snapshot does not expire, so its schema stays.
    assert!(commit(&mut state, world.now_ms + 9 * SNAPSHOT_MS).is_none());
    assert_eq!(state.schemas.len(), 2);
}
