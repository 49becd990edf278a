//! An owner who breaks everything that an owner can, with tokens, programs and damage to the
//! owner's own files: the service stays ready throughout, and another owner gets all rows.
//!
//! Small: 10 ledgers; full: ten minutes of them.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::domain::ContractId;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built, call};
use crate::network_growth::silent;
use crate::service::{Owner, Scene};
use orrery_testkit::binary::{Service, token_with};
use orrery_testkit::client::HTTP;
use orrery_testkit::costly::{FUNCTION, joins, shapes};
use orrery_testkit::engine_world::module;
use orrery_testkit::size;
use orrery_testkit::values::{fields, list, map, string, symbol};

const FULL: Duration = Duration::from_secs(600);
/// Interval of the readiness checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of threads that break things.
const BREAKER_THREADS: u64 = 3;
/// Upper bound of the random program ids, above what one owner may have, so that some requests are
/// for programs that do not exist.
const PROGRAMS: u64 = 30;

/// A program that emits a row and then executes `body` in each run.
fn hostile(body: &str) -> Vec<u8> {
    module(&format!(
        r#"(import "x" "9" (func $emit (param i64 i64) (result i64)))
           (memory (export "memory") 1)
           (func (export "emit") (param i64 i64) (result i64)
             (drop (call $emit (local.get 0) (local.get 1)))
             {body}
             (i64.const 2))
           (func (export "emit_all") (param i64) (result i64) (i64.const 2))
           (func (export "_"))"#
    ))
}

/// Breaks things at random, with what it needs for that.
struct Breaker<'a> {
    /// Tokens of one owner, with different scopes.
    tokens: &'a [Owner],
    contracts: &'a [ContractId],
    modules: &'a [Vec<u8>],
    /// Directory of the owner's tables, which may be missing.
    tables: PathBuf,
    data: &'a Path,
    rng: ChaCha8Rng,
}

impl Breaker<'_> {
    fn break_something(&mut self) {
        match self.rng.random_range(0..16) {
            0..3 => self.deploy("deploy"),
            3 => self.deploy("try"),
            4..6 => self.backfill(),
            6..9 => self.query(),
            9..11 => self.anything(),
            11 => self.signal("-9"),
            12 => self.signal("-STOP"),
            13 => self.damage_a_file(),
            14 => self.lose_tables(),
            _ => self.damage_code(),
        }
    }

    /// Sends a request; any response is accepted except a 500 or one that contains the data
    /// directory's path.
    fn send(&mut self, method: &str, path: &str, body: &Value) {
        let owner = self.tokens.choose(&mut self.rng).unwrap();
        if let Some((status, answer)) = owner.try_ask(method, path, Some(body)) {
            let text = answer.to_string();
            assert_ne!(status, 500, "{method} {path}: {text}");
            assert!(!text.contains(self.data.to_str().unwrap()), "a path is revealed: {text}");
        }
    }

    fn id(&mut self) -> u64 {
        self.rng.random_range(1..PROGRAMS)
    }

    fn deploy(&mut self, path: &str) {
        let code = self.modules.choose(&mut self.rng).unwrap();
        let contract = self.contracts.choose(&mut self.rng).unwrap();
        let project = format!("p{}", self.rng.random_range(0..12));
        let public = self.rng.random_bool(0.5);
        let mut body = json!({
            "code": code, "project_name": project, "contracts": [contract.to_string()],
        });
        match path {
            "try" => body["last"] = 100.into(),
            _ => body["public"] = public.into(),
        }
        self.send("POST", path, &body);
    }

    fn backfill(&mut self) {
        let path = format!("{}/backfill", self.id());
        let last: u32 = self.rng.random();
        let body = json!({ "from": self.rng.random_range(0..=last), "to": last });
        self.send("POST", &path, &body);
    }

    fn query(&mut self) {
        let texts = [
            "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c",
            "SELECT list(range) FROM range(100000000)",
            "SELECT repeat('x', 2000000000) FROM range(100)",
            "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT sum(n) FROM t",
            "COMMIT; DROP TABLE program_1_t",
            "ATTACH '/etc/passwd'",
            "SELECT",
            "show tables",
            "select * from p1_t",
        ];
        let query = texts.choose(&mut self.rng).unwrap();
        self.send("POST", "query", &json!({ "query": query }));
    }

    fn anything(&mut self) {
        let id = self.id();
        let project = format!("p{}", self.rng.random_range(0..12));
        let contract = self.contracts.choose(&mut self.rng).unwrap().to_string();
        let (method, path, body) = match self.rng.random_range(0..9) {
            0 => ("DELETE", id.to_string(), json!(null)),
            1 => ("POST", format!("{id}/pause"), json!({})),
            2 => ("POST", format!("{id}/resume"), json!({})),
            3 => ("DELETE", format!("{id}/backfill"), json!(null)),
            4 => ("POST", "append-contracts".to_owned(), {
                json!({ "program_id": id, "contracts": [contract] })
            }),
            5 => ("POST", "subscribe".to_owned(), json!({ "project": project })),
            6 => ("POST", "unsubscribe".to_owned(), json!({ "project": project })),
            7 => ("GET", format!("{id}/executions?limit=200"), json!(null)),
            _ => ("POST", "deploy".to_owned(), json!([{ "a": "b" }])),
        };
        self.send(method, &path, &body);
    }

    /// Sends a signal to the SQL worker of the owner's tables.
    fn signal(&self, name: &str) {
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let is_its = std::fs::read_link(process.path().join("cwd"))
                .is_ok_and(|at| at.starts_with(&self.tables));
            let id = process.file_name().into_string().unwrap_or_default();
            if is_its && id.bytes().all(|digit| digit.is_ascii_digit()) {
                // It may have ended by now.
                let _ = Command::new("kill").args([name, &id]).output();
            }
        }
    }

    /// Overwrites 16 bytes at a random place in one of the files of the owner's tables.
    fn damage_a_file(&mut self) {
        let files = files_of(&self.tables);
        if let Some(file) = files.choose(&mut self.rng) {
            self.write_into(&file.clone());
        }
    }

    fn write_into(&mut self, path: &Path) {
        let length = std::fs::metadata(path).map_or(0, |it| it.len());
        let opened = std::fs::OpenOptions::new().write(true).open(path);
        let (Ok(mut file), true) = (opened, length > 0) else { return };
        let bytes: [u8; 16] = self.rng.random();
        let at = self.rng.random_range(0..length);
        // The service may remove it meanwhile.
        let _ = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&bytes));
    }

    /// Removes the owner's directory, and sometimes puts a file in its place for a moment.
    fn lose_tables(&mut self) {
        let _ = std::fs::remove_dir_all(&self.tables);
        if self.rng.random_bool(0.3) && std::fs::write(&self.tables, "in the way").is_ok() {
            thread::sleep(Duration::from_millis(self.rng.random_range(0..500)));
            let _ = std::fs::remove_file(&self.tables);
        }
    }

    fn damage_code(&mut self) {
        let files = files_of(&self.data.join("compiled"));
        if let Some(file) = files.choose(&mut self.rng) {
            self.write_into(&file.clone());
        }
    }
}

fn files_of(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files_of(&entry.path())),
            Ok(kind) if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}

/// Issues a token of the owner for each scope.
fn tokens(scene: &Scene, service: &Service, owner: &str, scopes: &[&str]) -> Vec<Owner> {
    let issue = |scope: &&str| {
        Owner::with_token(service, &token_with(scene.path(), owner, &["--scope", scope]))
    };
    scopes.iter().map(issue).collect()
}

/// A random value that is hard to store: map keys that are equal in SQL, deep nesting, long text,
/// or a type that changes from row to row.
fn row(rng: &mut ChaCha8Rng) -> ScVal {
    let i128 = |number: i128| ScVal::from(number);
    let keys = [(list([ScVal::U32(1)]), i128(1)), (list([ScVal::U64(1)]), i128(2))];
    let deep = (0..7).fold(ScVal::U32(7), |inside, _| list([inside]));
    match rng.random_range(0..6) {
        0 => map(keys),
        1 => deep,
        2 => string("x".repeat(rng.random_range(0..5000))),
        3 => ScVal::U32(rng.random()),
        4 => i128(rng.random()),
        _ => ScVal::Void,
    }
}

/// Calls a function when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn the_service_stays_ready_under_a_malicious_owner() {
    let mut chain = Chain::new();
    let contracts: Vec<_> = (0..4).map(|_| chain.create_of(&silent(), Vec::new())).collect();
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let bob = scene.owner(&service, "bob");
    let mut mallory = tokens(&scene, &service, "mallory", &["read", "deploy", "webhooks"]);
    mallory.push(scene.owner(&service, "mallory"));
    let program = |project: &str| {
        json!({
            "code": built("raw"), "project_name": project,
            "contracts": [contracts[0].to_string()],
        })
    };
    let places = || -> Vec<PathBuf> {
        let found = std::fs::read_dir(scene.path().join("tables")).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect()
    };
    // Mallory queries first, so the only table directory is hers.
    mallory[3].post("deploy", &program("mallorys"));
    mallory[3].query("show tables");
    let tables = places().pop().expect("there is a directory");
    bob.post("deploy", &program("bobs"));
    let mut modules = vec![
        built("raw"),
        built("heavy_program"),
        hostile("(loop (br 0))"),
        hostile("(loop (drop (memory.grow (i32.const 1))) (br 0))"),
        hostile("unreachable"),
        hostile("(loop (drop (call $emit (local.get 0) (local.get 1))) (br 0))"),
        joins(1, 4_096, FUNCTION),
        b"no module".to_vec(),
    ];
    modules.extend(shapes(1, FUNCTION / 8).into_iter().map(|(_, code)| code));

    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let mut rows = 0;
    thread::scope(|scope| {
        // Stops the other threads also when an assertion below fails: the scope waits for them.
        let _over = OnDrop(|| over.store(true, Ordering::Relaxed));
        let (over, looks) = (&over, &looks);
        let url = format!("{}/rest/health/ready", service.base);
        let looking = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let answer = HTTP.get(&url).send().unwrap();
                let status = answer.status();
                assert_eq!(status, 200, "{:?}: {}", began.elapsed(), answer.text().unwrap());
                looks.fetch_add(1, Ordering::Relaxed);
                thread::sleep(POLL_INTERVAL);
            }
        });
        let breaker_thread = |seed| {
            let mut breaker = Breaker {
                tokens: &mallory,
                contracts: &contracts,
                modules: &modules,
                tables: tables.clone(),
                data: scene.path(),
                rng: ChaCha8Rng::seed_from_u64(seed),
            };
            scope.spawn(move || {
                let mut count = 0u64;
                while !over.load(Ordering::Relaxed) {
                    breaker.break_something();
                    count += 1;
                }
                count
            })
        };
        let breaker_threads: Vec<_> = (0..BREAKER_THREADS).map(breaker_thread).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(99);
        let is_full = size::choose(0, 1) == 1;
        let mut ledgers = 0;
        while !looking.is_finished() && if is_full { began.elapsed() < FULL } else { ledgers < 10 }
        {
            let emit =
                |contract, value| call(contract, "emit", vec![symbol("t"), fields([("v", value)])]);
            // Both owners have programs on the first contract.
            let mut calls = vec![emit(contracts[0], ScVal::U32(rows))];
            calls.extend(contracts[1..].iter().map(|contract| emit(*contract, row(&mut rng))));
            chain.close(&calls);
            chain.import_into(&scene);
            rows += 1;
            ledgers += 1;
            bob.wait_for_rows("bobs_t", rows as usize);
            // Spreads at most 100 ledgers over the full duration: the network's contracts live for
            // 120 ledgers.
            while is_full && !looking.is_finished() && began.elapsed() < FULL / 100 * ledgers {
                thread::sleep(POLL_INTERVAL);
            }
        }
        over.store(true, Ordering::Relaxed);
        let count: u64 = breaker_threads.into_iter().map(|it| it.join().unwrap()).sum();
        looking.join().unwrap();
        println!(
            "{:?}: {ledgers} ledgers, {count} things broken, ready each of {} times",
            began.elapsed(),
            looks.load(Ordering::Relaxed)
        );
        assert!(count > 15, "{count} things were broken");
    });
    assert_eq!(bob.query("select count(distinct v) n from bobs_t")[0]["n"], rows);
}
