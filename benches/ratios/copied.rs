//! Rows in a PostgreSQL database: how fast the tables of a project are filled in, against a binary `COPY` of the same
//! rows into tables with the same key; and what ingestion takes beside a database that lives, hangs or is not there.

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use orrery::control::{Client as Control, SINK_REPLACE, SINKS};
use orrery::domain::ContractId;
use orrery::settings::{Seconds, Sink as Settings};
use orrery::sinks::{SinkProjectReport, SinkProjectRequest, SinkProjectState};
use serde_json::json;

use super::baseline::postgres::{self, Postgres};
use super::declaring::{Declaring, Upgrade};
use super::indexing::LedgersWithCalls;
use super::measure::{COMPARISON_REPETITIONS, REPETITIONS, Sides, sized};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};

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
