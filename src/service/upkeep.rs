//! What a running service repeats until it stops: it removes old data, measures the store, and records
//! how far it is behind the network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Node;
use super::tasks::stopped;
use crate::observe::history::SAMPLE_INTERVAL;
use crate::programs::Programs;
use crate::steady::Milliseconds;
use crate::steady::unix_now;
use crate::store::{ContractSizes, Sample, StoreError};
use crate::webhooks::manage::Webhooks;

/// Name under which retention reports to health.
pub(super) const RETENTION: &str = "retention";
/// Interval between two prunes.
const PRUNE_EVERY: Duration = Duration::from_secs(10);
/// Number of prunes between two measurements of the store's size.
const MEASURE_EVERY: u32 = 6;
/// Number of prunes between two searches for small files, unless the last one has merged some.
const MERGE_EVERY: u32 = 60;
/// Interval between two prunes of the programs' records.
const PRUNE_RECORDS_EVERY: Duration = Duration::from_secs(600);
/// Interval between two removals of old deliveries.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Interval at which secrets of webhooks that could not be written are written again.
const KEEP_SECRETS_EVERY: Duration = Duration::from_secs(60);

/// Size of a sample. Where contracts are about equally busy in all ledgers, 256 ledgers determine
/// shares to a few per cent. For dense ledgers, with megabytes of records each, fewer ledgers
/// suffice, so the byte limit ends the sample earlier.
const SAMPLE: Sample = Sample { ledgers: 256, bytes: 256 << 20, contracts: 100_000 };
/// Number of contracts in an estimate.
const MAX_CONTRACTS: usize = 10;
/// Pause between two estimates, as a multiple of the time that the last one took.
const PAUSE_FACTOR: u32 = 60;
/// Minimum pause, which applies in a small store, so that its status is up to date soon.
const MIN_PAUSE: Duration = Duration::from_secs(10);
/// Maximum pause, and the pause after an error.
const MAX_PAUSE: Duration = Duration::from_secs(1800);

/// Name of the thread that estimates.
pub(super) const CONTRACT_SIZES: &str = "contract_sizes";

/// Waits, and returns whether `stop` has turned true meanwhile.
async fn stops_within(pause: Duration, stop: &watch::Receiver<bool>) -> bool {
    timeout(pause, stopped(stop.clone())).await.is_ok()
}

/// Removes what retention no longer keeps, and reports sizes and consumers, until `stop` turns true.
pub(super) async fn prune_regularly(node: Arc<Node>, stop: watch::Receiver<bool>) {
    let mut merges_at = MERGE_EVERY;
    for round in 0u32.. {
        let work = Arc::clone(&node);
        let merges = round == merges_at;
        let done = spawn_blocking(move || {
            work.prune()?;
            work.report_consumers();
            if round % MEASURE_EVERY == 0 {
                work.measure()?;
            }
            Ok::<_, StoreError>(merges && merge_small_files(&work))
        });
        let done = done.await;
        if merges {
            let has_merged = matches!(done, Ok(Ok(true)));
            merges_at = round.saturating_add(if has_merged { 1 } else { MERGE_EVERY });
        }
        let failure = match done {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        match failure {
            None => node.health().up(RETENTION),
            Some(error) => {
                tracing::error!("retention could not remove old data: {error}");
                let reason = "old data could not be removed: the log says why";
                node.health().down(RETENTION, reason);
            }
        }
        if stops_within(PRUNE_EVERY, &stop).await {
            return;
        }
    }
}

/// Merges some small files of the store, and returns whether there were any.
fn merge_small_files(node: &Node) -> bool {
    match node.store().merge_small_files() {
        Ok(merged) => merged > 0,
        Err(error) => {
            tracing::error!("small files of the store could not be merged: {error}");
            false
        }
    }
}

/// Removes old records of programs repeatedly until `stop` turns true. `now` returns the UNIX time in
/// milliseconds by which they are old.
pub(super) async fn prune_program_records(
    programs: Arc<Programs>,
    now: Milliseconds,
    stop: watch::Receiver<bool>,
) {
    loop {
        let (programs, now) = (Arc::clone(&programs), now());
        match spawn_blocking(move || programs.prune(now)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!("old records of programs could not be removed: {error}")
            }
            Err(error) => tracing::error!("old records of programs could not be removed: {error}"),
        }
        if stops_within(PRUNE_RECORDS_EVERY, &stop).await {
            return;
        }
    }
}

/// Removes old deliveries of webhooks repeatedly until `stop` turns true, and writes secrets that could not be
/// written when they were to.
pub(super) async fn sweep_webhooks(webhooks: Arc<Webhooks>, stop: watch::Receiver<bool>) {
    loop {
        let swept = Arc::clone(&webhooks);
        match spawn_blocking(move || swept.sweep()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::error!("old deliveries of webhooks could not be removed: {error}")
            }
            Err(error) => {
                tracing::error!("old deliveries of webhooks could not be removed: {error}")
            }
        }
        for _ in 0..SWEEP_EVERY.as_secs() / KEEP_SECRETS_EVERY.as_secs() {
            if stops_within(KEEP_SECRETS_EVERY, &stop).await {
                return;
            }
            let kept = Arc::clone(&webhooks);
            match spawn_blocking(move || kept.keep_secrets()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!("secrets of webhooks are not written: {error}"),
                Err(error) => tracing::error!("secrets of webhooks are not written: {error}"),
            }
        }
    }
}

/// Records how far the store is behind the network, until `stop` turns true. Reads only values in
/// memory.
pub(super) async fn record_lag(node: Arc<Node>, stop: watch::Receiver<bool>) {
    loop {
        let ends = node.store().ends();
        node.health().record_lag(unix_now(), ends.latest, ends.latest_close_time);
        if stops_within(SAMPLE_INTERVAL, &stop).await {
            return;
        }
    }
}

/// Estimates the disk space that contracts take, repeatedly, and publishes each estimate in `estimates`.
pub(super) fn estimate_contract_sizes(
    node: &Node,
    estimates: &watch::Sender<Option<Arc<ContractSizes>>>,
    stop: &watch::Receiver<bool>,
    runtime: &Handle,
) {
    loop {
        node.health().injected().panic_if(CONTRACT_SIZES);
        let began = Instant::now();
        let pause = match node.store().contract_sizes(SAMPLE, MAX_CONTRACTS, || !*stop.borrow()) {
            Ok(None) => return,
            Ok(Some(sizes)) => {
                estimates.send_replace(Some(Arc::new(sizes)));
                began.elapsed().saturating_mul(PAUSE_FACTOR).clamp(MIN_PAUSE, MAX_PAUSE)
            }
            // The last estimate stays published. A damaged record fails every estimate, so the
            // longest pause applies.
            Err(error) => {
                tracing::warn!("the sizes of contracts could not be estimated: {error}");
                MAX_PAUSE
            }
        };
        if runtime.block_on(stops_within(pause, stop)) {
            return;
        }
    }
}
