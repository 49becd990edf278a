//! Rows in a PostgreSQL database: how long after our own SQL it has those of a new ledger; how fast the tables of a
//! project are filled in, against a binary `COPY` of the same rows into tables with the same key; and what ingestion
//! takes beside a database that lives, hangs or is not there.

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use orrery::control::{Client as Control, SINK_REPLACE, SINKS};
use orrery::domain::{ContractId, sequence_of};
use orrery::settings::{Seconds, Sink as Settings};
use orrery::sinks::{SinkProjectReport, SinkProjectRequest, SinkProjectState};
use serde_json::json;

use super::baseline::postgres::{self, Postgres};
use super::client::Client;
use super::declaring::{Declaring, Upgrade};
use super::indexing::{LedgersWithCalls, raw};
use super::measure::{COMPARISON_REPETITIONS, REPETITIONS, Sample, Sides, quantile, sized};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};
use super::sql::ask_if_ready;

/// Goal for the milliseconds after our own answer.
const LAG: Goal = Goal::at_most(100.0, 20.0);
const FILL: Goal = Goal::at_least(0.5, 0.8);
/// Goals for ingestion beside a living database, and beside one that is dead or hangs.
const LIVING: Goal = Goal::at_least(0.9, 1.0);
const DEAD: Goal = Goal::at_least(0.97, 1.0);

/// Copies of the recorded ledgers per repetition.
const COPIES: u64 = sized(9, 2);
/// Calls per ledger, each with an event.
const CALLS: usize = 5;
/// Events of the project that is filled in, each of which is two rows.
const EVENTS: u64 = sized(200_000, 20);
/// Ledgers whose rows are waited for, after the first ones.
const CLOSED: u64 = sized(120, 5);
const FIRST_LEDGERS: u64 = 5;
/// Pause after the rows of a ledger were there, before the next ledger closes.
const PAUSE: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(60);
const SINK: &str = "main";
const PROJECT: &str = "copied";
const OWNER: &str = "ratios";
/// Address at which nobody answers.
const NOBODY: &str = "postgres://ratios@127.0.0.1:1/postgres";

type Failed = Box<dyn Error>;

/// Measures all rows.
pub fn run(recorded: &Recorded, directory: &Path, report: &mut Report) -> Result<(), Failed> {
    let Some(programs) = postgres::installed() else {
        report.note("Copying is skipped: PostgreSQL is not installed.");
        return Ok(());
    };
    let scene = Scene { recorded, directory, programs: &programs };
    scene.lag(report)?;
    scene.fill(report)?;
    scene.ingestion(report)
}

struct Scene<'a> {
    recorded: &'a Recorded,
    directory: &'a Path,
    /// Directory of the binaries of PostgreSQL.
    programs: &'a Path,
}

impl Scene<'_> {
    /// Starts a service with a project of this contract, and a sink if there is an address.
    fn start(&self, contract: ContractId, url: Option<&str>) -> Result<Running, Failed> {
        let service = Running::start(&self.recorded.network, self.directory, |config| {
            config.sinks.0.extend(url.map(|url| (SINK.to_owned(), settings(url))));
        })?;
        let watch = json!({ "project_name": PROJECT, "contracts": [contract.to_string()] });
        service.client(OWNER)?.post("/rest/retroshade/watch", watch.to_string().as_bytes())?;
        Ok(service)
    }

    fn lag(&self, report: &mut Report) -> Result<(), Failed> {
        let load = Declaring::usually(FIRST_LEDGERS + CLOSED);
        let contract = load.contracts().next().ok_or("there is a contract")?;
        let mut ledgers = Vec::new();
        load.each(self.recorded, |ledger| ledgers.push(ledger));
        let (mut worst, mut usual) = (Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            let mut postgres = Postgres::start(self.programs)?;
            let service = self.start(contract, Some(&postgres.url()))?;
            let times = self.lags(&service, &mut postgres, &ledgers)?;
            service.stop()?;
            worst.push(quantile(&times, 0.99));
            usual.push(quantile(&times, 0.5));
        }
        report.note(format!(
            "Copying: {CLOSED} ledgers a repetition, each with {} events of the project; both are asked in turn, with a \
             pause of {} ms; median {:.1} ms.",
            load.in_a_ledger(),
            POLL_INTERVAL.as_millis(),
            Sample::from(usual).median(),
        ));
        let name = "Copying rows, from our own answer until PostgreSQL has them, p99";
        report.add(Row::absolute(name, "ms", Sample::from(worst), LAG));
        Ok(())
    }

    /// Returns the milliseconds between both answers of each ledger, except the first ones.
    fn lags(
        &self,
        service: &Running,
        postgres: &mut Postgres,
        ledgers: &[Vec<u8>],
    ) -> Result<Vec<f64>, Failed> {
        let mut client = service.client(OWNER)?;
        let mut times = Vec::with_capacity(ledgers.len());
        thread::scope(|scope| -> Result<(), Failed> {
            let (closed, arriving) = sync_channel(1);
            let ingesting = scope.spawn(|| service.ingest(arriving.into_iter()));
            for xdr in ledgers {
                let ledger = sequence_of(xdr)?.0;
                if closed.send(raw(xdr)).is_err() {
                    break;
                }
                times.push(between(&mut client, postgres, ledger)?);
                thread::sleep(PAUSE);
            }
            drop(closed);
            let ingested = ingesting.join().map_err(|_| "ingestion panicked")?;
            ingested.map_err(|error| Failed::from(error.to_string()))
        })?;
        Ok(times.split_off(FIRST_LEDGERS as usize))
    }

    fn fill(&self, report: &mut Report) -> Result<(), Failed> {
        let load = Declaring::new(1, Upgrade::Never, EVENTS);
        let contract = load.contracts().next().ok_or("there is a contract")?;
        let mut postgres = Postgres::start(self.programs)?;
        let service = self.start(contract, Some(&postgres.url()))?;
        let mut ledgers = Vec::new();
        load.each(self.recorded, |ledger| ledgers.push(ledger));
        service.seconds_to_ingest(&ledgers)?;
        let mut control = Control::connect(service.data.path())?.ok_or("no service")?;
        let rows = 2 * load.events();
        wait_until("all rows are there", || {
            let project = project(&mut control);
            project.is_some_and(|it| it.tables.iter().map(|it| it.rows).sum::<u64>() >= rows)
        })?;
        let tables: Vec<String> = postgres
            .ask("SELECT object_name FROM orrery.objects WHERE kind = 'table' AND rows > 0")?
            .lines;
        let mut sides = Vec::new();
        for _ in 0..REPETITIONS {
            let ours = filled(&mut control)?;
            let plain = plainly_copied(&mut postgres, &tables)?;
            sides.push((rows as f64 / ours, rows as f64 / plain));
        }
        service.stop()?;
        report.note(format!(
            "Copying: {rows} rows in {} tables are filled in again, from the order until they are in their place. COPY reads \
             the same rows from a file of the server, in binary, and makes the key afterwards; the server is the same.",
            tables.len()
        ));
        let sides: Sides = sides.into_iter().collect();
        report.add(Row::new(
            "Copying rows, filled in / binary COPY with the key",
            "rows/s",
            sides,
            FILL,
        ));
        Ok(())
    }

    fn ingestion(&self, report: &mut Report) -> Result<(), Failed> {
        let busy = LedgersWithCalls::new(self.recorded, COPIES, CALLS);
        // Takes connections, and answers nothing.
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let hanging = format!("postgres://ratios@{}/postgres", listener.local_addr()?);
        let mut sides = [(); 3].map(|()| Vec::new());
        for _ in 0..COMPARISON_REPETITIONS {
            let alone = self.ledgers_per_second(&busy, None)?;
            let postgres = Postgres::start(self.programs)?;
            let living = postgres.url();
            for (sides, url) in sides.iter_mut().zip([&*living, NOBODY, &*hanging]) {
                sides.push((self.ledgers_per_second(&busy, Some(url))?, alone));
            }
        }
        let goals = [("living", LIVING), ("dead", DEAD), ("hanging", DEAD)];
        for (sides, (what, goal)) in sides.into_iter().zip(goals) {
            let name = format!("Copying rows, ingestion with a {what} database / without");
            report.add(Row::new(name, "ledgers/s", sides.into_iter().collect(), goal));
        }
        Ok(())
    }

    fn ledgers_per_second(
        &self,
        busy: &LedgersWithCalls<'_>,
        url: Option<&str>,
    ) -> Result<f64, Failed> {
        let service = self.start(busy.deposits(), url)?;
        let seconds = service.seconds_to_ingest(&busy.ledgers)?;
        service.stop()?;
        Ok(busy.ledgers.len() as f64 / seconds)
    }
}

fn settings(url: &str) -> Settings {
    Settings {
        url: url.to_owned(),
        projects: vec!["*".to_owned()],
        settle_seconds: Seconds::new(std::num::NonZeroU32::MIN),
        ..Settings::default()
    }
}

/// Waits until both have rows of a ledger; returns how many milliseconds PostgreSQL was later, 0 if it was not.
fn between(client: &mut Client, postgres: &mut Postgres, ledger: u32) -> Result<f64, Failed> {
    let own = format!("select max(_ledger) as n from {PROJECT}.transfer");
    let theirs =
        format!("SELECT encode(_row, 'hex') FROM {PROJECT}.transfer ORDER BY _row DESC LIMIT 1");
    let wanted = format!("{ledger:08x}");
    let (mut answered, mut there) = (None, None);
    let begun = Instant::now();
    while answered.is_none() || there.is_none() {
        if begun.elapsed() > TIMEOUT {
            let own = ask_if_ready(client, &own);
            let theirs = postgres.ask(&theirs).map(|answer| answer.lines);
            return Err(
                format!("the rows of ledger {ledger} do not come: {own:?}, {theirs:?}").into()
            );
        }
        if answered.is_none() {
            // There is no table before the first rows.
            let rows = ask_if_ready(client, &own).unwrap_or_default();
            answered = rows.filter(|rows| rows[0]["n"] == ledger).map(|_| Instant::now());
        }
        if there.is_none() && has_table(postgres)? {
            let newest = postgres.ask(&theirs)?.lines;
            let is_there = newest.first().is_some_and(|row| row.starts_with(&wanted));
            there = is_there.then(Instant::now);
        }
        thread::sleep(POLL_INTERVAL);
    }
    let later = answered.zip(there).map(|(own, there)| there.saturating_duration_since(own));
    Ok(later.unwrap_or_default().as_secs_f64() * 1e3)
}

fn has_table(postgres: &mut Postgres) -> Result<bool, Failed> {
    let found = postgres.ask(&format!("SELECT to_regclass('{PROJECT}.transfer') IS NOT NULL"))?;
    Ok(found.lines.first().is_some_and(|line| line == "t"))
}

/// What the service says of the project.
fn project(control: &mut Control) -> Option<SinkProjectReport> {
    let sinks = control.ask(SINKS, &()).ok()?;
    sinks.into_iter().flat_map(|sink| sink.projects).find(|it| it.project == PROJECT)
}

/// Orders to fill the tables again; returns the seconds until they are in their place.
fn filled(control: &mut Control) -> Result<f64, Failed> {
    let request = SinkProjectRequest { sink: SINK.to_owned(), project: PROJECT.to_owned() };
    let begun = Instant::now();
    control.ask(SINK_REPLACE, &request)?;
    wait_until("the tables are filled", || {
        use SinkProjectState::{CatchingUp, Live};
        project(control).is_some_and(|it| matches!(it.state, CatchingUp | Live))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Copies the rows of tables into others, with the same key; returns the seconds that it took.
fn plainly_copied(postgres: &mut Postgres, tables: &[String]) -> Result<f64, Failed> {
    let mut millis = 0.0;
    for (number, table) in tables.iter().enumerate() {
        let file = postgres.file(&format!("copied{number}")).display().to_string();
        postgres.ask(&format!("COPY {PROJECT}.\"{table}\" TO '{file}' (FORMAT binary)"))?;
        postgres.ask(&format!("CREATE TABLE public.plain (LIKE {PROJECT}.\"{table}\")"))?;
        for sql in [
            format!("COPY public.plain FROM '{file}' (FORMAT binary)"),
            "ALTER TABLE public.plain ADD PRIMARY KEY (_row)".to_owned(),
            "ANALYZE public.plain".to_owned(),
        ] {
            millis += postgres.ask(&sql)?.millis;
        }
        postgres.ask("DROP TABLE public.plain")?;
    }
    Ok(millis / 1e3)
}
