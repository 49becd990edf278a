//! The database file and its log, deleted, truncated and with flipped bits: the damage is detected
//! or harmless, and rebuilt tables equal the original ones. Queries never return wrong rows.
//!
//! Small: 60 flips; full: 1,000.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use orrery_ledger::domain::Owner;
use orrery_tables::Tables;
use orrery_tables::query::QueryError;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use stellar_xdr::ScVal;

use super::support::{Program, World, database, emit, log, owner};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::size;
use orrery_testkit::values::{i128, list, string};
use orrery_testkit::wait::wait_until;

/// A database file with a log. The worker was killed, so that the last changes are in the log
/// alone.
struct Prepared {
    world: World,
    alice: Owner,
    program: Program,
    digest: String,
    /// Copy of the owner's undamaged directory.
    kept: PathBuf,
}

fn prepare() -> Prepared {
    let (world, alice) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "p");
    for number in 0..3_000u32 {
        let fields = [
            ("n", ScVal::U32(number)),
            ("wide", i128(i128::from(number) << 90)),
            ("text", string(format!("{number}").repeat(number as usize % 40))),
            ("list", list((0..number % 4).map(ScVal::U32))),
        ];
        program.run(vec![emit("t", fields)]).unwrap();
    }
    let feed = |program: &Program| program.feed(&world.tables, &alice, 700);
    feed(&program);
    // Checkpoints these rows into the file; the later ones stay in the log.
    world.tables.close();
    for number in 3_000..3_400u32 {
        program.run(vec![emit("t", [("n", ScVal::U32(number))])]).unwrap();
        program.run(vec![emit("u", [("n", ScVal::U32(number))])]).unwrap();
    }
    feed(&program);
    let digest = world.tables.digest(&alice).unwrap();
    kill(&world.tables, &alice);
    let directory = world.tables.directory(&alice);
    let kept = world.root.path().join("kept");
    copy(&directory, &kept);
    assert!(log(&database(&world.tables, &alice)).metadata().unwrap().len() > 1_000);
    Prepared { world, alice, program, digest, kept }
}

fn kill(tables: &Tables, owner: &Owner) {
    let process = tables.process(owner).unwrap();
    assert!(signal::send(process, Signal::KILL));
    wait_until("the worker is gone", || tables.process(owner).is_none());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(from, to).unwrap()),
        }
    }
}

impl Prepared {
    /// Puts the undamaged directory back.
    fn restore(&mut self) {
        self.world.tables.close();
        let directory = self.world.tables.directory(&self.alice);
        fs::remove_dir_all(&directory).unwrap();
        copy(&self.kept, &directory);
        self.world.reopen();
    }

    /// Recovers as a service does: reads the watermark and feeds the missing rows.
    fn recover(&self) {
        for _ in 0..5 {
            let tables = &self.world.tables;
            let Ok(watermarks) = tables.watermarks(&self.alice) else { continue };
            let after = watermarks.get(&self.program.id).copied().unwrap_or(0);
            let changes =
                vec![self.program.definition(), self.program.between(after, self.program.end())];
            if tables.apply(&self.alice, changes).is_ok()
                && tables.set_complete(&self.alice).is_ok()
            {
                return;
            }
        }
        panic!("the tables do not recover");
    }

    /// Queries all rows. Returns whether the damage was noticed; panics when the answer is wrong.
    fn look(&self, damage: &str) -> &'static str {
        let sql = "SELECT count(*) AS n, sum(n) AS sum, sum(wide >> 90) AS wide,
            sum(length(text)) AS text, sum(len(list)) AS list FROM program_1_t";
        match self.world.try_rows(&self.alice, sql) {
            Ok(rows) => {
                assert_eq!(rows, self.right(), "{damage}");
                "harmless"
            }
            Err(QueryError::Unavailable(_)) => "noticed",
            Err(error) => panic!("{damage}: {error}"),
        }
    }

    fn right(&self) -> serde_json::Value {
        let text: usize = (0..3_000usize).map(|n| n.to_string().len() * (n % 40)).sum();
        let list: u32 = (0..3_000u32).map(|n| n % 4).sum();
        let (sum, wide) = ((0..3_400u64).sum::<u64>(), (0..3_000u64).sum::<u64>());
        json!([{"n": 3_400, "sum": sum, "wide": wide, "text": text, "list": list}])
    }

    /// Damages the files, queries, recovers, and compares the digest.
    fn survive(&mut self, damage: &str, how: impl FnOnce(&Path, &Path)) -> &'static str {
        self.restore();
        let database = database(&self.world.tables, &self.alice);
        how(&database, &log(&database));
        let found = self.look(damage);
        self.recover();
        let digest = self.world.tables.digest(&self.alice).or_else(|_| {
            // Damage in parts that the query did not read is detected only now.
            self.recover();
            self.world.tables.digest(&self.alice)
        });
        assert_eq!(digest.as_ref().ok(), Some(&self.digest), "{damage}: {digest:?}");
        assert_eq!(self.look(damage), "harmless", "{damage}");
        found
    }
}

fn cut(path: &Path, to: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(to).unwrap();
}

fn flip(path: &Path, at: u64, bit: u8) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
}

fn length(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

#[test]
fn deleted_files_are_rebuilt() {
    let mut prepared = prepare();
    let delete = |path: &Path| fs::remove_file(path).unwrap();
    assert_eq!(prepared.survive("nothing", |_, _| {}), "harmless");
    assert_eq!(prepared.survive("the file", |file, _| delete(file)), "noticed");
    assert_eq!(prepared.survive("the log", |_, log| delete(log)), "noticed");
    let both = |file: &Path, log: &Path| [file, log].into_iter().for_each(delete);
    assert_eq!(prepared.survive("both", both), "noticed");
    let directory = |file: &Path, _: &Path| {
        fs::remove_dir_all(file.parent().unwrap().parent().unwrap()).unwrap()
    };
    assert_eq!(prepared.survive("the directory", directory), "noticed");
    let empty = |file: &Path, _: &Path| cut(file, 0);
    assert_eq!(prepared.survive("all of the file", empty), "noticed");
    let other = |file: &Path, _: &Path| fs::write(file, b"no database").unwrap();
    assert_eq!(prepared.survive("another file", other), "noticed");
}

#[test]
fn truncation_is_detected() {
    let mut prepared = prepare();
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let mut found = Vec::new();
    for number in 0..size::choose(12, 100) {
        let of_log = number % 2 == 0;
        let name = format!("cut {number}, of the log: {of_log}");
        found.push(prepared.survive(&name, |file, log| {
            let path = if of_log { log } else { file };
            cut(path, random.random_range(0..length(path)));
        }));
    }
    let noticed = found.iter().filter(|found| **found == "noticed").count();
    assert!(noticed * 2 > found.len(), "{found:?}");
}

#[test]
fn flipped_bits_are_detected_or_harmless() {
    let mut prepared = prepare();
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let (mut noticed, flips) = (0, size::choose(60, 1_000));
    for number in 0..flips {
        let of_log = number % 3 == 0;
        // The first pages hold the headers that locate everything else.
        let early = number % 3 == 1 && number % 2 == 0;
        let mut at = 0;
        let bit = random.random_range(0..8);
        let name = format!("flip {number}, of the log: {of_log}, early: {early}");
        let found = prepared.survive(&name, |file, log| {
            let path = if of_log { log } else { file };
            let end = if early { 12_288 } else { length(path) };
            at = random.random_range(0..end);
            flip(path, at, bit);
        });
        noticed += u64::from(found == "noticed");
    }
    eprintln!("{noticed} of {flips} flips were noticed, the others do not matter");
    assert!(noticed > 0);
}

#[test]
fn files_that_are_removed_while_they_are_used_are_made_again() {
    let prepared = prepare();
    let own = prepared.world.tables.directory(&prepared.alice);
    let all = own.parent().unwrap().to_owned();
    for removed in [database(&prepared.world.tables, &prepared.alice), own.join("db"), own, all] {
        // The worker has the file open.
        prepared.world.tables.watermarks(&prepared.alice).unwrap();
        let is_file = removed.is_file();
        if is_file { fs::remove_file(&removed) } else { fs::remove_dir_all(&removed) }.unwrap();
        assert_eq!(prepared.look("removed while used"), "noticed", "{}", removed.display());
        prepared.recover();
        assert_eq!(prepared.world.tables.digest(&prepared.alice).unwrap(), prepared.digest);
    }
}

#[test]
fn a_file_truncated_during_use_is_rebuilt() {
    let prepared = prepare();
    // The worker has the file open and has read none of the rows.
    prepared.world.tables.watermarks(&prepared.alice).unwrap();
    cut(&database(&prepared.world.tables, &prepared.alice), 300_000);
    assert_eq!(prepared.look("cut while used"), "noticed");
    prepared.recover();
    assert_eq!(prepared.world.tables.digest(&prepared.alice).unwrap(), prepared.digest);
    let aside = fs::read_dir(prepared.world.tables.directory(&prepared.alice))
        .unwrap()
        .filter(|entry| {
            entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("damaged-")
        })
        .count();
    assert!(aside >= 1);
}
