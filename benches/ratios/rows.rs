//! P15 and P16: writing rows into DuckDB. The measured side passes them to a child process, column
//! by column, with a watermark in each transaction; the baseline writes them in this process. Both
//! commit to disk after the same number of rows.

use std::error::Error;
use std::path::{Path, PathBuf};

use orrery::domain::Owner;
use orrery::settings::Queries;
use orrery::tables::{Tables, TablesSettings, Tunables};

use super::baseline::rows::{self, PlainRow};
use super::measure::{alternate, sized, time};
use super::report::{Goal, Report, Row};
use super::swaps::Swaps;

const P15: Goal = Goal::at_least(0.6, 0.9);
const P16: Goal = Goal::at_least(30.0, 150.0);

/// Runs whose rows are written to the tables in one transaction.
const RUNS_AT_ONCE: u64 = 8_192;
const RUNS: u64 = sized(100_000, 300);
/// Rows that the baseline of P16 inserts one by one.
const INSERTED: usize = sized(5_000, 100);

/// Opens tables in a directory, with the built binary as their SQL worker.
pub fn tables(directory: &Path) -> Result<Tables, Box<dyn Error>> {
    Ok(Tables::open(TablesSettings {
        directory: directory.to_owned(),
        worker: PathBuf::from(env!("CARGO_BIN_EXE_orrery")),
        queries: Queries { allow_unconfined: true, ..Queries::default() },
        chain: None,
        tunables: Tunables::default(),
    })?)
}

/// Measures the selected goals of P15 and P16.
pub fn run(
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let swaps = Swaps::new(RUNS);
    let plain = swaps.plain();
    let per_commit = swaps.len() / RUNS as usize * RUNS_AT_ONCE as usize;
    report.note(format!(
        "P15 and P16: {} rows of 11 columns ({INSERTED} one by one), {per_commit} in each transaction on both sides; the first \
         change, which starts the process, is not counted.",
        swaps.len()
    ));
    let ours = || ours_per_second(&swaps, directory).expect("the rows are taken in");
    if wanted("P15") {
        let append =
            |connection: &_, rows: &[_]| rows::append(connection, "swaps", rows, per_commit);
        let baseline = || plain_per_second(directory, &plain, append).expect("rows are appended");
        let name = "P15 rows into tables / DuckDB's appender";
        report.add(Row::new(name, "rows/s", alternate(ours, baseline), P15));
    }
    if wanted("P16") {
        let insert =
            |connection: &_, rows: &[_]| rows::insert(connection, "swaps", rows, per_commit);
        let few = &plain[..INSERTED];
        let baseline = || plain_per_second(directory, few, insert).expect("rows are inserted");
        let name = "P16 rows into tables / one INSERT per row";
        report.add(Row::new(name, "rows/s", alternate(ours, baseline), P16));
    }
    Ok(())
}

fn ours_per_second(swaps: &Swaps, directory: &Path) -> Result<f64, Box<dyn Error>> {
    let directory = tempfile::tempdir_in(directory)?;
    let tables = tables(directory.path())?;
    let owner = Owner("ratios".to_owned());
    tables.apply(&owner, vec![swaps.definition("swaps")])?;
    let changes = swaps.changes(RUNS_AT_ONCE);
    let mut done = Ok(());
    let took = time(|| {
        done = tables.apply_in_order(&owner, changes.into_iter().map(|change| vec![change]));
    });
    done?;
    tables.close();
    Ok(swaps.len() as f64 / took.as_secs_f64())
}

fn plain_per_second(
    directory: &Path,
    plain: &[PlainRow],
    write: impl FnOnce(&duckdb::Connection, &[PlainRow]) -> duckdb::Result<()>,
) -> Result<f64, Box<dyn Error>> {
    let directory = tempfile::tempdir_in(directory)?;
    let connection = rows::database::<PlainRow>(&directory.path().join("plain.duckdb"), "swaps")?;
    let mut done = Ok(());
    let took = time(|| done = write(&connection, plain));
    done?;
    Ok(plain.len() as f64 / took.as_secs_f64())
}
