//! Malicious statements, each against one wall alone: a confined process with DuckDB unlocked, and
//! a locked DuckDB in an unconfined process. Nothing outside is read, created, changed or connected
//! to, nothing of another owner is returned, and the next query is answered.

use std::fs::{self, File, FileTimes};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use orrery_ledger::domain::Owner;
use orrery_settings::{Mib, Millis, nonzero};
use orrery_tables::Protections;
use orrery_tables::query::{QueryError, QueryRequest};
use serde_json::json;
use stellar_xdr::ScVal;

use super::corpus_attacks::{BOUNDED, REFUSED};
use super::corpus_frames::{EXPOSED, HIDDEN};
use super::support::{Program, World, database, emit, owner};
use orrery_testkit::size::choose;
use orrery_testkit::values::symbol;

/// Content of files that no query may read.
const SECRET: &str = "canary-7d1f";
/// Content of the other owner's tables.
const OTHERS: &str = "others-93ab";
/// Combinations of protections: the process, the gate or the lock alone; both protections around
/// SQL; none.
const PROCESS: Protections = Protections { process: true, gate: false, lock: false };
const GATE: Protections = Protections { process: false, gate: true, lock: false };
const LOCK: Protections = Protections { process: false, gate: false, lock: true };
const SQL: Protections = Protections { process: false, gate: true, lock: true };
const NONE: Protections = Protections { process: false, gate: false, lock: false };

/// Timeout of queries in these tests.
const TIME: Duration = Duration::from_millis(1_000);
/// Maximum time from the timeout to the end of a query: two seconds until the process is killed,
/// and time to notice that on a busy machine.
const OVER_WITHIN: Duration = Duration::from_millis(4_000);

/// A service's directory with a malicious owner and a victim, and files around it whose accesses
/// are detected.
struct Range {
    world: World,
    mallory: Owner,
    canaries: Vec<PathBuf>,
    own: PathBuf,
    network: TcpListener,
}

impl Range {
    fn new(protections: Protections) -> Self {
        let world = World::with(|settings| {
            settings.tunables.protections = protections;
            settings.queries.query_ms = Millis::exactly(TIME);
            settings.queries.memory_mib = Mib::new(nonzero!(128));
        });
        let (mallory, victim) = (owner("mallory"), owner("victim"));
        let mut program = Program::new(1, "pool");
        for (number, note) in (0..5).zip(["a", "b", "c", "d", "e"]) {
            let fields = [("a", ScVal::I32(number)), ("note", symbol(note))];
            program.run(vec![emit("swap", fields)]).unwrap();
        }
        program.feed(&world.tables, &mallory, 10);
        let mut others = Program::new(2, "other");
        others.run(vec![emit("swap", [("note", orrery_testkit::values::string(OTHERS))])]).unwrap();
        others.feed(&world.tables, &victim, 10);
        // Closes the victim's file, so that DuckDB's file lock does not protect it.
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

    /// Returns all traces of a successful attack: an answer with a secret, a file that was read,
    /// created or changed, a connection. `own_files_too` includes the attacker's own file and the
    /// directory's path.
    fn traces(
        &self,
        attack: &str,
        answer: &Result<String, QueryError>,
        own_files_too: bool,
    ) -> Vec<String> {
        let mut traces = Vec::new();
        let text = match answer {
            Ok(answer) => answer.clone(),
            Err(error) => error.to_string(),
        };
        let directory = self.world.settings.directory.to_str().unwrap();
        // When DuckDB is unlocked, an owner may read their own file.
        let mut secrets = vec![OTHERS, "root:x:0"];
        if own_files_too {
            secrets.extend([SECRET, directory]);
        }
        for secret in secrets {
            // An error may quote the statement.
            if text.contains(secret) && !self.fill_in(attack).contains(secret) {
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

    /// Returns why the next query fails; `None` when it works.
    fn next_query_fails(&self) -> Option<String> {
        let begun = Instant::now();
        // After an attack on its own file an owner may have to wait for the tables, and a killed
        // process takes a moment to release its file.
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

/// Writes a canary file. Its access time is older than its modification time, so that the next read
/// updates it even on file systems mounted with `relatime`.
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

/// Statements that are deeply nested or long, most of them just below the maximum length of a
/// query.
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
        // Constructs that are never closed.
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
        // Brackets that only seem to be closed.
        format!("SELECT {}", "(/*)*/".repeat(long / 6)),
        format!("SELECT {}", "(E'\\')'')'".repeat(long / 11)),
    ]
}

#[test]
fn the_corpus_is_large_and_successful_attacks_are_detected() {
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

/// Returns the attacks that were not refused or that left traces.
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

/// Asserts that the tables are unchanged and that queries work.
fn assert_unchanged(range: &Range) {
    assert_eq!(range.next_query_fails(), None);
    let rows = range.world.rows(&range.mallory, "SELECT sum(a) AS a, count(*) AS n FROM pool_swap");
    assert_eq!(rows, json!([{"a": 10, "n": 5}]));
}

#[test]
fn all_sql_protections_withstand_attacks_without_confinement() {
    let range = Range::new(SQL);
    let successes = successes(&range, REFUSED.iter().map(|attack| (*attack).to_owned()));
    assert!(successes.is_empty(), "{successes:#?}");
    assert_unchanged(&range);
}

#[test]
fn the_gate_alone_withstands_attacks() {
    let range = Range::new(GATE);
    let successes = successes(&range, REFUSED.iter().map(|attack| (*attack).to_owned()));
    assert!(successes.is_empty(), "{successes:#?}");
    assert_unchanged(&range);
}

/// Without the gate, a query may name any table and function. It is still a single read-only
/// statement and reads nothing beyond its own database.
#[test]
fn the_lock_alone_withstands_attacks() {
    let range = Range::new(LOCK);
    let mut successes = Vec::new();
    let framed = REFUSED.iter().step_by(3).zip(EXPOSED.iter().chain(HIDDEN).cycle());
    let framed = framed.map(|(attack, frame)| frame.replace("{}", attack));
    for attack in REFUSED.iter().map(|attack| (*attack).to_owned()).chain(framed) {
        let (answer, _) = range.attack(&attack);
        // Without the gate, queries may list tables and settings, so answers with the directory's
        // path are no trace.
        let traces = range.traces(&attack, &answer, false);
        let files = range.canaries.iter().filter(|canary| was_touched(canary));
        if !traces.is_empty() || files.count() > 0 {
            successes.push(format!("{attack}: {}", traces.join("; ")));
        }
    }
    assert!(successes.is_empty(), "{successes:#?}");
    assert_unchanged(&range);
}

/// Puts statements behind comments, quotes and forms of EXPLAIN in which a parser that implements
/// only some of DuckDB's rules sees something else.
#[test]
fn attacks_are_refused_in_every_framing() {
    let range = Range::new(SQL);
    let of_all = usize::try_from(choose(37, 1)).unwrap();
    let framed = |frames: &[&'static str]| -> Vec<String> {
        // An empty statement stays empty in a frame.
        let no_statement = ["", ";", "-- nothing", "/* nothing */"];
        let attacks = REFUSED.iter().filter(|attack| !no_statement.contains(attack));
        let all = attacks.flat_map(|attack| frames.iter().map(|frame| frame.replace("{}", attack)));
        all.step_by(of_all).collect()
    };
    let successes = successes(&range, framed(EXPOSED));
    assert!(successes.is_empty(), "{successes:#?}");
    let mut leaks = Vec::new();
    for attack in framed(HIDDEN) {
        let (answer, _) = range.attack(&attack);
        let traces = range.traces(&attack, &answer, true);
        if !traces.is_empty() {
            leaks.push(format!("{attack}: {answer:?}: {}", traces.join("; ")));
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
    assert_unchanged(&range);
}

#[test]
fn process_confinement_alone_withstands_attacks() {
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
fn no_query_exceeds_its_time_and_memory_limits() {
    for protections in [SQL, PROCESS] {
        let range = Range::new(protections);
        let mut successes = Vec::new();
        let made = made();
        for attack in BOUNDED.iter().copied().chain(made.iter().map(String::as_str)) {
            let (answer, elapsed) = range.attack(attack);
            let mut traces = range.traces(attack, &answer, protections.lock);
            if elapsed > TIME + OVER_WITHIN {
                traces.push(format!("took {elapsed:?}"));
            }
            if let Some(process) = range.world.tables.process(&range.mallory) {
                let resident = resident(process);
                // DuckDB does not count the memory of list functions; only the limit of the process
                // applies to it.
                if protections.process && resident > (128 + 1024) << 20 {
                    traces.push(format!("uses {resident} bytes"));
                }
            }
            traces.extend(range.next_query_fails());
            if !traces.is_empty() {
                let shown: String = attack.chars().take(80).collect();
                successes.push(format!("{shown}: {}", traces.join("; ")));
            }
        }
        assert!(successes.is_empty(), "{protections:?}: {successes:#?}");
        // No attack was taken for a damaged file.
        let rows = range.world.rows(&range.mallory, "SELECT count(*) AS n FROM pool_swap");
        assert_eq!(rows, json!([{"n": 5}]));
    }
}

/// Returns the peak resident memory of a process in bytes (proc(5), `VmHWM`); 0 when there is no
/// such process.
pub fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

#[test]
fn a_worker_has_access_only_to_its_own_file() {
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
