//! The export of a running service: a thread of its own takes what is complete, at the lowest priority, and tries again
//! what failed. Nothing waits for it but retention, within its bound.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Ledgers, ServiceError, stopped, unix_now};
use crate::config::{Config, Export};
use crate::export::{
    self, Added, AddedNow, Continuous, ExportError, Interrupt, Place, Progress, Taken, Who,
};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::priority::Priority;
use crate::source::http::Timeouts;
use crate::source::lake::{AccessKey, LakeSettings, S3Credentials};
use crate::store::{ConsumerSpec, Store};

/// Name under which it reports to health.
const EXPORT: &str = "export";
/// Between two looks for what is complete.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Before a step that failed is tried again, the first time; the pause is doubled with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A whole object is sent within this time, and then answered.
const UPLOAD: Duration = Duration::from_secs(120);
/// What tells machines, and containers, apart. Not `/proc/sys`, which a hardened service does not see.
const MACHINE: [&str; 2] = ["/etc/machine-id", "/etc/hostname"];
/// Letters of what tells exports apart.
const ID: usize = 16;

/// What the store is told of when it is opened, if there is to be an export.
pub(super) fn registered(config: &Config) -> Option<ConsumerSpec> {
    config.export.given().map(|_| export::consumer())
}

/// Where an export goes. What waits for a bucket's answer ends at an interruption.
///
/// # Errors
/// When it is no place for an export.
pub fn export_place(
    to: &str,
    config: &Config,
    role: ExportRole,
    interrupt: Interrupt,
) -> Result<Place, ExportError> {
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let Export { s3_region, s3_endpoint, s3_access_key_id, s3_secret_access_key, .. } =
        &config.export;
    let is_s3 = to.contains("://");
    let settings = LakeSettings {
        region: given(s3_region).filter(|_| is_s3),
        endpoint: given(s3_endpoint).filter(|_| is_s3),
        credentials: match s3_secret_access_key.given() {
            None => S3Credentials::Environment,
            Some(secret) => S3Credentials::Key(AccessKey {
                id: s3_access_key_id.clone(),
                secret: secret.to_owned(),
                session_token: None,
            }),
        },
        timeouts: Timeouts { idle: UPLOAD, ..Timeouts::default() },
        ..LakeSettings::at(to)
    };
    let who = Who { id: id(config, role), clock: unix_now, chance: rand::random };
    Place::of(&settings, who, interrupt)
}

/// Who exports of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportRole {
    /// The service.
    Service,
    /// `orrery export`.
    Hand,
}

/// Tells exports apart that write to the same bucket: those of other data directories, and in other roles. It says
/// nothing about any of them.
fn id(config: &Config, role: ExportRole) -> String {
    let directory = std::fs::canonicalize(&config.data_dir).unwrap_or(config.data_dir.clone());
    let mut hash = Sha256::new();
    // Where neither is there, the directory alone must do.
    MACHINE.iter().for_each(|file| hash.update(std::fs::read(file).unwrap_or_default()));
    hash.update(directory.as_os_str().as_encoded_bytes());
    hash.update([role as u8]);
    let mut id = hex::encode(hash.finalize());
    id.truncate(ID);
    id
}

/// An export that is ready to go on.
pub(super) struct Exporting {
    ledgers: Arc<Ledgers>,
    export: Continuous,
    stop: watch::Receiver<bool>,
}

/// Makes the export of the settings ready, if there is to be one.
///
/// # Errors
/// When it cannot be there. What is far away is not asked, and what is only out of reach is tried again later.
pub(super) fn open(
    ledgers: &Arc<Ledgers>,
    config: &Config,
    stop: watch::Receiver<bool>,
) -> Result<Option<Exporting>, ServiceError> {
    let Some(to) = config.export.given() else { return Ok(None) };
    let interrupt = Interrupt::by(stop.clone());
    let place = export_place(to, config, ExportRole::Service, interrupt.clone())?;
    let store = Arc::clone(ledgers.store());
    let taken =
        Taken { portion: config.export.ledgers_per_file.get(), programs: config.export.programs };
    let export = Continuous::new(store, place, taken, interrupt);
    export.check()?;
    ledgers.health().begins(EXPORT);
    Ok(Some(Exporting { ledgers: Arc::clone(ledgers), export, stop }))
}

impl Exporting {
    /// Exports until it is time to stop.
    pub async fn run(self) {
        let runtime = Handle::current();
        let thread = thread::spawn(move || {
            Priority::Background.take();
            self.work(&runtime);
        });
        if !spawn_blocking(move || thread.join().is_ok()).await.unwrap_or(false) {
            tracing::error!("the thread of the export had panicked");
        }
    }

    fn work(self, runtime: &Handle) {
        let Self { ledgers, mut export, stop } = self;
        let (store, health, metrics) = (ledgers.store(), ledgers.health(), ledgers.metrics());
        let mut failures = 0;
        while !*stop.borrow() {
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
                    LOOK_EVERY
                }
                Err(ExportError::Interrupted) => return,
                Err(error) => {
                    failures += 1;
                    metrics.export_failed();
                    let wait = pause(failures);
                    let seconds = wait.as_secs();
                    tracing::warn!("the export is tried again in {seconds} s: {error}");
                    let trouble = error.trouble();
                    // Nobody's answers depend on it, so the service is not down for this.
                    let detail = format!(
                        "the export does not go on and is tried again: {trouble}; the log says more"
                    );
                    health.up_with(EXPORT, detail);
                    wait
                }
            };
            // Whether it is time to stop is asked at the beginning.
            let _ = runtime.block_on(async { timeout(wait, stopped(stop.clone())).await });
        }
    }
}

/// How long it waits after so many failures, from 1.
fn pause(failures: u32) -> Duration {
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

/// Says in health and metrics how far it is.
fn report(progress: Progress, store: &Store, health: &Health, metrics: &Metrics) {
    metrics.exported_are(progress.ledgers);
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
            detail.push_str(&format!("; {lost} were removed before, see `orrery status`"));
        }
    }
    health.up_with(EXPORT, detail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let seconds: Vec<u64> = (1..=10).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn exports_are_told_apart() {
        let config = Config::default();
        let other = Config { data_dir: "elsewhere".into(), ..Config::default() };
        let ids = [
            id(&config, ExportRole::Service),
            id(&config, ExportRole::Hand),
            id(&other, ExportRole::Service),
        ];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        assert_eq!(ids[0], id(&config, ExportRole::Service));
        assert_eq!(ids[0].len(), ID);
    }
}
