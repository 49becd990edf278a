//! P17 and P18: queries over a million rows. The measured queries go over HTTP as users send them,
//! with token, examination of the statement, child process and JSON. P17 compares with a connection
//! of this process to a copy of the same file, P18 with PostgreSQL.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duckdb::Connection;
use orrery::domain::{Network, Owner, ProgramId};
use orrery::programs::{Deploy, Programs, Replace, storage};
use orrery::store::Store;
use orrery::tables::Tables;
use serde_json::{Value, json};

use super::baseline::postgres::{self, Postgres};
use super::client::Client;
use super::deposits::{Deposits, built};
use super::http::Server;
use super::indexing::start_programs;
use super::measure::{REPETITIONS, Sides, quantile, sized, time};
use super::report::{Goal, Report, Row};
use super::rows::tables;
use super::swaps::{Swaps, TARGET};

const P17: Goal = Goal::at_most(1.5, 1.1);
const P18: Goal = Goal::at_least(10.0, 100.0);

const RUNS: u64 = sized(333_334, 1_000);
const RUNS_AT_ONCE: u64 = 2_048;
/// Queries to either side per repetition of P17.
const QUESTIONS: usize = sized(20, 2);
/// Queries to either side per repetition of P18.
const FEW_QUESTIONS: usize = sized(3, 1);
/// Owner of the token that the benches' servers issue.
const OWNER: &str = "ratios";
const TIMEOUT: Duration = Duration::from_secs(60);

const AGGREGATE: &str = "select pool, count(*) as n, sum(amount) as total, max(fee) as fee, \
    max(_ledger) as last from TABLE group by pool order by pool";
const SUMS: &str = "select pool, sum(amount) as total from TABLE group by pool order by pool";

/// Measures the selected goals of P17 and P18.
pub fn run(
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let swaps = Swaps::new(RUNS);
    let directory = tempfile::tempdir_in(directory)?;
    let scene = Scene::new(&swaps, directory.path())?;
    let mut client = scene.server.client()?;
    if wanted("P17") {
        let file = scene.copied_file(directory.path())?;
        let bare = Connection::open(file)?;
        bare.execute_batch("SET threads = 1; SET memory_limit = '512MiB'; USE retroshade")?;
        let table = format!("program_1_{TARGET}");
        let sql = AGGREGATE.replace("TABLE", &table);
        let rows = bare_rows(&bare, &sql)?;
        report.note(format!(
            "P17: over {} rows, {rows} groups; both sides use one thread and parse the query each time.",
            swaps.len()
        ));
        let sides = medians(
            QUESTIONS,
            || millis(|| ask(&mut client, &sql).map(drop)),
            || millis(|| bare_rows(&bare, &sql).map(drop)),
        )?;
        let name = "P17 aggregate of a million rows over HTTP / bare connection";
        report.add(Row::new(name, "ms", sides, P17));
    }
    if wanted("P18") {
        match postgres::installed() {
            Some(programs) => against_postgres(&swaps, &mut client, &programs, report)?,
            None => report.note("P18 is skipped: PostgreSQL is not installed."),
        }
    }
    scene.programs.stop();
    Ok(())
}

fn against_postgres(
    swaps: &Swaps,
    client: &mut Client,
    programs: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut postgres = Postgres::start(programs)?;
    postgres.ask(
        "CREATE TABLE swaps (contract_id text, transaction text, _service_event_id text, _ledger bigint,
         _ledger_closed_at timestamp, amount numeric, fee bigint, pool text, buyer text, sequence numeric, buy boolean)",
    )?;
    let plain = swaps.plain();
    let lines = plain.iter().map(|row| {
        format!(
            "{}\t{}\t{}\t{}\tepoch\t{}\t{}\t{}\t{}\t{}\t{}",
            row.contract,
            row.transaction,
            row.event_id,
            row.ledger,
            row.amount,
            row.fee,
            row.pool,
            row.buyer,
            row.sequence,
            row.buy,
        )
    });
    postgres.copy("swaps", lines)?;
    postgres.ask("VACUUM ANALYZE swaps")?;
    let version = postgres.ask("SHOW server_version")?.lines.join(" ");
    let (asked, sql) =
        (SUMS.replace("TABLE", &format!("program_1_{TARGET}")), SUMS.replace("TABLE", "swaps"));
    let ours = ask(client, &asked)?;
    let theirs = postgres.ask(&sql)?.lines;
    if sums_of_json(&ours)? != theirs {
        return Err(format!("the sums differ: {ours} and {theirs:?}").into());
    }
    report.note(format!(
        "P18: {} rows; PostgreSQL {version} in memory (shared buffers of 1 GB, its own choice of parallel workers), the \
         time that psql shows; the sums are equal.",
        swaps.len()
    ));
    let sides = medians(
        FEW_QUESTIONS,
        || millis(|| ask(client, &asked).map(drop)),
        || Ok(postgres.ask(&sql)?.millis),
    )?;
    let name = "P18 exact sums of 128 bits over HTTP / PostgreSQL NUMERIC";
    report.add(Row::new(name, "queries/s", sides.to_rates(1e3), P18));
    Ok(())
}

/// Formats the rows as `psql` does.
fn sums_of_json(answer: &Value) -> Result<Vec<String>, Box<dyn Error>> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = answer.as_array().ok_or("no rows")?;
    Ok(rows.iter().map(|row| format!("{}|{}", text(&row["pool"]), text(&row["total"]))).collect())
}

/// Returns the medians of each repetition; the sides alternate after each query.
fn medians(
    questions: usize,
    mut ours: impl FnMut() -> Result<f64, Box<dyn Error>>,
    mut baseline: impl FnMut() -> Result<f64, Box<dyn Error>>,
) -> Result<Sides, Box<dyn Error>> {
    // Warm-up.
    ours()?;
    baseline()?;
    let mut repetition = || -> Result<(f64, f64), Box<dyn Error>> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..questions {
            a.push(ours()?);
            b.push(baseline()?);
        }
        Ok((quantile(&a, 0.5), quantile(&b, 0.5)))
    };
    (0..REPETITIONS).map(|_| repetition()).collect()
}

fn millis(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut done = Ok(());
    let took = time(|| done = work());
    done.map(|()| took.as_secs_f64() * 1e3)
}

/// Sends a query over HTTP.
pub fn ask(client: &mut Client, sql: &str) -> Result<Value, Box<dyn Error>> {
    let body = json!({ "query": sql }).to_string();
    Ok(serde_json::from_slice(client.post("/rest/retroshade/query", body.as_bytes())?)?)
}

/// Like [`ask`], but returns `None` while the tables are being filled, and when the owner has as many
/// queries as it may have.
pub fn ask_if_ready(client: &mut Client, sql: &str) -> Result<Option<Value>, Box<dyn Error>> {
    match ask(client, sql) {
        Err(error) if error.to_string().starts_with("503: {\"code\":\"not_ready\"") => Ok(None),
        Err(error) if error.to_string().starts_with("429") => Ok(None),
        answer => answer.map(Some),
    }
}

fn bare_rows(connection: &Connection, sql: &str) -> Result<usize, Box<dyn Error>> {
    let mut statement = connection.prepare(sql)?;
    let batches: Vec<_> = statement.query_arrow([])?.collect();
    Ok(std::hint::black_box(batches).iter().map(|batch| batch.num_rows()).sum())
}

/// A server with a program whose tables hold a million rows that the bench wrote, not the program.
struct Scene {
    server: Server,
    programs: Arc<Programs>,
    tables: Tables,
    owner: Owner,
}

impl Scene {
    fn new(swaps: &Swaps, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let network = Network::from_passphrase("swaps");
        let store =
            Store::open_with(&directory.join("data"), Some(&network), storage::extensions())?;
        let store = Arc::new(store);
        let tables = tables(&directory.join("tables"))?;
        let programs = start_programs(&store, tables.clone(), None)?;
        let owner = Owner(OWNER.to_owned());
        programs.deploy(
            &owner,
            Deploy {
                code: built("deposit_program"),
                project_name: "swaps".to_owned(),
                contracts: vec![Deposits::new().contract],
                public: None,
                replace: Replace::No,
                allow_unfit: true,
            },
        )?;
        // The service declares the program's tables once; rows are written after that.
        let begun = Instant::now();
        while !tables.watermarks(&owner)?.contains_key(&ProgramId(1)) {
            if begun.elapsed() > TIMEOUT {
                return Err("the tables do not learn of the program".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        tables.apply(&owner, vec![swaps.definition("swaps")])?;
        for change in swaps.changes(RUNS_AT_ONCE) {
            tables.apply(&owner, vec![change])?;
        }
        let server = Server::start(store, Arc::clone(&programs))?;
        Ok(Self { server, programs, tables, owner })
    }

    /// Copies the database file of the tables and returns the path of the copy.
    fn copied_file(&self, directory: &Path) -> Result<std::path::PathBuf, Box<dyn Error>> {
        self.tables.close();
        let file = self.tables.directory(&self.owner).join("db").join("tables.duckdb");
        let copy = directory.join("copy.duckdb");
        std::fs::copy(&file, &copy)?;
        Ok(copy)
    }
}
