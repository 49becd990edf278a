//! `orrery import`: stores ledgers from files, either directly or through the running service.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use orrery::config::Settings;
use orrery::control::{Client, Ledgers, NotStored, STATUS, STORE, STORE_LAST, Stored};
use orrery::decode::{DecodeError, decode};
use orrery::domain::{LedgerSeq, Network, Origin, RawLedger};
use orrery::pipeline::PipelineError;
use orrery::service::Node;
use orrery::source::files::{FilesError, LedgerFiles, Survey};
use orrery::store::Durability;
use serde::Serialize;

use super::open::{self, NewDirectory, Opened};
use super::{Common, Failure, NetworkFlags, begin_log, output};

/// Store ledgers from files and directories
///
/// Accepts single ledgers, batches, framed streams and lakes, plain or compressed, recognised by their
/// content, and reads directories recursively in the order of names. Ledgers that are stored already are
/// skipped, so an interrupted import can be started again. While a service runs on the data directory,
/// the service stores the ledgers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery import --data-dir d --network mainnet lake-pubnet/
  orrery import --data-dir d ledger-63092982.xdr.gz ledger-63092983.xdr.gz
  orrery import --data-dir d --json meta.xdr.zst | jq .new
  ssh archive cat meta.xdr.zst | orrery import --data-dir d -")]
pub struct Import {
    /// Files and directories; - is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    network: NetworkFlags,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Maximum number of ledgers in a batch for the service, which acknowledges the whole batch at
/// once.
const BATCH_LEDGERS: usize = 32;
/// Size of a batch, in bytes, from which on no further ledger is added to it.
const BATCH_BYTES: usize = 16 << 20;
/// Interval of progress log lines when standard error is not a terminal.
const REPORT_EVERY: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Summary {
    new: u64,
    already_stored: u64,
    /// Number of those whose events or transactions retention has removed.
    without_records: u64,
    events: u64,
    transactions: u64,
    seconds: f64,
    ledgers_per_second: f64,
}

impl Import {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.load(self.network.settings())?;
        let terminal = io::stderr().is_terminal();
        // On a terminal the bar reports progress, and log lines would break it up.
        begin_log(&settings, terminal)?;

        let paths: Vec<PathBuf> = self.paths.iter().map(|path| standard_input(path)).collect();
        let survey = Survey::of(&paths)?;
        // Dropped after the store, which has to be closed before its directory is removed.
        let mut new = NewDirectory::at(&settings.config.data_dir);
        let opened = open_for(&settings, &survey)?;
        if let Opened::Local(node) = &opened {
            new.created(node);
        }
        let files = LedgerFiles::new(&paths);
        let mut progress = Progress::new(&survey, files.bytes_read(), terminal);
        let imported = match opened {
            Opened::Local(node) => import_here(&node, files, &mut progress),
            Opened::Running(client) => import_through(client, files, &mut progress),
        };
        progress.finish();
        if imported.is_ok() || progress.stored.ledgers() > 0 {
            new.keep();
        }
        imported.map_err(|failure| progress.with_stored_count(failure))?;
        let summary = progress.summary();
        if self.json { output::print_json(&summary) } else { output::print(&summary.to_string()) }
    }
}

/// Returns the path of a file. As usual, `-` stands for standard input.
fn standard_input(path: &Path) -> PathBuf {
    if path.as_os_str() == "-" { "/dev/stdin".into() } else { path.to_owned() }
}

/// Opens the data directory. A new one gets the configured network, or else the one that the
/// manifests name.
fn open_for(settings: &Settings, survey: &Survey) -> Result<Opened, Failure> {
    let network = settings.config.network();
    if let Some(network) = &network {
        survey.check_network(network)?;
    }
    let opened = open::open(settings, network.or(survey.network()).as_ref())?;
    if let Opened::Local(node) = &opened {
        survey.check_network(node.store().network())?;
    }
    Ok(opened)
}

fn import_here(node: &Node, files: LedgerFiles, progress: &mut Progress) -> Result<(), Failure> {
    let stored = node.store_all(files, Durability::Deferred, |ingested| {
        progress.stored.count(ingested);
        progress.show(ingested.sequence);
    });
    let network = node.store().network();
    stored.map_err(|error| match error {
        PipelineError::Decode { origin, source: DecodeError::NoEnvelopeMatches(..) } => {
            other_network(&origin, network).unwrap_or_else(|| {
                Failure::failed(format!(
                    "{origin} holds a ledger of another network than {network}"
                ))
            })
        }
        error => Failure::failed(error.to_string()),
    })
}

/// Reads files on a second thread, and sends their ledgers to the service from the calling thread.
fn import_through(
    mut client: Client,
    files: LedgerFiles,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let network = Network::from_passphrase(client.ask(STATUS, &())?.network_passphrase);
    let (batches_in, batches) = sync_channel::<(Vec<RawLedger>, Option<FilesError>)>(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut files = Batches(files);
            // Sending fails when the receiver was dropped after a failed hand-over.
            while let Some(batch) = files.next()
                && batches_in.send(batch).is_ok()
            {}
        });
        let mut unstored = Unstored::default();
        for (batch, unreadable) in batches {
            if let Some(last) = batch.last().map(|ledger| ledger.sequence) {
                let (ledgers, origins): (_, Vec<_>) =
                    batch.into_iter().map(|ledger| (ledger.xdr, ledger.origin)).unzip();
                unstored.origins.extend(origins);
                let stored = client.ask(STORE, &Ledgers(ledgers))?;
                unstored.count(stored, last, &network, progress)?;
            }
            if let Some(error) = unreadable {
                return Err(error.into());
            }
        }
        let Some(last) = unstored.last.filter(|_| progress.stored.waiting > 0) else {
            return Ok(());
        };
        unstored.count(client.ask(STORE_LAST, &())?, last, &network, progress)
    })
}

/// The ledgers that were sent to the service, and are not known to be stored.
#[derive(Default)]
struct Unstored {
    origins: VecDeque<Origin>,
    /// Number of ledgers before them.
    before: u64,
    /// The ledger that was sent last.
    last: Option<LedgerSeq>,
}

impl Unstored {
    /// Takes an answer of the service into account; `last` is the ledger that was sent last.
    fn count(
        &mut self,
        answer: Result<Stored, NotStored>,
        last: LedgerSeq,
        network: &Network,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let (Ok(stored) | Err(NotStored { before: stored, .. })) = &answer;
        progress.stored.add(stored);
        let count = usize::try_from(stored.ledgers()).unwrap_or(usize::MAX);
        self.last = Some(last);
        self.before += self.origins.drain(..count.min(self.origins.len())).count() as u64;
        let Err(refused) = answer else {
            progress.show(last);
            return Ok(());
        };
        let at = refused.at.map_or(0, |at| at.saturating_sub(self.before));
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(origin) = self.origins.get(at).or(self.origins.back()) else {
            return Err(Failure::failed(refused.reason));
        };
        let named = other_network(origin, network);
        Err(named.unwrap_or_else(|| Failure::failed(format!("{origin}: {}", refused.reason))))
    }
}

/// Iterator over batches of ledgers. When reading fails, yields the ledgers read before, together
/// with the error.
struct Batches(LedgerFiles);

impl Iterator for Batches {
    type Item = (Vec<RawLedger>, Option<FilesError>);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_LEDGERS && bytes < BATCH_BYTES {
            match self.0.next() {
                Some(Ok(ledger)) => {
                    bytes += ledger.xdr.len();
                    batch.push(ledger);
                }
                Some(Err(error)) => return Some((batch, Some(error))),
                None => break,
            }
        }
        (!batch.is_empty()).then_some((batch, None))
    }
}

/// Returns a failure that names the network of a ledger; `None` when the ledger belongs to
/// `network` or to no well-known network.
fn other_network(origin: &Origin, network: &Network) -> Option<Failure> {
    let file = [Path::new(&*origin.name).to_owned()];
    if !file[0].is_file() {
        // A pipe cannot be read again.
        return None;
    }
    let position = origin.position.map_or(0, |position| position.saturating_sub(1));
    let ledger = LedgerFiles::new(&file).nth(usize::try_from(position).ok()?)?.ok()?;
    if !matches!(decode(&ledger.xdr, network.id()), Err(DecodeError::NoEnvelopeMatches(..))) {
        return None;
    }
    let found = Network::well_known().find(|known| decode(&ledger.xdr, known.id()).is_ok())?;
    Some(Failure::failed(format!(
        "{origin} holds a ledger of {found}, but the data directory holds {network}: give another \
         directory for {found}"
    )))
}

/// Reports the progress of an import: a bar on a terminal, a log line every [`REPORT_EVERY`]
/// elsewhere.
struct Progress {
    stored: Stored,
    bytes_read: Arc<AtomicU64>,
    /// Number of bytes to read; `None` when it is unknown.
    bytes: Option<u64>,
    bar: Option<ProgressBar>,
    start: Instant,
    reported: Instant,
}

impl Progress {
    fn new(survey: &Survey, bytes_read: Arc<AtomicU64>, terminal: bool) -> Self {
        let bytes = (survey.streams == 0).then_some(survey.bytes);
        let template = match bytes {
            Some(_) => "{bar:30} {percent:>3} %  {msg}  {eta} left",
            None => "{decimal_bytes} read  {msg}",
        };
        let bar = terminal.then(|| output::progress_bar(bytes, template));
        let start = Instant::now();
        Self { stored: Stored::default(), bytes_read, bytes, bar, start, reported: start }
    }

    fn show(&mut self, latest: LedgerSeq) {
        let read = self.bytes_read.load(Ordering::Relaxed);
        let rate = self.rate();
        if let Some(bar) = &self.bar {
            bar.set_position(read);
            bar.set_message(format!("ledger {latest}, {rate:.0} ledgers/s"));
        } else if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            tracing::info!(
                ledger = latest.0,
                ledgers = self.stored.ledgers(),
                ledgers_per_second = rate.round(),
                percent = self.bytes.map(|bytes| read.saturating_mul(100) / bytes.max(1)),
                "importing"
            );
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn rate(&self) -> f64 {
        self.stored.ledgers() as f64 / self.start.elapsed().as_secs_f64().max(1e-3)
    }

    fn with_stored_count(&self, failure: Failure) -> Failure {
        match self.stored.ledgers() {
            0 => failure,
            1 => failure.and("the ledger before it is stored"),
            count => failure.and(format!("the {count} ledgers before it are stored")),
        }
    }

    fn summary(&self) -> Summary {
        let Stored { new, known, without_records, events, transactions, .. } = self.stored;
        let seconds = self.start.elapsed().as_secs_f64();
        let ledgers_per_second = self.rate();
        Summary {
            new,
            already_stored: known,
            without_records,
            events,
            transactions,
            seconds,
            ledgers_per_second,
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} new ledgers ({} already stored), {} events, {} transactions in {:.1} s ({:.0} \
             ledgers/s)",
            output::count(self.new),
            output::count(self.already_stored),
            output::count(self.events),
            output::count(self.transactions),
            self.seconds,
            self.ledgers_per_second
        )?;
        f.write_str(&output::without_records(self.without_records))
    }
}
