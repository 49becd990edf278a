//! Estimates what contracts take on the disk, again and again, at the lowest priority.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Ledgers, stopped};
use crate::priority::Priority;
use crate::store::{ContractSizes, Sample};

/// Where contracts are about as busy in one ledger as in another, so many tell shares to a few hundredths. Of dense
/// ledgers, with megabytes of records each, fewer do.
const SAMPLE: Sample = Sample { ledgers: 256, bytes: 256 << 20, contracts: 100_000 };
/// Contracts that are told.
const MOST: usize = 10;
/// So many times as long as an estimate took, nothing is estimated.
const PAUSE: u32 = 60;
/// The shortest pause: in a small store, for whoever watches it begin.
const SHORTEST: Duration = Duration::from_secs(10);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(1800);

/// Estimates until `stop` turns true, and tells each estimate.
pub(super) async fn estimate(
    ledgers: Arc<Ledgers>,
    estimates: watch::Sender<Option<Arc<ContractSizes>>>,
    stop: watch::Receiver<bool>,
) {
    let runtime = Handle::current();
    let thread = thread::spawn(move || {
        Priority::Background.take();
        work(&ledgers, &estimates, &stop, &runtime);
    });
    if !spawn_blocking(move || thread.join().is_ok()).await.unwrap_or(false) {
        tracing::error!("the thread that estimates sizes of contracts had panicked");
    }
}

fn work(
    ledgers: &Ledgers,
    estimates: &watch::Sender<Option<Arc<ContractSizes>>>,
    stop: &watch::Receiver<bool>,
    runtime: &Handle,
) {
    loop {
        let began = Instant::now();
        let pause = match ledgers.store().contract_sizes(SAMPLE, MOST, || !*stop.borrow()) {
            Ok(None) => return,
            Ok(Some(sizes)) => {
                estimates.send_replace(Some(Arc::new(sizes)));
                began.elapsed().saturating_mul(PAUSE).clamp(SHORTEST, LONGEST)
            }
            // The last estimate stays. A damaged record is found again each time.
            Err(error) => {
                tracing::warn!("the sizes of contracts could not be estimated: {error}");
                LONGEST
            }
        };
        if runtime.block_on(async { timeout(pause, stopped(stop.clone())).await }).is_ok() {
            return;
        }
    }
}
