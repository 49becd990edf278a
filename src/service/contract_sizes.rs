//! Estimates the disk space that contracts take, repeatedly and at the lowest priority.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Node;
use super::stop::stopped;
use crate::store::{ContractSizes, Sample};

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

/// Estimates until `stop` turns true, and publishes each estimate in `estimates`.
pub(super) fn estimate(
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
        if runtime.block_on(async { timeout(pause, stopped(stop.clone())).await }).is_ok() {
            return;
        }
    }
}
