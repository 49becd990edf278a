//! `orrery export`: writes events, transactions and tables of programs as Parquet files for other engines.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use orrery::config::{Config, Settings};
use orrery::control::{CHECKPOINT, STATUS};
use orrery::domain::{LedgerRange, LedgerSeq, LedgerSet};
use orrery::executables::{self, ExecutableIndex, Interfaces};
use orrery::export::{self, AddedRows, Attestations, Destination, ExportError, Interrupt};
use orrery::programs::storage::KIND;
use orrery::service::{self, ExportRole};
use orrery::store::{Extensions, Needs, Store};
use serde::Serialize;

use super::open::{self, Opened};
use super::{Common, Failure, output};

/// Interval of the status requests that keep the control connection open during the export. The
/// service closes a connection that is idle for ten minutes, and removes its checkpoint.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Write events, transactions and tables of programs as Parquet files
///
/// Other engines read the tables as Iceberg's, or the files directly. Ledgers that were exported already are
/// skipped, so an interrupted export can be started again without missing or repeated rows. The file
/// manifest.json lists all valid files, and views.sql, for DuckDB, has a view of every table over its files. A service that runs on the data directory keeps storing ledgers: those stored when the
/// export began are exported. With `export.to` in the settings the service exports continuously by itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery export --data-dir d --to-dir lake
  duckdb -c '.read lake/views.sql' -c 'from chain.events limit 3'
  orrery export --data-dir d --into s3://bucket/prefix
  orrery export --data-dir d --to-dir /mnt/lake --rebase
  orrery export --data-dir d --from 63092982 --to 63092993 --to-dir lake --json")]
pub struct Export {
    /// Destination of the export, which is new, empty or holds an earlier export: a directory, or s3://BUCKET/PREFIX,
    /// accessed with the settings export.s3_… or the environment (AWS_ACCESS_KEY_ID and so on). Without it the
    /// setting export.to
    #[arg(long, value_name = "PLACE")]
    into: Option<String>,
    /// The same as --into with a directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "into")]
    to_dir: Option<PathBuf>,
    /// First ledger. Without --from and --to everything stored is exported; with only one of them, the ledgers stored
    /// without a gap from it on, or up to it. With either of them, no tables of programs are exported
    #[arg(long, value_name = "LEDGER")]
    from: Option<u32>,
    /// Last ledger
    #[arg(long, value_name = "LEDGER", value_parser = last_ledger)]
    to: Option<u32>,
    /// Number of ledgers whose rows share a file, and which are exported together or not at all. Without it the
    /// setting export.ledgers_per_file, 1000
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    ledgers_per_file: Option<u32>,
    /// Leave out the tables of programs
    #[arg(long)]
    no_programs: bool,
    /// The destination is an export that was moved or copied from elsewhere: let its tables and views name their
    /// files where they are now. Snapshots from before are gone
    #[arg(long)]
    rebase: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Parses the last ledger. For text that looks like a path, the error refers to `--into`.
fn last_ledger(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        if text.contains('/') {
            "--to is the last ledger: give the destination with --into".to_owned()
        } else {
            "it is not a ledger: give a number".to_owned()
        }
    })
}

/// Destination and options of an export.
struct Target {
    destination: Destination,
    portion: u32,
    programs: bool,
}

#[derive(Serialize)]
struct Summary {
    from: u32,
    to: u32,
    new_ledgers: u64,
    new_events: u64,
    new_transactions: u64,
    /// Number of new rows in tables of programs.
    new_rows: u64,
    /// Number of stored ledgers that an export of everything leaves out, because retention has removed
    /// records of them.
    left_out: u64,
    files: usize,
}

impl Export {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            return Err(Failure::usage(format!("--from {from} is after --to {to}")));
        }
        let settings = common.settings_to_copy()?;
        let target = self.target(&settings.config)?;
        match indexed(&settings, open::look(&settings)?)? {
            Opened::Local(ledgers) => {
                let attested = Attestations::Live(Arc::clone(ledgers.attestation()));
                self.export(ledgers.store(), &target, attested, &mut || Ok(()))
            }
            Opened::Running(mut client) => {
                let report = client.ask(CHECKPOINT, &())?;
                let attested = Attestations::Ledgers(report.attested);
                let checkpoint = settings.config.data_dir.join(report.directory);
                // The service removes the checkpoint when the control connection closes, so
                // `client` keeps it open.
                let extensions = Extensions::for_consumers(&[Arc::new(ExecutableIndex)]);
                let extensions = extensions.with_kind(KIND);
                let store = Arc::new(Store::open_with(&checkpoint, None, extensions)?);
                let mut last_keep_alive = Instant::now();
                let mut keep_alive = || {
                    if last_keep_alive.elapsed() > KEEP_ALIVE_INTERVAL {
                        last_keep_alive = Instant::now();
                        client.ask(STATUS, &())?;
                    }
                    Ok(())
                };
                // Events are named by the index, whose progress may be written later than the
                // checkpoint was made.
                while store.step(&ExecutableIndex)? {
                    keep_alive()?;
                }
                self.export(&store, &target, attested, &mut keep_alive)
            }
        }
    }

    fn target(&self, config: &Config) -> Result<Target, Failure> {
        let portion = self.ledgers_per_file.unwrap_or(config.export.ledgers_per_file.get());
        let named = self.into.as_deref().or(config.export.destination());
        let destination = match (&self.to_dir, named) {
            (Some(directory), _) => Destination::directory(directory),
            (None, Some(to)) => {
                service::export_destination(to, config, ExportRole::Manual, Interrupt::default())?
            }
            (None, None) => {
                return Err(Failure::usage(
                    "give the destination of the export: --into DIRECTORY or --into s3://BUCKET/PREFIX",
                ));
            }
        };
        let whole = self.from.is_none() && self.to.is_none();
        let programs = whole && !self.no_programs && config.export.programs;
        Ok(Target { destination, portion, programs })
    }

    /// Exports the requested ledgers of a store, and calls `go_on` after each portion. An error of
    /// `go_on` ends the export.
    fn export(
        self,
        store: &Arc<Store>,
        target: &Target,
        attested: Attestations,
        go_on: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let is_whole = self.from.is_none() && self.to.is_none();
        let wanted = self.wanted(store)?;
        let (Some(first), Some(last)) = (wanted.ranges().first(), wanted.ranges().last()) else {
            return Err(Failure::failed(
                "no ledger is stored with its events and transactions, so there is nothing to export",
            ));
        };
        let (first, last) = (first.first, last.last);
        let open = match self.rebase {
            true => export::Export::rebase,
            false => export::Export::open,
        };
        let export = open(&target.destination, store, Interrupt::default())?;
        let names = Interfaces::new(Arc::clone(store), None);
        let mut export = export.naming(names).attested_by(attested);
        let mut interrupted = Ok(());
        let added = export.add(store, &wanted, target.portion, |_, ledger| {
            tracing::debug!(ledger = ledger.0, "exported");
            interrupted = go_on();
            if interrupted.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut rows = AddedRows::default();
        if target.programs && interrupted.is_ok() {
            rows = export.add_programs(store)?;
        }
        let manifest = export.finish()?;
        interrupted?;
        let summary = Summary {
            from: first.0,
            to: last.0,
            new_ledgers: added.ledgers,
            new_events: added.events,
            new_transactions: added.transactions,
            new_rows: rows.rows,
            left_out: if is_whole { left_out(store, &manifest.ledgers) } else { 0 },
            files: manifest.files().count(),
        };
        if self.json { output::print_json(&summary) } else { output::print(&summary.to_string()) }?;
        match rows.failed {
            0 => Ok(()),
            failed => Err(Failure::failed(format!(
                "the rows of {failed} programs could not be exported, for the reasons logged above; everything else was exported"
            ))),
        }
    }
}

impl Export {
    /// Returns the ledgers to export. With only one bound, these are the ledgers stored without a
    /// gap from it on, or up to it.
    fn wanted(&self, store: &Store) -> Result<LedgerSet, Failure> {
        let status = store.status();
        let stored = status.ledgers_with(Needs::RECORDS);
        let around = |ledger: u32| {
            let ledger = LedgerSeq(ledger);
            let range = stored.ranges().iter().find(|range| range.contains(ledger));
            let alone = LedgerRange::only(ledger);
            range.copied().ok_or(match status.ranges.iter().any(|range| range.contains(ledger)) {
                true => ExportError::Pruned(alone),
                false => ExportError::Missing(alone),
            })
        };
        Ok(match (self.from, self.to) {
            (None, None) => stored,
            (Some(from), Some(to)) => LedgerRange::new(from, to).into(),
            (Some(from), None) => LedgerRange { first: LedgerSeq(from), ..around(from)? }.into(),
            (None, Some(to)) => LedgerRange { last: LedgerSeq(to), ..around(to)? }.into(),
        })
    }
}

/// Returns the ledgers as they were opened, with an index of the code of contracts that has all of them:
/// without it, events would be exported without their names, and never again. A service that runs
/// maintains it; after an import without one, this command does.
fn indexed(settings: &Settings, opened: Opened) -> Result<Opened, Failure> {
    let behind = match &opened {
        Opened::Local(node) => behind(node.store()),
        Opened::Running(_) => 0,
    };
    if behind == 0 {
        return Ok(opened);
    }
    // It was opened for reading only.
    drop(opened);
    let opened = open::open_existing(settings).map_err(|failure| {
        failure.and(format!(
            "it has to be opened for writing, because {behind} stored ledgers are not indexed yet, and \
             their events would have no names"
        ))
    })?;
    if let Opened::Local(node) = &opened {
        while node.store().step(&ExecutableIndex)? {}
    }
    Ok(opened)
}

/// Returns the number of stored ledgers that the index has not processed.
fn behind(store: &Store) -> u64 {
    let place = store.consumer(executables::CONSUMER).map_or(0, |index| index.place);
    store.last_place().saturating_sub(place)
}

/// Returns the number of stored ledgers that are not exported.
fn left_out(store: &Store, exported: &LedgerSet) -> u64 {
    let mut stored: LedgerSet = store.status().ranges.into_iter().collect();
    stored.remove_all(exported);
    stored.ledgers()
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "ledgers {} to {}: {} newly exported ledgers, {} events, {} transactions, {} rows of programs; {} files in total",
            self.from,
            self.to,
            output::count(self.new_ledgers),
            output::count(self.new_events),
            output::count(self.new_transactions),
            output::count(self.new_rows),
            self.files
        )?;
        match self.left_out {
            0 => Ok(()),
            left_out => writeln!(
                f,
                "{} stored ledgers are left out, because retention has removed events or transactions of them",
                output::count(left_out)
            ),
        }
    }
}
