//! `orrery backfill --state`: completes what contracts hold from a history archive, in this process or
//! through the running service.

use std::io::IsTerminal;
use std::path::{Path, absolute};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use orrery::control::{
    BackfillState, Client, STATE_BACKFILL, StateOrder, StateReport, StateRequest,
};
use orrery::domain::ContractId;
use orrery::service::{Node, StateBackfills};

use super::open::{self, Opened};
use super::serve::{runtime, stop_on_signal};
use super::{Common, Failure, FlagValue, begin_log, output};

/// What is completed, and from where.
#[derive(Debug, Args)]
pub struct StateFlags {
    /// Complete what contracts hold: entries that no stored ledger names, from a history archive
    #[arg(long, conflicts_with_all = ["program", "from", "source"])]
    state: bool,
    /// History archive: its http or https address, or a directory
    #[arg(long, value_name = "URL|DIR", requires = "state", conflicts_with_all = ["status", "cancel"])]
    from_archive: Option<String>,
    /// Ledger of the checkpoint, which is stored; the newest one if it is not given
    #[arg(long, value_name = "CHECKPOINT", requires = "from_archive")]
    at: Option<u32>,
    /// Only this contract; may be repeated
    #[arg(long = "contract", value_name = "C…", requires = "from_archive")]
    contracts: Vec<ContractId>,
    /// Accept a checkpoint that trusted validators do not attest, for networks of your own
    #[arg(long, requires = "from_archive")]
    unattested: bool,
}

/// Interval between two checks of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two progress lines without a terminal.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// What is done with the order of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateAction {
    /// Show the progress.
    pub status: bool,
    /// Cancel it.
    pub cancel: bool,
    /// Leave the work to the service.
    pub detach: bool,
}

impl StateFlags {
    /// Whether the state is to be completed.
    pub fn is_given(&self) -> bool {
        self.state
    }

    pub fn run(
        &self,
        common: &Common,
        network: Vec<Option<FlagValue>>,
        action: StateAction,
        json: bool,
    ) -> Result<(), Failure> {
        let settings = common.or_of_service(network.clone())?.load(network)?;
        begin_log(&settings, std::io::stderr().is_terminal())?;
        let order = self.order()?;
        if order.is_none() && !action.status && !action.cancel {
            return Err(Failure::usage("give --from-archive, or --status, or --cancel"));
        }
        let report = match (open::open_existing(&settings)?, order) {
            (Opened::Running(client), order) => in_service(client, order, action)?,
            (Opened::Local(node), Some(order)) if !action.detach => {
                run_locally(Arc::from(node), &order)?
            }
            (Opened::Local(_), Some(_)) => {
                let reason = "--detach needs a service that runs on the data directory";
                return Err(Failure::usage(reason));
            }
            (Opened::Local(_), None) => StateReport::default(),
        };
        match report.state {
            BackfillState::Failed if !action.status => {
                Err(Failure::failed(report.reason.clone().unwrap_or_default()))
            }
            _ if json || !output::is_terminal() => output::print_json(&report),
            _ => output::print(&in_words(&report)),
        }
    }

    fn order(&self) -> Result<Option<StateOrder>, Failure> {
        let Some(archive) = &self.from_archive else { return Ok(None) };
        // The service may run in another directory.
        let archive = match archive.contains("://") {
            true => archive.clone(),
            false => {
                let path = absolute(Path::new(archive))
                    .map_err(|error| Failure::failed(format!("{archive}: {error}")))?;
                path.to_str().map(str::to_owned).ok_or_else(|| {
                    Failure::usage("the path of the history archive is not UTF-8: give another one")
                })?
            }
        };
        let contracts = self.contracts.clone();
        Ok(Some(StateOrder { archive, at: self.at, contracts, unattested: self.unattested }))
    }
}

/// Passes the work to the running service, and shows its progress. The stop signal cancels the work.
fn in_service(
    mut client: Client,
    order: Option<StateOrder>,
    action: StateAction,
) -> Result<StateReport, Failure> {
    let request = match order {
        Some(order) => StateRequest::Start(order),
        None if action.cancel => StateRequest::Cancel,
        None => StateRequest::Status,
    };
    let mut report = client.ask(STATE_BACKFILL, &request)?;
    if action.status || action.detach {
        return Ok(report);
    }
    let runtime = runtime()?;
    let mut stop = runtime.block_on(async { stop_on_signal() })?;
    let (mut display, mut is_cancelled) = (Display::new(), false);
    while report.state == BackfillState::Running {
        display.show(&report);
        let stopped = runtime.block_on(async {
            let stopped = stop.wait_for(|stop| *stop);
            tokio::time::timeout(POLL_INTERVAL, stopped).await.is_ok()
        });
        if stopped && is_cancelled {
            thread::sleep(POLL_INTERVAL);
        }
        let request = match stopped && !is_cancelled {
            true => StateRequest::Cancel,
            false => StateRequest::Status,
        };
        is_cancelled |= stopped;
        report = client.ask(STATE_BACKFILL, &request)?;
    }
    Ok(report)
}

/// Does the work in this process.
fn run_locally(node: Arc<Node>, order: &StateOrder) -> Result<StateReport, Failure> {
    let runtime = runtime()?;
    let stop = runtime.block_on(async { stop_on_signal() })?;
    let states = StateBackfills::new(node, runtime.handle().clone(), stop);
    let mut display = Display::new();
    let done = thread::scope(|scope| {
        let work = scope.spawn(|| states.run(order));
        while !work.is_finished() {
            display.show(&states.report());
            thread::park_timeout(POLL_INTERVAL);
        }
        work.join()
    });
    match done {
        Ok(_) => Ok(states.report()),
        Err(_) => Err(Failure::failed("recording the state has panicked: see the log")),
    }
}

/// Progress display: a bar on a terminal, or else a log line every [`REPORT_EVERY`].
struct Display {
    bar: Option<ProgressBar>,
    reported: Instant,
}

impl Display {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal();
        let bar = bar.then(|| output::progress_bar(Some(100), "{bar:30} {msg}"));
        Self { bar, reported: Instant::now() }
    }

    fn show(&mut self, report: &StateReport) {
        let step = report.step.as_deref().unwrap_or_default();
        if let Some(bar) = &self.bar {
            bar.set_position(report.percent.unwrap_or(0));
            bar.set_message(step.to_owned());
        } else if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            let StateReport { checkpoint, percent, entries, .. } = report;
            tracing::info!(checkpoint, step, percent, entries, "completing what contracts hold");
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn in_words(report: &StateReport) -> String {
    let [entries, found, skipped] =
        [report.entries, report.found, report.skipped].map(output::count);
    let at = report.checkpoint.map(|ledger| format!(" at ledger {ledger}")).unwrap_or_default();
    let attested = if report.attested { "" } else { ", which validators do not attest" };
    match report.state {
        BackfillState::None => "no state was recorded since the service started\n".to_owned(),
        BackfillState::Running => {
            let step = report.step.as_deref().unwrap_or_default();
            let percent =
                report.percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
            format!("the state{at}: {step}{percent}\n")
        }
        BackfillState::Done => format!(
            "the state{at}{attested}: {entries} entries are as the stored ledgers say, or complete \
             them; {found} are recorded, {skipped} are of contracts without all their transactions\n"
        ),
        BackfillState::Cancelled => format!("the state{at} is not recorded: it was cancelled\n"),
        BackfillState::Failed => format!("{}\n", report.reason.as_deref().unwrap_or_default()),
    }
}
