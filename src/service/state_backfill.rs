//! Completes what contracts hold from a history archive: reads the state at a stored checkpoint, proves
//! it by the stored header, and records what the stored ledgers do not say.
//!
//! Buckets that were downloaded stay in the data directory until all is recorded, so that the same order
//! goes on with them after a kill.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Node;
use super::disk_space::DiskFull;
use crate::checkpoint::{Archive, Bounds, Commitment, Step, Work, checkpoint_at_or_before};
use crate::contract_data::{CONSUMER, ContractData, Recorded, Recording, Scope, scope, watched};
use crate::control::{BackfillState, StateOrder, StateReport};
use crate::decode::header;
use crate::domain::{ContractId, LedgerSeq, LedgerSet};
use crate::net::http::Timeouts;
use crate::store::{Store, StoreError};

/// Directory for downloaded buckets and for the sort, in the data directory.
const DIRECTORY: &str = "state-archive";
/// Name of the thread.
const THREAD: &str = "state_backfill";
/// Interval between two looks whether the stored ledgers are processed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Completes what contracts hold in one data directory; one order at a time.
pub struct StateBackfills {
    node: Arc<Node>,
    runtime: Handle,
    stop: watch::Receiver<bool>,
    current: Mutex<StateReport>,
    is_cancelled: AtomicBool,
    /// Why the disk ended the running order.
    disk_full: Mutex<Option<DiskFull>>,
}

/// Who processes stored ledgers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Feeding {
    /// Threads of the service.
    Service,
    /// Nobody else.
    Here,
}

impl StateBackfills {
    /// Creates it for an open data directory. Requests run on `runtime`; work ends when `stop` turns
    /// true.
    pub fn new(node: Arc<Node>, runtime: Handle, stop: watch::Receiver<bool>) -> Self {
        let (current, is_cancelled) = (Mutex::default(), AtomicBool::new(false));
        Self { node, runtime, stop, current, is_cancelled, disk_full: Mutex::default() }
    }

    /// Begins an order on a thread of its own.
    ///
    /// # Errors
    /// When another one is running, or there is no thread.
    pub(super) fn start(self: &Arc<Self>, order: StateOrder) -> Result<(), String> {
        self.begin()?;
        let shared = Arc::clone(self);
        let work = move || {
            let _ends = EndsAnyway(&shared);
            drop(shared.work(&order, Feeding::Service));
        };
        let spawned = thread::Builder::new().name(THREAD.to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| {
            let reason = format!("the thread for it cannot be started: {error}");
            self.end(Err(reason.clone()));
            reason
        })
    }

    /// Runs an order to its end on this thread, which is none of a runtime, in a process that does not
    /// process ledgers otherwise.
    ///
    /// # Errors
    /// Why nothing was recorded.
    pub fn run(&self, order: &StateOrder) -> Result<StateReport, String> {
        self.begin()?;
        self.work(order, Feeding::Here)
    }

    /// Asks the running order to end.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns the progress of the newest order.
    pub fn report(&self) -> StateReport {
        self.current.lock().clone()
    }

    fn begin(&self) -> Result<(), String> {
        let mut current = self.current.lock();
        if current.state == BackfillState::Running {
            return Err(
                "the state at a checkpoint is being recorded already: wait until that has \
                        ended, or cancel it with `orrery backfill --state --cancel`"
                    .to_owned(),
            );
        }
        self.is_cancelled.store(false, Ordering::Relaxed);
        *current = StateReport { state: BackfillState::Running, ..StateReport::default() };
        Ok(())
    }

    fn work(&self, order: &StateOrder, feeding: Feeding) -> Result<StateReport, String> {
        let done = self.record(order, feeding);
        let full = self.disk_full.lock().take();
        let done = done.map_err(|error| full.map_or(error, |full| full.to_string()));
        if let Err(error) = &done
            && self.goes_on()
        {
            tracing::error!("the state at a checkpoint was not recorded: {error}");
        }
        self.end(done.clone());
        done.map(|()| self.report())
    }

    fn end(&self, done: Result<(), String>) {
        let is_cancelled = !self.goes_on();
        let mut current = self.current.lock();
        (current.step, current.percent) = (None, None);
        (current.state, current.reason) = match done {
            Ok(()) => (BackfillState::Done, None),
            Err(_) if is_cancelled => (BackfillState::Cancelled, None),
            Err(reason) => (BackfillState::Failed, Some(reason)),
        };
    }

    fn goes_on(&self) -> bool {
        !self.is_cancelled.load(Ordering::Relaxed) && !*self.stop.borrow()
    }

    fn record(&self, order: &StateOrder, feeding: Feeding) -> Result<(), String> {
        let store = self.node.store();
        if store.consumer(CONSUMER).is_none() {
            return Err("index.storage is off: what contracts hold is not recorded here".to_owned());
        }
        self.show("looking for the checkpoint", None);
        let archive = Archive::open(&order.archive, &self.runtime, Timeouts::default())
            .map_err(|error| error.to_string())?;
        let (ledger, is_attested) = self.choose(order, &archive)?;
        {
            let mut current = self.current.lock();
            (current.checkpoint, current.attested) = (Some(ledger.0), is_attested);
        }
        let commitment = commitment(store, ledger)?;
        self.wait_for_consumer(ledger, feeding).map_err(|error| error.to_string())?;
        let directory = store.directory().join(DIRECTORY);
        let unusable = |error: io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(unusable)?;
        let contracts = self.contracts(order)?;
        let work = Work {
            directory: &directory,
            contracts: contracts.as_ref(),
            bounds: Bounds::default(),
            observe: &|step| self.read(step),
        };
        let entries = archive
            .state(commitment, store.network())
            .and_then(|state| state.fetch(&archive, &work)?.entries(&work))
            .map_err(|error| error.to_string())?;
        let recording = Recording {
            store,
            ledger,
            contracts: contracts.as_ref(),
            is_attested,
            observe: &|recorded| self.recorded(recorded),
        };
        let recorded = recording.record(entries).map_err(|error| error.to_string())?;
        self.recorded(recorded);
        fs::remove_dir_all(&directory).map_err(unusable)
    }

    /// Returns the contracts whose state is recorded; `None` for all.
    fn contracts(&self, order: &StateOrder) -> Result<Option<BTreeSet<ContractId>>, String> {
        let store = self.node.store();
        let ordered: BTreeSet<_> = order.contracts.iter().copied().collect();
        if scope(store).map_err(|error| error.to_string())? == Scope::All {
            return Ok(Some(ordered).filter(|contracts| !contracts.is_empty()));
        }
        let mut contracts = watched(store).map_err(|error| error.to_string())?;
        if !ordered.is_empty() {
            contracts.retain(|contract| ordered.contains(contract));
        }
        match contracts.is_empty() {
            true => {
                Err("index.storage is watched, and none of these contracts is: watch one before \
                         with `orrery watch NAME --contract C…`"
                    .to_owned())
            }
            false => Ok(Some(contracts)),
        }
    }

    /// Returns the ledger of the checkpoint, and whether it is attested.
    fn choose(&self, order: &StateOrder, archive: &Archive) -> Result<(LedgerSeq, bool), String> {
        let store = self.node.store();
        let attested = self.node.attestation().ledgers(store);
        let stored = LedgerSet::from(store.status().ranges);
        let usable = if order.unattested { &stored } else { &attested };
        let chosen = |ledger| Ok((ledger, attested.contains(ledger)));
        let Some(at) = order.at.map(LedgerSeq) else {
            let newest = archive.newest().map_err(|error| error.to_string())?;
            let last = usable.ranges().last().map(|range| range.last.min(newest));
            let before = last.and_then(checkpoint_at_or_before);
            let mut known = [Some(newest), before].into_iter().flatten();
            return match known.find(|ledger| usable.contains(*ledger)) {
                Some(ledger) => chosen(ledger),
                None => Err(format!(
                    "no checkpoint up to ledger {newest}, the newest of the history archive, is \
                     stored and attested: store one before, name one with --at, or give --unattested \
                     for a network of your own"
                )),
            };
        };
        if !stored.contains(at) {
            return Err(format!(
                "ledger {at} is not stored, and its header proves the state: store it before with \
                 `orrery backfill --from {at} --to {at}`"
            ));
        }
        if !usable.contains(at) {
            return Err(format!(
                "ledger {at} is not attested by trusted validators: give an older checkpoint, or \
                 --unattested for a network of your own"
            ));
        }
        chosen(at)
    }

    /// Waits until the index has all ledgers that are stored now.
    fn wait_for_consumer(&self, ledger: LedgerSeq, feeding: Feeding) -> Result<(), StoreError> {
        let store = self.node.store();
        self.show("waiting until the stored ledgers are processed", None);
        let ledgers = store.status().ranges;
        let range = ledgers.iter().find(|range| range.contains(ledger));
        loop {
            if feeding == Feeding::Here && store.step(&ContractData)? {
                continue;
            }
            let place = store.consumer(CONSUMER).map_or(u64::MAX, |consumer| consumer.place);
            let left = store.ledgers_after(place);
            let is_done = range.is_none_or(|range| left.within(*range).is_empty());
            if is_done || !self.goes_on() {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn show(&self, step: &str, percent: Option<u64>) {
        let mut current = self.current.lock();
        (current.step, current.percent) = (Some(step.to_owned()), percent);
    }

    /// Shows a step of reading, and returns whether to go on.
    fn read(&self, step: Step) -> bool {
        let percent = |done: u64, of: u64| (done * 100).checked_div(of).map(|it| it.min(100));
        match step {
            Step::Download { .. } => self.show("asking for the size of the buckets", None),
            Step::Check { done, of, .. } => {
                self.show("downloading and checking the buckets", percent(done.into(), of.into()));
            }
            Step::Sort { disk } => {
                self.current.lock().disk = Some(disk);
                tracing::info!(disk, "the buckets are right; sorting takes at most this much disk");
            }
            Step::Sorting { records, of } => self.show("sorting", percent(records, of)),
        }
        self.goes_on()
    }

    /// Shows how much is recorded, and returns whether to go on.
    fn recorded(&self, recorded: Recorded) -> bool {
        let mut current = self.current.lock();
        (current.step, current.percent) = (Some("recording".to_owned()), None);
        let Recorded { entries, found, skipped } = recorded;
        (current.entries, current.found, current.skipped) = (entries, found, skipped);
        drop(current);
        let full = self.node.check_disk().err();
        let has_room = full.is_none();
        *self.disk_full.lock() = full;
        has_room && self.goes_on()
    }
}

/// Ends the running order if its thread panics: otherwise it would be running for ever, and no other could
/// begin.
struct EndsAnyway<'a>(&'a StateBackfills);

impl Drop for EndsAnyway<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end(Err("it ended unexpectedly: the log says where".to_owned()));
        }
    }
}

/// Returns what the stored header of a ledger says of the state.
fn commitment(store: &Store, ledger: LedgerSeq) -> Result<Commitment, String> {
    let failed = |reason: &dyn std::fmt::Display| {
        format!("the stored header of ledger {ledger} cannot be used: {reason}")
    };
    let raw = store.raw_ledger(ledger).map_err(|error| failed(&error))?;
    let Some(raw) = raw else {
        return Err(format!(
            "the header of ledger {ledger} is not stored, because retention has removed the raw \
             ledger: give a newer checkpoint with --at"
        ));
    };
    let found = header(&raw).map_err(|error| failed(&error))?;
    let row = store.ledger(ledger).map_err(|error| failed(&error))?;
    let hash: [u8; 32] = Sha256::digest(found.xdr).into();
    if row.is_none_or(|row| row.hash.as_bytes() != &hash) {
        return Err(failed(&"it has not the hash that the ledger has"));
    }
    Commitment::of_header(found.xdr).map_err(|error| failed(&error))
}
