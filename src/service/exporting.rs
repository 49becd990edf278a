//! The export of a running service: a thread of its own exports complete files at the lowest
//! priority and retries what failed. Only retention waits for it, within its bound. Also opens the
//! destination of an export, and names the exporter.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::tasks::{Tasks, is_stopping, stopped};
use super::{Node, READER_OFF, ServiceError};
use crate::api::{ExportedNow, ExportedTables};
use crate::config::Config;
use crate::domain::ProgramId;
use crate::executables::Interfaces;
use crate::export::{
    self, Added, AddedNow, Attestations, Continuous, Destination, ExportError, ExportScope,
    ExporterIdentity, Interrupt, LiveChain, Progress, Spool,
};
use crate::net::buckets::{BucketSettings, Patience};
use crate::net::http::Timeouts;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::priority::Priority;
use crate::settings::Export;
use crate::steady::unix_now;
use crate::store::Store;

/// Name under which the export reports to health.
const EXPORT: &str = "export";
/// Interval between two checks for complete files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a failed step is retried for the first time; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum delay before a retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Idle timeout of requests to a bucket: a whole object must be sent, and its response begin,
/// within this time.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Files that identify the machine or container. `/proc/sys` is not used, because a hardened
/// service cannot read it.
const MACHINE: [&str; 2] = ["/etc/machine-id", "/etc/hostname"];

/// Length of an exporter's identifier, in hexadecimal digits.
const ID_DIGITS: usize = 16;

/// Opens the destination `to` of an export. Requests to a bucket are cancelled when `interrupt` is
/// raised.
///
/// # Errors
/// When `to` is not a valid destination.
pub fn export_destination(
    to: &str,
    config: &Config,
    role: ExportRole,
    interrupt: Interrupt,
) -> Result<Destination, ExportError> {
    let Export { s3_region, s3_endpoint, s3_access_key_id, s3_secret_access_key, .. } =
        &config.export;
    let (region, endpoint) =
        if to.contains("://") { (&**s3_region, &**s3_endpoint) } else { ("", "") };
    let key = s3_secret_access_key.as_option().map(|secret| (&**s3_access_key_id, secret));
    let settings = BucketSettings {
        patience: match role {
            // The service repeats what has failed, and says so meanwhile.
            ExportRole::Service => Patience::SHORT,
            ExportRole::Manual => Patience::LONG,
        },
        timeouts: Timeouts { idle: UPLOAD_TIMEOUT, ..Timeouts::default() },
        ..BucketSettings::configured(to, region, endpoint, key)
    };
    let identity =
        ExporterIdentity { id: id(config, role as u8), clock: unix_now, random: rand::random };
    // A command may only read the data directory.
    let spool = match role {
        ExportRole::Service => Spool::new(&config.data_dir),
        ExportRole::Manual => Spool::new(std::env::temp_dir()),
    };
    Destination::of(&settings, identity, spool, interrupt)
}

/// Which program exports a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportRole {
    /// The service, continuously.
    Service,
    /// `orrery export`, run by the operator.
    Manual,
}

/// Number that stands for the writer of snapshots, beside those of the roles of an export.
const SNAPSHOTS: u8 = 2;

/// Returns an identifier that distinguishes writers of snapshots to the same place by machine and data
/// directory. It is a hash that reveals neither.
pub fn snapshot_writer_id(config: &Config) -> String {
    id(config, SNAPSHOTS)
}

/// Returns an identifier that distinguishes exporters to the same bucket by machine, data directory
/// and role. It is a hash that reveals none of them.
fn id(config: &Config, role: u8) -> String {
    let directory = std::fs::canonicalize(&config.data_dir).unwrap_or(config.data_dir.clone());
    let mut hash = Sha256::new();
    // If neither file can be read, the directory alone identifies the exporter.
    MACHINE.iter().for_each(|file| hash.update(std::fs::read(file).unwrap_or_default()));
    hash.update(directory.as_os_str().as_encoded_bytes());
    hash.update([role]);
    let mut id = hex::encode(hash.finalize());
    id.truncate(ID_DIGITS);
    id
}

/// Returns the tables of events and transactions that SQL reads, if an export to a directory of this machine is
/// configured.
///
/// # Errors
/// When its path cannot be used.
pub(super) fn live_chain(
    node: &Node,
    config: &Config,
    interfaces: &Arc<Interfaces>,
) -> Result<Option<Arc<LiveChain>>, ServiceError> {
    let local = config.export.destination().filter(|to| !to.contains("://"));
    // The ids of a reader's events are not those in a writer's files.
    let local = local.filter(|_| node.reader().is_none());
    let Some(directory) = local else { return Ok(None) };
    let (store, names) = (Arc::clone(node.store()), Some(Arc::clone(interfaces)));
    let portion = config.export.ledgers_per_file.get();
    Ok(Some(Arc::new(LiveChain::open(store, names, Path::new(directory), portion)?)))
}

/// Returns the tables that the service exports, for its catalogue; `None` if it exports none.
pub(super) fn exported_tables(node: &Node, config: &Config) -> Option<ExportedTables> {
    config.export.destination().filter(|_| node.reader().is_none())?;
    let listed = node.listed().clone();
    Some(Arc::new(move |programs: &[ProgramId]| {
        let lake = listed.now()?;
        let namespaces = lake.namespaces_of(programs);
        Some(ExportedNow { lake: Box::new(lake), namespaces })
    }))
}

/// A configured export that is ready to run.
pub(super) struct Exporting {
    node: Arc<Node>,
    export: Continuous,
    interfaces: Arc<Interfaces>,
    stop: watch::Receiver<bool>,
}

/// Prepares the configured export, if there is one.
///
/// # Errors
/// When the destination is invalid, or is a local directory that holds something else. A bucket is
/// not contacted here; a destination that is only unreachable is retried later.
pub(super) fn open(
    node: &Arc<Node>,
    config: &Config,
    interfaces: &Arc<Interfaces>,
    stop: watch::Receiver<bool>,
) -> Result<Option<Exporting>, ServiceError> {
    let Some(to) = config.export.destination() else { return Ok(None) };
    if node.reader().is_some() {
        node.health().up_with(EXPORT, READER_OFF);
        return Ok(None);
    }
    let interrupt = Interrupt::by(stop.clone());
    let place = export_destination(to, config, ExportRole::Service, interrupt.clone())?;
    let store = Arc::clone(node.store());
    let scope = ExportScope {
        portion: config.export.ledgers_per_file.get(),
        programs: config.export.programs,
    };
    let export = Continuous::new(store, place, scope, interrupt)
        .naming(Arc::clone(interfaces))
        .attested_by(Attestations::Live(Arc::clone(node.attestation())))
        .listed_in(node.listed().clone());
    export.check()?;
    node.health().up_by_default(EXPORT);
    let interfaces = Arc::clone(interfaces);
    Ok(Some(Exporting { node: Arc::clone(node), export, interfaces, stop }))
}

impl Exporting {
    /// Starts the thread that exports. After a failure the export is opened anew.
    pub fn start(self, tasks: &mut Tasks, config: &Config) -> Result<(), ServiceError> {
        let (node, stop, config) = (Arc::clone(&self.node), self.stop.clone(), config.clone());
        let interfaces = Arc::clone(&self.interfaces);
        let (runtime, mut opened) = (Handle::current(), Some(self));
        tasks.spawn_thread(EXPORT, Priority::Background, move || {
            let exporting = match opened.take() {
                Some(exporting) => Ok(Some(exporting)),
                None => open(&node, &config, &interfaces, stop.clone()),
            };
            match exporting {
                Ok(Some(exporting)) => exporting.work(&runtime),
                Ok(None) => {}
                Err(error) => tracing::error!("{error}"),
            }
        })
    }

    fn work(self, runtime: &Handle) {
        let Self { node, mut export, stop, .. } = self;
        let (store, health, metrics) = (node.store(), node.health(), node.metrics());
        let mut failures = 0;
        while !is_stopping(&stop) {
            health.injected().panic_if(EXPORT);
            let step = export.step(Instant::now(), |progress| {
                tracing::debug!(newest = progress.newest.map(|it| it.0), "exported");
                report(progress, store, health, metrics);
            });
            let wait = match step {
                Ok(added) => {
                    failures = 0;
                    let AddedNow { ledgers: added, programs } = added;
                    if programs.failed > 0 {
                        metrics.export_failed();
                    }
                    if added.ledgers > 0 || programs.rows > 0 {
                        let Added { ledgers, events, transactions } = added;
                        tracing::info!(
                            ledgers,
                            events,
                            transactions,
                            rows = programs.rows,
                            "exported"
                        );
                    }
                    report(export.progress(), store, health, metrics);
                    CHECK_INTERVAL
                }
                Err(ExportError::Interrupted) => return,
                Err(error) => {
                    failures += 1;
                    metrics.export_failed();
                    let wait = pause(failures);
                    let seconds = wait.as_secs();
                    tracing::warn!("the export failed and will be retried in {seconds} s: {error}");
                    let trouble = error.summary();
                    // No API response depends on the export, so the component is reported as up.
                    let detail = format!(
                        "the export is stalled and will be retried: {trouble}; see the log"
                    );
                    health.up_with(EXPORT, detail);
                    wait
                }
            };
            // The loop condition checks whether the service stops.
            let _ = runtime.block_on(async { timeout(wait, stopped(stop.clone())).await });
        }
    }
}

/// Returns the delay after `failures` consecutive failures, counted from 1.
fn pause(failures: u32) -> Duration {
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

/// Reports the export's progress in health and metrics.
fn report(progress: Progress, store: &Store, health: &Health, metrics: &Metrics) {
    metrics.set_exported_ledgers(progress.ledgers);
    let mut detail = match progress.newest {
        None => "no ledger is exported yet".to_owned(),
        Some(newest) => format!("{} ledgers exported, the newest {newest}", progress.ledgers),
    };
    if progress.rows > 0 {
        detail.push_str(&format!("; {} rows of programs", progress.rows));
    }
    if progress.failed_programs > 0 {
        let failed = progress.failed_programs;
        detail
            .push_str(&format!("; rows of {failed} programs cannot be exported: the log says why"));
    }
    if let Some(consumer) = store.consumer(export::CONSUMER) {
        detail.push_str(&format!("; {} wait until their file is complete", consumer.lag));
        let lost = consumer.lost.ledgers();
        if lost > 0 {
            detail.push_str(&format!(
                "; {lost} were removed before they were exported, see `orrery status`"
            ));
        }
    }
    health.up_with(EXPORT, detail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_told_apart() {
        let config = Config::default();
        let other = Config { data_dir: "elsewhere".into(), ..Config::default() };
        let ids = [
            id(&config, ExportRole::Service as u8),
            id(&config, ExportRole::Manual as u8),
            id(&other, ExportRole::Service as u8),
        ];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        assert_eq!(ids[0], id(&config, ExportRole::Service as u8));
        assert!(!ids.contains(&snapshot_writer_id(&config)), "{ids:?}");
        assert_eq!(ids[0].len(), ID_DIGITS);
    }

    #[test]
    fn retry_pauses_grow_up_to_a_maximum() {
        let seconds: Vec<u64> = (1..=10).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
