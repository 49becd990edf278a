//! An open data directory as all parts of a process use it: the store, the pipelines into it, the
//! consumers, health and metrics.

use std::error::Error;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::disk_space::{DiskFull, DiskSpaceMonitor, NotStoredReason};
use super::kept_records::{index_options, retention};
use super::reader::Reader;
use super::signatures::{SIGNATURES, SignatureRebuild};
use super::supervisor::report_upgrade;
use super::{ServiceError, attestation, consumers, recorded_storage};
use crate::attestation::Attestation;
use crate::config::Config;
use crate::control::{RebuildReport, RebuildRequest, StatusReport, Stored};
use crate::domain::{LedgerSeq, Network, RawLedger};
use crate::export::{self, Listed};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::pipeline::{
    Contradiction, Gate, Ingested, Pipeline, PipelineError, StepObserver, Trust,
};
use crate::programs::storage;
use crate::store::{
    self, Committed, Durability, Extensions, FORMAT, IndexOptions, LedgerConsumer, Losses,
    Retention, Store, StoreError,
};
use crate::verify::{Events, Policy, Verified};
use crate::webhooks::registry::Registry;

/// Why the export cannot be rebuilt, as text that follows its name.
const EXPORT_NOT_REBUILDABLE: &str =
    "its output is outside this store: set export.to to another destination";

/// Longest time that a step of a rebuild waits for another thread.
const REBUILD_STEP: Duration = Duration::from_millis(200);

/// Number of ledgers of an attested range that are read during a restoration: validators that have signed
/// none of the newest ones are looked for no longer.
const ENOUGH_LEDGERS: u32 = 1000;

/// The executable of this process, even when an upgrade has replaced the file since: child processes must be of
/// the same version (proc_pid_exe(5)).
const OWN_PROGRAM: &str = "/proc/self/exe";

/// An open data directory with a pipeline into it.
pub struct Node {
    pipeline: Pipeline,
    /// The same pipeline for ledgers whose raw bytes retention would remove at once.
    pipeline_without_raw: Pipeline,
    /// What is checked of ledgers, and whose signatures count.
    trust: Trust,
    /// Whose word counts for the stored ledgers.
    attestation: Arc<Attestation>,
    /// The recomputation of signatures from stored ledgers.
    signatures: Arc<SignatureRebuild>,
    /// Consumers of the feed other than indexing programs.
    consumers: Vec<Arc<dyn LedgerConsumer>>,
    /// Subscriptions of webhooks, which one of the consumers matches with events.
    webhooks: Arc<Registry>,
    /// Tables of the service's export.
    listed: Listed,
    retention: Retention,
    disk_space: DiskSpaceMonitor,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// From where the data directory was restored, while it is a reader.
    reader: Option<Reader>,
    /// The program that child processes run.
    program: PathBuf,
    /// Address of the HTTP interface, once it is open.
    listening: OnceLock<SocketAddr>,
}

impl Node {
    /// Opens the data directory of `config` for a service: `[index] storage` holds from now on, and what
    /// does not fit it is removed. Fails for a new directory when `network` is `None`.
    ///
    /// # Errors
    /// Errors of the store; when nothing is to be recorded although projects do.
    pub fn open_for_service(
        config: &Config,
        network: Option<&Network>,
    ) -> Result<Self, ServiceError> {
        let webhooks = Arc::default();
        let consumers = consumers::registered(&webhooks, config.index.storage);
        let node = Self::open_with(config, network, consumers)?;
        recorded_storage::apply(node.store(), config.index.storage)?;
        Ok(Self { webhooks, ..node })
    }

    /// Opens the data directory of `config` for a command. What an existing directory records of what
    /// contracts hold stays as it is, whatever the command's settings say. Fails for a new directory when
    /// `network` is `None`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn open(config: &Config, network: Option<&Network>) -> Result<Self, ServiceError> {
        let webhooks = Arc::default();
        let consumers = consumers::everything(&webhooks);
        let extensions = recorded_storage::as_stored(extensions(config, &consumers));
        let store = Arc::new(Store::open_with(&config.data_dir, network, extensions)?);
        Ok(Self { webhooks, ..Self::over_fed(store, config, consumers)? })
    }

    /// Opens the data directory of `config` for reading. Nothing in it changes.
    ///
    /// # Errors
    /// Errors of the store, [`StoreError::Empty`] for a directory without one.
    pub fn open_read_only(config: &Config) -> Result<Self, ServiceError> {
        let webhooks = Arc::default();
        let consumers = consumers::everything(&webhooks);
        let extensions = recorded_storage::as_stored(extensions(config, &consumers));
        let store = Arc::new(Store::open_read_only(&config.data_dir, extensions)?);
        Ok(Self { webhooks, ..Self::over_fed(store, config, consumers)? })
    }

    /// As [`Self::open`], with `consumers` instead of the program's own.
    pub fn open_with(
        config: &Config,
        network: Option<&Network>,
        consumers: Vec<Arc<dyn LedgerConsumer>>,
    ) -> Result<Self, ServiceError> {
        let extensions = extensions(config, &consumers);
        let store = Arc::new(Store::open_with(&config.data_dir, network, extensions)?);
        Ok(Self { consumers, ..Self::over(store, config)? })
    }

    /// As [`Self::over`], with those of the consumers that the store feeds.
    fn over_fed(
        store: Arc<Store>,
        config: &Config,
        mut consumers: Vec<Arc<dyn LedgerConsumer>>,
    ) -> Result<Self, ServiceError> {
        consumers.retain(|consumer| store.consumer(consumer.spec().name).is_some());
        Ok(Self { consumers, ..Self::over(store, config)? })
    }

    /// Creates the pipelines into an open store, without consumers.
    ///
    /// # Errors
    /// When the metrics cannot be created, no validators can be trusted as the settings say, or it is not
    /// known whether the data directory is a reader.
    pub fn over(store: Arc<Store>, config: &Config) -> Result<Self, ServiceError> {
        let metrics = Arc::new(Metrics::new()?);
        if let Some(latest) = store.status().latest() {
            metrics.set_latest_ledger(latest);
        }
        let steps = Arc::new(StepMetrics(Arc::clone(&metrics))) as Arc<dyn StepObserver>;
        let options = index_options(config);
        let without_raw = IndexOptions { raw_ledgers: false, ..options.clone() };
        let trust = attestation::trust_of(config, &store)?;
        let reader = Reader::of(store.directory())?;
        let node = Self {
            pipeline: Pipeline::new(Arc::clone(&store), options, Arc::clone(&steps)),
            pipeline_without_raw: Pipeline::new(store, without_raw, steps),
            trust: Trust::default(),
            attestation: Arc::default(),
            signatures: Arc::default(),
            consumers: Vec::new(),
            webhooks: Arc::default(),
            listed: Listed::default(),
            retention: retention(config),
            disk_space: DiskSpaceMonitor::new(&config.data_dir, config.disk),
            health: Arc::default(),
            metrics,
            reader,
            program: PathBuf::from(OWN_PROGRAM),
            listening: OnceLock::new(),
        };
        Ok(node.with_trust(trust))
    }

    /// Returns the node with other checks and other trusted validators.
    pub(super) fn with_trust(self, trust: Trust) -> Self {
        let attestation = Arc::new(Attestation::new(trust.validators.clone()));
        let adapted = |pipeline: Pipeline| {
            pipeline.with_trust(trust.clone()).with_waiting(Arc::clone(attestation.waiting()))
        };
        Self {
            pipeline: adapted(self.pipeline),
            pipeline_without_raw: adapted(self.pipeline_without_raw),
            attestation,
            trust,
            ..self
        }
    }

    /// Returns how trusted validators contradict what is stored, if they do.
    pub fn contradiction(&self) -> Option<Contradiction> {
        Contradiction::of(self.store(), self.trust.validators.as_deref())
    }

    /// Returns an error when the disk of the data directory is nearly full.
    pub(super) fn check_disk(&self) -> Result<(), DiskFull> {
        self.disk_space.check()
    }

    /// Returns a gate for [`Self::store_batch`], at which no ledger waits.
    pub(super) fn gate(&self) -> Gate {
        self.pipeline.gate()
    }

    /// Returns what is checked of ledgers, and whose signatures count.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns whose word counts for the stored ledgers.
    pub fn attestation(&self) -> &Arc<Attestation> {
        &self.attestation
    }

    /// Returns the tables of the service's export, as they were last written.
    pub(super) fn listed(&self) -> &Listed {
        &self.listed
    }

    /// Returns the recomputation of signatures.
    pub(super) fn signatures(&self) -> &Arc<SignatureRebuild> {
        &self.signatures
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<Store> {
        self.pipeline.store()
    }

    /// Returns the consumers of the feed other than indexing programs.
    pub(super) fn consumers(&self) -> &[Arc<dyn LedgerConsumer>] {
        &self.consumers
    }

    /// Returns the subscriptions of webhooks.
    pub(super) fn webhooks(&self) -> &Arc<Registry> {
        &self.webhooks
    }

    /// Reports the consumers of the feed in metrics and health.
    pub fn report_consumers(&self) {
        consumers::report(self.store(), &self.metrics, &self.health);
    }

    /// Runs child processes of this program, of the same version, instead of the own one: for a process that is
    /// not `orrery`.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Returns the program that child processes run.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns from where the data directory was restored, while it is a reader: what reaches others is its
    /// writer's. Does not change while the process runs.
    pub fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// Returns the health of the process's components.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Returns the metrics of the process.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Records the address of the HTTP interface. From then on [`Self::report`] says that a service
    /// is running.
    pub fn listening_on(&self, address: SocketAddr) {
        // The address is set only once in a process.
        let _ = self.listening.set(address);
    }

    /// Stores ledgers in their order, counts them in the metrics and passes each to `stored`.
    ///
    /// # Errors
    /// The first [`PipelineError`]; ledgers before it are stored.
    pub fn store_all<E: Error + Send + Sync + 'static>(
        &self,
        ledgers: impl Iterator<Item = Result<RawLedger, E>>,
        durability: Durability,
        stored: impl FnMut(&Ingested) + Send,
    ) -> Result<(), PipelineError> {
        self.store_through(&self.pipeline, &mut self.gate(), ledgers, durability, true, stored)
    }

    /// As [`Self::store_all`], for ledgers that go on from those of an earlier batch. What has to wait
    /// stays in `gate` unless these are the last ones.
    ///
    /// # Errors
    /// The first [`PipelineError`]; ledgers before it are stored.
    pub(super) fn store_batch<E: Error + Send + Sync + 'static>(
        &self,
        gate: &mut Gate,
        ledgers: impl Iterator<Item = Result<RawLedger, E>>,
        durability: Durability,
        are_last: bool,
        stored: impl FnMut(&Ingested) + Send,
    ) -> Result<(), PipelineError> {
        self.store_through(&self.pipeline, gate, ledgers, durability, are_last, stored)
    }

    /// As [`Self::store_all`], in the background, for ledgers up to `last`. Their raw bytes are
    /// stored only if retention keeps some of them.
    ///
    /// # Errors
    /// The first [`PipelineError`]; ledgers before it are stored.
    pub fn store_older<E: Error + Send + Sync + 'static>(
        &self,
        last: LedgerSeq,
        ledgers: impl Iterator<Item = Result<RawLedger, E>>,
        durability: Durability,
        stored: impl FnMut(&Ingested) + Send,
    ) -> Result<(), PipelineError> {
        let kept = self.first_kept(self.retention.raw_ledgers) <= last;
        let pipeline = if kept { &self.pipeline } else { &self.pipeline_without_raw };
        let pipeline = pipeline.background();
        let mut gate = pipeline.gate();
        self.store_through(&pipeline, &mut gate, ledgers, durability, true, stored)
    }

    /// Returns the first ledger of which retention keeps events or transactions.
    pub fn first_retained(&self) -> LedgerSeq {
        let Retention { events, transactions, .. } = self.retention;
        self.first_kept(events).min(self.first_kept(transactions))
    }

    /// Returns the first ledger that is kept when the newest `kept` ledgers are; `None` keeps all.
    fn first_kept(&self, kept: Option<u32>) -> LedgerSeq {
        let latest = self.store().status().latest();
        latest.map_or(LedgerSeq(0), |latest| store::first_kept(kept, latest))
    }

    fn store_through<E: Error + Send + Sync + 'static>(
        &self,
        pipeline: &Pipeline,
        gate: &mut Gate,
        ledgers: impl Iterator<Item = Result<RawLedger, E>>,
        durability: Durability,
        are_last: bool,
        mut stored: impl FnMut(&Ingested) + Send,
    ) -> Result<(), PipelineError> {
        let metrics = Arc::clone(&self.metrics);
        let ledgers = ledgers.map(|ledger| {
            let ledger = ledger.map_err(NotStoredReason::Source)?;
            self.disk_space.check().map_err(NotStoredReason::DiskFull)?;
            Ok::<_, NotStoredReason<E>>(ledger)
        });
        // The callback owns `stored`, so what `stored` holds is dropped as soon as storing ends,
        // which may be long before the iterator ends.
        pipeline.run_through(gate, ledgers, durability, are_last, move |ingested| {
            if ingested.committed == Committed::New {
                let counts = &ingested.counts;
                let transactions = u64::from(counts.stored_transactions);
                metrics.ledger_stored(ingested.sequence, counts.events(), transactions);
            }
            stored(ingested);
            ControlFlow::Continue(())
        })
    }

    /// Removes all data that retention no longer keeps.
    ///
    /// # Errors
    /// Errors of the store; what was removed before stays removed.
    pub fn prune(&self) -> Result<(), StoreError> {
        let _timer = self.metrics.step("prune");
        while !self.store().prune(&self.retention)?.is_nothing() {}
        Ok(())
    }

    /// Measures the size of the store and the free space of its disk, for the metrics.
    pub fn measure(&self) -> Result<(), StoreError> {
        self.metrics.set_store_bytes(self.store().sizes()?.values().sum());
        self.metrics.set_disk_free_bytes(self.store().disk_free()?);
        Ok(())
    }

    /// Returns what is stored, and the state of the service if one is running.
    pub fn report(&self) -> Result<StatusReport, StoreError> {
        let (network, status) = (self.store().network(), self.store().status());
        let covered = self.store().completeness()?;
        let marks = self.store().marks();
        // Before `down`, because it reports to health.
        let attestation = attestation::report(&self.attestation, self.store(), &self.health);
        let down = self.health.first_down().map(|(name, reason)| format!("{name}: {reason}"));
        Ok(StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            format_version: FORMAT.to_string(),
            running: self.listening.get().is_some(),
            listen: self.listening.get().map(SocketAddr::to_string),
            network: network.name().to_owned(),
            network_passphrase: network.passphrase().to_owned(),
            ranges: covered.iter().map(|range| range.covered.ledgers).collect(),
            covered: covered
                .iter()
                .map(|range| attestation::describe(&self.attestation, range, &marks))
                .collect(),
            attestation,
            latest_ledger: status.latest().map(|ledger| ledger.0),
            latest_close_time: status.latest_close_time,
            network_latest_ledger: self.health.network_latest().map(|ledger| ledger.0),
            events: status.totals.events,
            transactions: status.totals.transactions,
            consumers: self.store().consumers().into_iter().map(consumers::describe).collect(),
            reader: self.reader().map(Reader::words),
            down,
        })
    }

    /// Begins to rebuild a consumer's rows, or the recorded signatures, if that is requested and no
    /// rebuild is under way. Returns the progress; when no rebuild runs and none was requested,
    /// with the digest of a built-in consumer's rows.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when no consumer of this name is registered;
    /// [`StoreError::NotRebuilt`] when the consumer cannot be rebuilt;
    /// [`StoreError::RebuildLoses`] when the request does not allow what would be lost; errors of
    /// the database.
    pub fn rebuild(&self, request: &RebuildRequest) -> Result<RebuildReport, StoreError> {
        let &RebuildRequest { ref name, begin, allow_loss } = request;
        if name == SIGNATURES {
            if begin {
                self.signatures().begin(self.store(), self.trust())?;
            }
            return self.signatures().report();
        }
        if name == export::CONSUMER {
            return Err(StoreError::NotRebuilt(name.clone(), EXPORT_NOT_REBUILDABLE));
        }
        let known = self.consumers().iter().find(|it| it.spec().name == name);
        if let Some(reason) = known.and_then(|it| it.cannot_be_rebuilt()) {
            return Err(StoreError::NotRebuilt(name.clone(), reason));
        }
        if begin {
            let losses = if allow_loss { Losses::Accepted } else { Losses::Refused };
            self.store().begin_rebuild(name, losses)?;
        }
        let consumer = self.store().consumer(name);
        let consumer = consumer.ok_or_else(|| StoreError::UnknownConsumer(name.clone()))?;
        let running = consumer.rebuild.is_some();
        let digest = if known.is_some() && !begin && !running {
            Some(self.store().consumer_digest(name)?)
        } else {
            None
        };
        Ok(RebuildReport {
            running,
            digest,
            done: consumer.rebuild.map_or(consumer.place, |progress| progress.done),
            of: consumer.rebuild.map_or(consumer.place, |progress| progress.target),
            lost: consumer.lost,
        })
    }

    /// Runs one step of what is being rebuilt, for use without a running service.
    /// Returns whether the rebuild is still under way.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when it is not one of the built-in consumers; errors of the
    /// database.
    pub fn rebuild_step(&self, name: &str) -> Result<bool, StoreError> {
        if name == SIGNATURES {
            return Ok(self.signatures().wait(REBUILD_STEP));
        }
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let consumer = self.consumers().iter().find(|it| it.spec().name == name);
        self.store().step(&**consumer.ok_or_else(unknown)?)?;
        Ok(self.store().consumer(name).is_some_and(|it| it.rebuild.is_some()))
    }
}

/// Returns the parts with which a store is opened: these consumers, programs and the exports, and
/// reports of an upgrade to the supervisor.
pub(super) fn extensions(config: &Config, consumers: &[Arc<dyn LedgerConsumer>]) -> Extensions {
    let mut extensions = Extensions::for_consumers(consumers).with_kind(storage::KIND);
    let exports = config.export.destination().filter(|_| !Reader::is_named_in(&config.data_dir));
    extensions.consumers.extend(exports.map(|_| export::consumer()));
    extensions.upgrade_observer = Some(Box::new(report_upgrade));
    extensions
}

/// Recomputes the signatures of a data directory that is being restored from a backup. What the backup says
/// itself counts only for ledgers whose raw form it does not have, and these get a mark.
///
/// # Errors
/// When the directory cannot be opened, or a raw ledger in it is not what the network agreed on.
pub fn check_restored(config: &Config) -> Result<(), ServiceError> {
    let node = Node::open(config, None)?;
    let store = node.store();
    // The settings with which the ledgers were stored may have been others.
    let policy = Policy { events: Events::Report, ..Policy::default() };
    let found = match &node.trust().validators {
        Some(validators) => {
            let enough = Some(ENOUGH_LEDGERS);
            store.find_signatures(validators, policy, enough, |_| ControlFlow::Continue(()))?
        }
        None => None,
    };
    store.record_restored(&found.unwrap_or_default())?;
    Ok(store.flush()?)
}

impl Stored {
    /// Counts a stored ledger.
    pub fn count(&mut self, ingested: &Ingested) {
        match ingested.committed {
            Committed::AlreadyStored => {
                self.known += 1;
                self.without_records += u64::from(ingested.lacks_records);
            }
            Committed::New => {
                self.new += 1;
                self.events += ingested.counts.events();
                self.transactions += u64::from(ingested.counts.stored_transactions);
            }
        }
    }
}

/// Counts the steps of the pipeline in metrics.
struct StepMetrics(Arc<Metrics>);

impl StepObserver for StepMetrics {
    fn step(&self, name: &'static str, seconds: f64) {
        self.0.observe_step(name, Duration::from_secs_f64(seconds.max(0.0)));
    }

    fn verified(&self, verified: &Verified) {
        self.0.ledger_verified(verified);
    }
}
