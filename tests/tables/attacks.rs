//! Statements that attack, each against one wall alone: with the process held back but DuckDB open, and
//! with DuckDB locked but the process free. Nothing outside is read, made, changed or called, nothing of
//! another owner is seen, and the next query is answered.

use std::fs::{self, File, FileTimes};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use orrery::domain::Owner;
use orrery::tables::Walls;
use orrery::tables::query::{QueryError, QueryRequest};
use serde_json::json;
use stellar_xdr::ScVal;

use super::corpus_attacks::{BOUNDED, REFUSED};
use super::corpus_frames::{EXPOSED, HIDDEN};
use super::support::{Program, World, database, emit, owner, symbol};
use crate::common::size::choose;

/// What nobody may get to see.
const SECRET: &str = "canary-7d1f";
/// What only the other owner may see.
const OTHERS: &str = "others-93ab";
/// Process, gate and lock: one alone, or all but the first.
const PROCESS: Walls = Walls { process: true, gate: false, lock: false };
const GATE: Walls = Walls { process: false, gate: true, lock: false };
const LOCK: Walls = Walls { process: false, gate: false, lock: true };
const SQL: Walls = Walls { process: false, gate: true, lock: true };
const NONE: Walls = Walls { process: false, gate: false, lock: false };

/// Until a query of these tests is stopped.
const TIME: Duration = Duration::from_millis(1_000);
/// From there until it is over: two seconds until it is killed, and time to notice on a busy machine.
const OVER_WITHIN: Duration = Duration::from_millis(4_000);

/// A service's directory with files around it that are watched.
struct Range {
    world: World,
    mallory: Owner,
    canaries: Vec<PathBuf>,
    own: PathBuf,
    network: TcpListener,
}

impl Range {
    fn new(walls: Walls) -> Self {
        let world = World::with(|settings| {
            settings.walls = walls;
            settings.limits.time = TIME;
            settings.limits.memory = 128 << 20;
        });
        let (mallory, victim) = (owner("mallory"), owner("victim"));
        let mut program = Program::new(1, "pool");
        for (number, note) in (0..5).zip(["a", "b", "c", "d", "e"]) {
            let fields = [("a", ScVal::I32(number)), ("note", symbol(note))];
            program.run(vec![emit("swap", fields)]).unwrap();
        }
        program.feed(&world.tables, &mallory, 10);
        let mut others = Program::new(2, "other");
        others.run(vec![emit("swap", [("note", super::support::string(OTHERS))])]).unwrap();
        others.feed(&world.tables, &victim, 10);
        // The victim's file is not in use, so that its lock does not help.
        world.tables.close();
        let own = world.tables.directory(&mallory).join("db/own.csv");
        let beside = world.tables.directory(&mallory).join("beside.csv");
        let outside = world.root.path().join("outside.csv");
        let inside = world.settings.directory.join("inside.csv");
        let parquet = world.root.path().join("outside.csv.parquet");
        let canaries = vec![outside, inside, parquet, beside, own.clone()];
        let network = TcpListener::bind("127.0.0.1:0").unwrap();
        network.set_nonblocking(true).unwrap();
        let range = Self { world, mallory, canaries, own, network };
        range.canaries.iter().for_each(|path| plant(path));
        range
    }

    fn fill_in(&self, statement: &str) -> String {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let victim = database(&self.world.tables, &owner("victim"));
        statement
            .replace("{outside}", &text(&self.canaries[0]))
            .replace("{inside}", &text(&self.canaries[1]))
            .replace("{own}", &text(&self.own))
            .replace("{other}", &text(&victim))
            .replace("{out}", &text(&self.world.root.path().join("stolen")))
            .replace("{port}", &self.network.local_addr().unwrap().port().to_string())
    }

    fn attack(&self, statement: &str) -> (Result<String, QueryError>, Duration) {
        let request = QueryRequest { query: self.fill_in(statement), ..QueryRequest::default() };
        let begun = Instant::now();
        let answer = self.world.tables.query(&self.mallory, request);
        let answer = answer.map(|answer| String::from_utf8_lossy(&answer.bytes).into_owned());
        (answer, begun.elapsed())
    }

    /// Every trace of a success: an answer that tells, a file that was read, made or changed, a call.
    fn traces(
        &self,
        attack: &str,
        answer: &Result<String, QueryError>,
        own_files_too: bool,
    ) -> Vec<String> {
        let mut traces = Vec::new();
        let said = match answer {
            Ok(answer) => answer.clone(),
            Err(error) => error.to_string(),
        };
        let directory = self.world.settings.directory.to_str().unwrap();
        // Its own file is the owner's when DuckDB is open.
        let mut secrets = vec![OTHERS, "root:x:0"];
        if own_files_too {
            secrets.extend([SECRET, directory]);
        }
        for secret in secrets {
            // An error may quote the statement.
            if said.contains(secret) && !self.fill_in(attack).contains(secret) {
                traces.push(format!("the answer tells {secret}"));
            }
        }
        for canary in &self.canaries {
            let own = *canary == self.own;
            if (own_files_too || !own) && was_touched(canary) {
                traces.push(format!("{} was read or changed", canary.display()));
            }
        }
        let expected = ["outside.csv", "outside.csv.parquet", "tables"];
        for entry in fs::read_dir(self.world.root.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !expected.contains(&name.as_str()) {
                traces.push(format!("{name} was made"));
            }
        }
        match self.network.accept() {
            Ok(_) => traces.push("somebody called".to_owned()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        traces
    }

    /// Why the next query is not answered.
    fn next_query_fails(&self) -> Option<String> {
        let begun = Instant::now();
        // After an attack on its own file an owner may have to wait for the tables, and a process that was
        // killed lets go of its file in its own time.
        loop {
            let reason = match self.world.try_rows(&self.mallory, "SELECT 42 AS a") {
                Ok(rows) if rows == json!([{"a": 42}]) => return None,
                other => format!("{other:?}"),
            };
            let complete = self.world.tables.set_complete(&self.mallory);
            if begun.elapsed() > Duration::from_secs(30) {
                return Some(format!("the next query does not work: {reason}, {complete:?}"));
            }
        }
    }
}

/// Puts a canary where it is watched: its time of access is older than its time of change, so that the
/// next read moves it, however the file system is mounted.
fn plant(path: &Path) {
    fs::write(path, format!("a,b\n1,{SECRET}\n")).unwrap();
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let read = SystemTime::UNIX_EPOCH + Duration::from_secs(1_400_000_000);
    let times = FileTimes::new().set_accessed(read).set_modified(changed);
    File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

fn was_touched(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return true };
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let touched = seconds(metadata.accessed().unwrap()) != 1_400_000_000
        || seconds(metadata.modified().unwrap()) != 1_500_000_000;
    if touched {
        plant(path);
    }
    touched
}

/// Expressions that are deep or long, up to the longest text that is taken.
fn made() -> Vec<String> {
    let long = 60_000;
    vec![
        format!("SELECT {}1{}", "(".repeat(long / 2), ")".repeat(long / 2)),
        format!("SELECT {}1", "-".repeat(long).replace("--", "- ")),
        format!("SELECT {}1", "NOT ".repeat(long / 4)),
        format!("SELECT 1{}", "+1".repeat(long / 2)),
        format!("SELECT {}[]", "[".repeat(long)),
        format!("SELECT {}1{}", "[".repeat(long / 2), "]".repeat(long / 2)),
        format!("SELECT {}{}", "{'a':".repeat(long / 6), "}".repeat(long / 6)),
        format!("SELECT '{}'", "x".repeat(long)),
        format!("SELECT 1 AS \"{}\"", "x".repeat(long)),
        format!("SELECT {}1", "1,".repeat(long / 2)),
        format!("SELECT * FROM {}range(1)", "range(1),".repeat(long / 10)),
        format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(long / 20)),
        format!("SELECT {}1{}", "(SELECT ".repeat(long / 9), ")".repeat(long / 9)),
        format!(
            "SELECT {}1 END{}",
            "CASE WHEN true THEN ".repeat(long / 26),
            " END".repeat(long / 26)
        ),
        format!(
            "WITH {} SELECT 1",
            (0..long / 25).map(|n| format!("a{n} AS (SELECT 1)")).collect::<Vec<_>>().join(",")
        ),
        format!("/*{}*/ SELECT 1", "/*".repeat(long / 2)),
        format!("SELECT '{}'", "x".repeat(1 << 20)),
        format!("SELECT 1{}", "::VARCHAR".repeat(long / 9)),
        format!("SELECT x{}", ".a".repeat(long / 2)),
        format!("EXPLAIN {}SELECT 1", "EXPLAIN ".repeat(long / 8)),
        // What never ends.
        format!("SELECT {}", "(".repeat(long)),
        format!("SELECT {}", "[".repeat(long)),
        format!("SELECT {}", "{'a':".repeat(long / 5)),
        format!("SELECT {}", "f(".repeat(long / 2)),
        format!("SELECT {}", "- ".repeat(long / 2)),
        format!("SELECT {}", "CASE WHEN ".repeat(long / 10)),
        format!("SELECT {}", "NOT ".repeat(long / 4)),
        format!("SELECT 1{}", " AND 1".repeat(long / 6)),
        format!("SELECT x{}", "[x".repeat(long / 2)),
        format!("SELECT * FROM {}", "(".repeat(long)),
        format!("SELECT * FROM {}t{}", "(".repeat(long / 2), ")".repeat(long / 2)),
        format!("SELECT * FROM t{}", " JOIN t ON true".repeat(long / 15)),
        "WITH a AS (".repeat(long / 11),
        "WITH a AS (".repeat(10),
        format!("{}SELECT 1 FROM FROM{}", "WITH a AS (".repeat(8), ") SELECT 1".repeat(8)),
        format!("{}SELECT 1{}", "WITH a AS (".repeat(30), ") INSERT INTO t VALUES (1)".repeat(30)),
        // Brackets that seem to be closed.
        format!("SELECT {}", "(/*)*/".repeat(long / 6)),
        format!("SELECT {}", "(E'\\')'')'".repeat(long / 11)),
    ]
}

#[test]
fn the_corpus_is_large_and_a_success_would_be_noticed() {
    assert!(REFUSED.len() + BOUNDED.len() + made().len() >= 200);
    let range = Range::new(NONE);
    for (attack, trace) in [
        ("SELECT * FROM read_text('{outside}')", "outside.csv was read"),
        ("SELECT * FROM read_text('{outside}')", SECRET),
        ("SELECT * FROM read_text('{own}')", "own.csv was read"),
        ("COPY (SELECT 1) TO '{out}'", "stolen was made"),
        ("COPY (SELECT 1) TO '{inside}'", "inside.csv was read or changed"),
        ("SELECT path FROM duckdb_databases()", "the answer tells"),
    ] {
        let (answer, _) = range.attack(attack);
        let traces = range.traces(attack, &answer, true).join("; ");
        assert!(traces.contains(trace), "{attack}: {answer:?}: {traces}");
        let _ = fs::remove_file(range.world.root.path().join("stolen"));
    }
}

/// Attacks that were answered although they must be refused, or that left traces.
fn successes(range: &Range, attacks: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut successes = Vec::new();
    for attack in attacks {
        let (answer, _) = range.attack(&attack);
        if !matches!(answer, Err(QueryError::Refused(_))) {
            successes.push(format!("{attack}: {answer:?}"));
        }
        let traces = range.traces(&attack, &answer, true);
        if !traces.is_empty() {
            successes.push(format!("{attack}: {}", traces.join("; ")));
        }
    }
    successes
}

/// Nothing was changed by any of it.
fn assert_unchanged(range: &Range) {
    assert_eq!(range.next_query_fails(), None);
    let rows = range.world.rows(&range.mallory, "SELECT sum(a) AS a, count(*) AS n FROM pool_swap");
    assert_eq!(rows, json!([{"a": 10, "n": 5}]));
}

#[test]
fn a_locked_duckdb_holds_alone() {
    let range = Range::new(SQL);
    let successes = successes(&range, REFUSED.iter().map(|attack| (*attack).to_owned()));
    assert!(successes.is_empty(), "{successes:#?}");
    assert_unchanged(&range);
}

#[test]
fn the_gate_holds_alone() {
    let range = Range::new(GATE);
    let successes = successes(&range, REFUSED.iter().map(|attack| (*attack).to_owned()));
    assert!(successes.is_empty(), "{successes:#?}");
    assert_unchanged(&range);
}

/// Without the gate a query may name what it likes. It reads, one statement at a time, and gets no further
/// than its own database.
#[test]
fn one_statement_that_reads_in_a_locked_duckdb_holds_alone() {
    let range = Range::new(LOCK);
    let mut successes = Vec::new();
    let framed = REFUSED.iter().step_by(3).zip(EXPOSED.iter().chain(HIDDEN).cycle());
    let framed = framed.map(|(attack, frame)| frame.replace("{}", attack));
    for attack in REFUSED.iter().map(|attack| (*attack).to_owned()).chain(framed) {
        let (answer, _) = range.attack(&attack);
        // Which tables and settings there are is told by what no query may name otherwise.
        let traces = range.traces(&attack, &answer, false);
        let files = range.canaries.iter().filter(|canary| was_touched(canary));
        if !traces.is_empty() || files.count() > 0 {
            successes.push(format!("{attack}: {}", traces.join("; ")));
        }
    }
    assert!(successes.is_empty(), "{successes:#?}");
    assert_unchanged(&range);
}

/// Behind every comment, quote and form of EXPLAIN, in which a reader that knows some of DuckDB's rules
/// sees something else.
#[test]
fn what_is_refused_is_refused_however_it_is_framed() {
    let range = Range::new(SQL);
    let of_all = usize::try_from(choose(37, 1)).unwrap();
    let framed = |frames: &[&'static str]| -> Vec<String> {
        // What is no statement is none in a frame either.
        let no_statement = ["", ";", "-- nothing", "/* nothing */"];
        let attacks = REFUSED.iter().filter(|attack| !no_statement.contains(attack));
        let all = attacks.flat_map(|attack| frames.iter().map(|frame| frame.replace("{}", attack)));
        all.step_by(of_all).collect()
    };
    let successes = successes(&range, framed(EXPOSED));
    assert!(successes.is_empty(), "{successes:#?}");
    let mut told = Vec::new();
    for attack in framed(HIDDEN) {
        let (answer, _) = range.attack(&attack);
        let traces = range.traces(&attack, &answer, true);
        if !traces.is_empty() {
            told.push(format!("{attack}: {answer:?}: {}", traces.join("; ")));
        }
    }
    assert!(told.is_empty(), "{told:#?}");
    assert_unchanged(&range);
}

#[test]
fn a_held_back_process_holds_alone() {
    let range = Range::new(PROCESS);
    let confinement = {
        assert_eq!(range.next_query_fails(), None);
        range.world.tables.confinement().unwrap()
    };
    if !confinement.files || !confinement.calls {
        eprintln!("skipped: this kernel has no Landlock or no seccomp");
        return;
    }
    let mut successes = Vec::new();
    for attack in REFUSED {
        let (answer, elapsed) = range.attack(attack);
        let mut traces = range.traces(attack, &answer, false);
        if elapsed > TIME + OVER_WITHIN {
            traces.push(format!("took {elapsed:?}"));
        }
        traces.extend(range.next_query_fails());
        if !traces.is_empty() {
            successes.push(format!("{attack}: {}", traces.join("; ")));
        }
    }
    assert!(successes.is_empty(), "{successes:#?}");
}

#[test]
fn no_query_uses_more_than_its_share() {
    for walls in [SQL, PROCESS] {
        let range = Range::new(walls);
        let mut successes = Vec::new();
        let made = made();
        for attack in BOUNDED.iter().copied().chain(made.iter().map(String::as_str)) {
            let (answer, elapsed) = range.attack(attack);
            let mut traces = range.traces(attack, &answer, walls.lock);
            if elapsed > TIME + OVER_WITHIN {
                traces.push(format!("took {elapsed:?}"));
            }
            if let Some(process) = range.world.tables.process(&range.mallory) {
                let resident = resident(process);
                // DuckDB does not count what functions over lists take; only the process has an end then.
                if walls.process && resident > (128 + 1024) << 20 {
                    traces.push(format!("uses {resident} bytes"));
                }
            }
            traces.extend(range.next_query_fails());
            if !traces.is_empty() {
                let shown: String = attack.chars().take(80).collect();
                successes.push(format!("{shown}: {}", traces.join("; ")));
            }
        }
        assert!(successes.is_empty(), "{walls:?}: {successes:#?}");
        // None of it was taken for damage.
        let rows = range.world.rows(&range.mallory, "SELECT count(*) AS n FROM pool_swap");
        assert_eq!(rows, json!([{"n": 5}]));
    }
}

/// Bytes of memory that a process has ever had at a time (proc(5)).
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

#[test]
fn a_worker_has_nothing_but_its_file() {
    let world = World::new();
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    let process = world.tables.process(&alice).unwrap();
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    assert_eq!(
        read("environ"),
        "MALLOC_ARENA_MAX=2\0SLURM_CPUS_ON_NODE=1\0SLURM_MEM_PER_NODE=512M\0"
    );
    assert_eq!(
        fs::read_link(format!("/proc/{process}/cwd")).unwrap(),
        world.tables.directory(&alice).join("db")
    );
    let status = read("status");
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let limits = read("limits");
    assert!(limits.contains("Max core file size        0                    0"), "{limits}");
    let mut open: Vec<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.file_name().unwrap_or_default().to_string_lossy().into_owned())
        .map(|name| name.split(':').next().unwrap().to_owned())
        .collect();
    open.sort();
    open.dedup();
    for name in &open {
        let expected = ["null", "pipe", "socket", "tables.duckdb", "tables.duckdb.wal"];
        assert!(expected.contains(&name.as_str()), "{open:?}");
    }
}
