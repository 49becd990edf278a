//! `orrery backfill`: stores older ledgers, in this process or through the running service.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use orrery::config::Settings;
use orrery::control::{
    BACKFILL, BackfillOrder, BackfillReport, BackfillRequest, BackfillState, Client, ControlError,
};
use orrery::service::{Backfills, Node, OrderFile, sources};
use tokio::sync::watch;

use super::open::{self, Opened};
use super::program_name::ProgramName;
use super::programs::{self, BackfillAction};
use super::remote::Remote;
use super::serve::{runtime, source_address, stop_on_signal};
use super::state_backfill::{StateAction, StateFlags};
use super::{Common, Failure, NetworkFlags, begin_log, output};

/// Fill in older ledgers from lakes, RPC servers or a stellar-core
///
/// Fetches the missing ledgers of a range, the newest part first, and skips those already stored. While a
/// service runs on the data directory, the service fetches them in addition to new ledgers. Ctrl-C cancels
/// the backfill and keeps what is stored; with --detach the service continues on its own. An interrupted
/// backfill resumes when the service starts again, or with `orrery backfill` without a range.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery backfill --data-dir d --from 62000000 --to 62999999
  orrery backfill --data-dir d --from 2 --to 100000 --source ./lake --source rpc
  orrery backfill deposits --from 62000000
  orrery backfill --data-dir d --state --from-archive ./archive
  orrery backfill --data-dir d --status
  orrery backfill --data-dir d --cancel")]
pub struct Backfill {
    /// Run an indexing program on stored ledgers instead: its project's name, or its id
    #[arg(conflicts_with_all = ["source", "network"])]
    program: Option<ProgramName>,
    /// First ledger
    #[arg(long, value_name = "LEDGER")]
    from: Option<u32>,
    /// Last ledger; a program runs up to the newest one if it is not given
    #[arg(long, value_name = "LEDGER", requires = "from")]
    to: Option<u32>,
    /// Source to use instead of the configured ones: lake, rpc, core, or an address as in source.gaps;
    /// may be repeated
    #[arg(long, value_name = "SOURCE", requires = "from")]
    source: Vec<String>,
    #[command(flatten)]
    network: NetworkFlags,
    #[command(flatten)]
    state: StateFlags,
    /// Leave the work to the service and return at once
    #[arg(long)]
    detach: bool,
    /// Show the progress
    #[arg(long, conflicts_with_all = ["from", "cancel"])]
    status: bool,
    /// Cancel the backfill; stored ledgers are kept
    #[arg(long, conflicts_with = "from")]
    cancel: bool,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

/// Interval between two checks of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two progress lines without a terminal.
const REPORT_EVERY: Duration = Duration::from_secs(5);

impl Backfill {
    /// Returns what the user wants to do with a program's backfill.
    fn action(&self) -> Result<BackfillAction, Failure> {
        match self.from {
            Some(from) => Ok(BackfillAction::Begin { from, to: self.to, detach: self.detach }),
            _ if self.cancel => Ok(BackfillAction::Cancel),
            _ if self.status => Ok(BackfillAction::Show),
            _ => Err(Failure::usage("give --from, or --status, or --cancel")),
        }
    }

    pub fn run(self, common: &Common, remote: &Remote) -> Result<(), Failure> {
        if let Some(program) = &self.program {
            return programs::backfill(remote, program, self.action()?, self.json);
        }
        if self.state.is_given() {
            let Self { status, cancel, detach, .. } = self;
            let action = StateAction { status, cancel, detach };
            return self.state.run(common, self.network.settings(), action, self.json);
        }
        if self.detach && self.from.is_none() {
            return Err(Failure::usage("give the ledgers with --from and --to"));
        }
        if self.from.is_some() && self.to.is_none() {
            return Err(Failure::usage("give the last ledger with --to"));
        }
        let network = self.network.settings();
        let settings = common.or_of_service(network.clone())?.load(network)?;
        let terminal = std::io::stderr().is_terminal();
        // On a terminal, a bar shows the progress, and log lines would disrupt it.
        begin_log(&settings, terminal)?;
        for name in &self.source {
            source_address(name)?;
        }
        let opened = match self.from {
            Some(_) => open::open(&settings, settings.config.network().as_ref())?,
            None if self.status => open::look(&settings)?,
            None => open::open_existing(&settings)?,
        };
        match opened {
            Opened::Running(client) => self.run_in_service(client, terminal),
            Opened::Local(node) => self.run_locally(Arc::from(node), &settings, terminal),
        }
    }

    fn order(&self) -> Option<BackfillOrder> {
        let (from, to) = (self.from?, self.to?);
        Some(BackfillOrder { from, to, sources: self.source.clone() })
    }

    /// Passes the work to the running service, and shows its progress.
    fn run_in_service(&self, mut client: Client, terminal: bool) -> Result<(), Failure> {
        let request = match self.order() {
            Some(order) => BackfillRequest::Start(order),
            None if self.cancel => BackfillRequest::Cancel,
            None => BackfillRequest::Status,
        };
        let report = client.ask(BACKFILL, &request)?;
        if self.status || self.detach {
            return self.print(&report);
        }
        let report = runtime()?.block_on(async {
            let stop = stop_on_signal()?;
            let display = ProgressDisplay::new(terminal);
            Ok::<_, Failure>(watch_service(&mut client, report, display, stop).await?)
        })?;
        self.finish(&report)
    }

    /// Runs the backfill in this process.
    fn run_locally(
        &self,
        node: Arc<Node>,
        settings: &Settings,
        terminal: bool,
    ) -> Result<(), Failure> {
        if self.detach {
            return Err(Failure::usage("--detach needs a service that runs on the data directory"));
        }
        let file = OrderFile::of(node.store().directory());
        if self.status {
            return self.print(&file.look()?.map(|order| idle(&order)).unwrap_or_default());
        }
        let interrupted = file.load()?;
        if self.cancel {
            file.remove()?;
            return Ok(());
        }
        let Some(order) = self.order().or(interrupted) else {
            return Err(Failure::usage(
                "there is no interrupted backfill to resume: give --from and --to",
            ));
        };
        let open_sources = sources::opener(&settings.config, &node);
        let report = runtime()?.block_on(async {
            let stop = stop_on_signal()?;
            let backfills = Backfills::new(node, open_sources);
            let mut display = ProgressDisplay::new(terminal);
            let watching = async {
                loop {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    display.show(&backfills.report());
                }
            };
            tokio::select! {
                ended = backfills.run(order, stop) => Ok::<_, Failure>(ended?),
                () = watching => Ok(backfills.report()),
            }
        })?;
        self.finish(&report)
    }

    fn finish(&self, report: &BackfillReport) -> Result<(), Failure> {
        match report.state {
            BackfillState::Failed => {
                let reason = report.reason.clone().unwrap_or_default();
                let stored = output::count(report.stored);
                Err(Failure::failed(format!("{reason}; {stored} ledgers were stored before")))
            }
            _ => self.print(report),
        }
    }

    fn print(&self, report: &BackfillReport) -> Result<(), Failure> {
        if self.json || !output::is_terminal() {
            return output::print_json(report);
        }
        output::print(&in_words(report))
    }
}

/// Returns the report of an interrupted backfill.
fn idle(order: &BackfillOrder) -> BackfillReport {
    BackfillReport { from: order.from, to: order.to, ..BackfillReport::default() }
}

/// Shows the service's progress until the work has ended. The stop signal cancels the work.
async fn watch_service(
    client: &mut Client,
    mut report: BackfillReport,
    mut display: ProgressDisplay,
    mut stop: watch::Receiver<bool>,
) -> Result<BackfillReport, ControlError> {
    let mut cancelled = false;
    while report.state == BackfillState::Running {
        display.show(&report);
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop), if !cancelled => {
                client.ask(BACKFILL, &BackfillRequest::Cancel)?;
                cancelled = true;
            }
        }
        report = client.ask(BACKFILL, &BackfillRequest::Status)?;
    }
    Ok(report)
}

/// Progress display: a bar on a terminal, or else a log line every [`REPORT_EVERY`].
struct ProgressDisplay {
    bar: Option<ProgressBar>,
    reported: Instant,
}

impl ProgressDisplay {
    fn new(terminal: bool) -> Self {
        let bar = terminal.then(|| output::progress_bar(Some(0), "{bar:30} {percent:>3} %  {msg}"));
        Self { bar, reported: Instant::now() }
    }

    fn show(&mut self, report: &BackfillReport) {
        if let Some(bar) = &self.bar {
            bar.set_length(report.missing);
            bar.set_position(report.stored);
            bar.set_message(speed(report));
        } else if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            tracing::info!(
                stored = report.stored,
                missing = report.missing,
                percent = report.percent(),
                ledgers_per_second = report.ledgers_per_second.round(),
                seconds_left = report.seconds_left,
                reason = report.reason,
                "backfilling"
            );
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn speed(report: &BackfillReport) -> String {
    if let Some(reason) = &report.reason {
        return reason.clone();
    }
    let left = report.seconds_left.map(|seconds| format!(", {} left", output::duration(seconds)));
    format!("{:.0} ledgers/s{}", report.ledgers_per_second, left.unwrap_or_default())
}

fn in_words(report: &BackfillReport) -> String {
    let BackfillReport { from, to, .. } = report;
    let (stored, missing) = (output::count(report.stored), output::count(report.missing));
    let events = output::count(report.events);
    let how_far = format!("{stored} of {missing} missing ledgers, {events} events");
    let without = output::without_records(report.without_records);
    let state = match report.state {
        BackfillState::None if *to == 0 => "no backfill\n".to_owned(),
        BackfillState::None => format!("{from}–{to} interrupted: `orrery backfill` resumes it\n"),
        BackfillState::Running => {
            let percent = report.percent();
            format!("{from}–{to} running: {how_far}, {percent} %, {}\n", speed(report))
        }
        BackfillState::Done => format!("{from}–{to} done: {how_far}\n"),
        BackfillState::Cancelled => format!("{from}–{to} cancelled: {how_far} are stored\n"),
        BackfillState::Failed => {
            format!("{from}–{to} failed: {}\n", report.reason.as_deref().unwrap_or_default())
        }
    };
    state + &without
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_formatted() {
        let mut report = BackfillReport {
            state: BackfillState::Running,
            from: 2,
            to: 20_001,
            missing: 20_000,
            stored: 5_000,
            events: 1_234,
            ledgers_per_second: 300.4,
            seconds_left: Some(50),
            ..BackfillReport::default()
        };
        assert_eq!(
            in_words(&report),
            "2–20001 running: 5,000 of 20,000 missing ledgers, 1,234 events, 25 %, 300 ledgers/s, 50 s \
             left\n"
        );
        report.reason = Some("the lake cannot be reached".to_owned());
        assert!(in_words(&report).contains("25 %, the lake cannot be reached"));
        report.state = BackfillState::Failed;
        assert_eq!(in_words(&report), "2–20001 failed: the lake cannot be reached\n");
        assert_eq!(in_words(&BackfillReport::default()), "no backfill\n");
        let done = BackfillReport {
            state: BackfillState::Done,
            without_records: 350,
            ..BackfillReport::default()
        };
        assert!(
            in_words(&done).contains("\n350 ledgers are stored without"),
            "{}",
            in_words(&done)
        );
        let interrupted = idle(&BackfillOrder { from: 2, to: 9, sources: Vec::new() });
        assert!(in_words(&interrupted).starts_with("2–9 interrupted"));
    }
}
