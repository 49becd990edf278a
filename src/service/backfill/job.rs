//! One backfill order: its validation, the ledgers missing from it, and the run.

use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::{OpenSources, Progress};
use crate::control::BackfillOrder;
use crate::domain::{LedgerRange, LedgerSeq, StartPoint};
use crate::durable::write_atomically;
use crate::observe::health::{Component, Health};
use crate::pipeline::Ingested;
use crate::service::Node;
use crate::service::ingest::{self, Ended, Ingestion};
use crate::source::follow::{Followed, Follower, Reports, Task, Timing};
use crate::store::{Durability, StoreError};

/// Names under which the sources and the storing of ledgers report to health.
const SOURCE: &str = "backfill_source";
pub(super) const STORING: &str = "backfill";
/// Maximum number of ledgers in a piece: half a day of the public network.
const PIECE: u32 = 8192;
/// The same where ledgers are stored only once they are attested. The ledgers of a piece wait until the
/// stored ledger above attests them, and fewer than that may wait.
const PIECE_ATTESTED: u32 = 64;
/// Flush interval. A crash loses at most the ledgers stored in this time, which are fetched again.
const FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Name of the file in the data directory with the order of a backfill that is under way.
pub const ORDER_FILE: &str = "backfill.json";
/// Mode of that file: addresses of sources may contain passwords.
const FILE_MODE: u32 = 0o600;

/// Why older ledgers cannot be backfilled.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    /// Another order is running.
    #[error(
        "a backfill of ledgers {0} is running: wait until it has ended, or cancel it with --cancel"
    )]
    Running(LedgerRange),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<StoreError> for BackfillError {
    fn from(error: StoreError) -> Self {
        Self::Other(format!("the stored ledgers cannot be read: {error}"))
    }
}

/// The file that holds an order until it has ended.
pub struct OrderFile(PathBuf);

impl OrderFile {
    /// Returns the order file of a data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self(data_dir.join(ORDER_FILE))
    }

    /// Returns the interrupted order, if there is one, and makes the file private.
    ///
    /// # Errors
    /// When the file cannot be read, or contains no order.
    pub fn load(&self) -> Result<Option<BackfillOrder>, BackfillError> {
        let order = self.look()?;
        if order.is_some() {
            // A copy of the directory may have been made without the modes of its files.
            fs::set_permissions(&self.0, Permissions::from_mode(FILE_MODE))
                .map_err(|error| self.error(error))?;
        }
        Ok(order)
    }

    /// Returns the interrupted order, if there is one. Changes nothing.
    ///
    /// # Errors
    /// When the file cannot be read, or contains no order.
    pub fn look(&self) -> Result<Option<BackfillOrder>, BackfillError> {
        match fs::read(&self.0) {
            Ok(text) => {
                // The parser's error message may quote the file, which may contain passwords.
                let order = serde_json::from_slice(&text);
                order.map(Some).map_err(|_| self.error("it does not contain a backfill order"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Returns whether there is an order, even an unreadable one.
    pub(super) fn exists(&self) -> bool {
        self.0.exists()
    }

    pub(super) fn save(&self, order: &BackfillOrder) -> Result<(), BackfillError> {
        write_atomically(&self.0, |file| file.write_all(&serde_json::to_vec(order)?))
            .map_err(|error| self.error(error))
    }

    /// Removes the file.
    pub fn remove(&self) -> Result<(), BackfillError> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.error(error)),
            _ => Ok(()),
        }
    }

    fn error(&self, reason: impl Display) -> BackfillError {
        BackfillError::Other(format!("the file {}: {reason}", self.0.display()))
    }
}

/// Validates an order and returns its range of ledgers.
pub(super) fn check(order: &BackfillOrder, node: &Node) -> Result<LedgerRange, BackfillError> {
    let &BackfillOrder { from, to, .. } = order;
    let range = range_of(order);
    if range.is_empty() {
        return Err(BackfillError::Other(format!(
            "there is no ledger from {from} to {to}: give the older one first"
        )));
    }
    if let Some(newest) = node.health().network_latest().filter(|newest| *newest < range.last) {
        return Err(BackfillError::Other(format!(
            "ledger {to} is not closed yet: the newest ledger of the network is {newest}"
        )));
    }
    let kept_from = node.first_retained();
    if range.last < kept_from {
        return Err(BackfillError::Other(format!(
            "ledgers up to {to} would be removed again at once, because retention keeps events and \
             transactions from ledger {kept_from} on: raise retention.events and \
             retention.transactions"
        )));
    }
    Ok(range)
}

pub(super) fn range_of(order: &BackfillOrder) -> LedgerRange {
    LedgerRange { first: LedgerSeq(order.from).max(LedgerSeq::FIRST), last: LedgerSeq(order.to) }
}

/// Returns the ranges of ledgers that are not stored, in ascending order.
pub(super) fn missing(range: LedgerRange, node: &Node) -> Vec<LedgerRange> {
    missing_between(range, &node.store().status().ranges)
}

fn missing_between(range: LedgerRange, stored: &[LedgerRange]) -> Vec<LedgerRange> {
    let (mut gaps, mut from) = (Vec::new(), Some(range.first));
    for covered in stored.iter().filter(|covered| covered.last >= range.first) {
        let Some(first) = from else { break };
        if let Some(before) = covered.first.previous().map(|before| before.min(range.last))
            && before >= first
        {
            gaps.push(LedgerRange { first, last: before });
        }
        from = covered.last.next().map(|next| next.max(first));
    }
    if let Some(first) = from.filter(|first| *first <= range.last) {
        gaps.push(LedgerRange { first, last: range.last });
    }
    gaps
}

/// Fetches the missing ledgers of an order. Returns false when it was halted before the end.
pub(super) async fn fill(
    node: &Arc<Node>,
    open_sources: &OpenSources,
    order: &BackfillOrder,
    progress: &Arc<Progress>,
    halted: watch::Receiver<bool>,
) -> Result<bool, BackfillError> {
    let range = range_of(order);
    if missing(range, node).is_empty() {
        return make_durable(node).await;
    }
    let older = open_sources(order.sources.clone(), range).await.map_err(BackfillError::Other)?;
    let most = match node.trust().require_attested {
        _ if older.in_one_piece => u32::MAX,
        true => PIECE_ATTESTED,
        false => PIECE,
    };
    let mut follower = Follower::new(
        older.sources,
        Task { next: None, start: StartPoint::Genesis, last: None },
        node.store().network().clone(),
        ingest::range_of(node.store()),
        Reports {
            health: Arc::clone(node.health()),
            metrics: Arc::clone(node.metrics()),
            component: SOURCE,
        },
        Timing::default(),
        StdRng::from_os_rng(),
    );
    let stored = stored_callback(node, progress);
    while let Some(newest) = missing(range, node).pop() {
        let piece = newest_piece(newest, most);
        follower.start_task(Task {
            next: Some(piece.first),
            start: StartPoint::Genesis,
            last: Some(piece.last),
        });
        let ingestion = Ingestion {
            node,
            durability: Durability::Deferred,
            older_up_to: Some(piece.last),
            component: STORING,
            stored: Arc::clone(&stored),
        };
        match ingestion.run(&mut follower, halted.clone()).await {
            Ended::Followed(Followed::Done) => {}
            Ended::Followed(_) => {
                let last = piece.last;
                return Err(BackfillError::Other(format!("the source ended before ledger {last}")));
            }
            Ended::Failed(error) => return Err(BackfillError::Other(error.to_string())),
            Ended::Stopped => return Ok(false),
        }
    }
    make_durable(node).await
}

/// Flushes the store. An order is done only when its ledgers are on disk, including those that an
/// import or an earlier order stored.
async fn make_durable(node: &Arc<Node>) -> Result<bool, BackfillError> {
    let store = Arc::clone(node.store());
    let failed = |error: &dyn Display| {
        BackfillError::Other(format!("the ledgers are stored, but cannot be made durable: {error}"))
    };
    match spawn_blocking(move || store.flush()).await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(error)) => Err(failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

fn newest_piece(gap: LedgerRange, most: u32) -> LedgerRange {
    let first = LedgerSeq(gap.last.0.saturating_sub(most - 1)).max(gap.first);
    LedgerRange { first, last: gap.last }
}

/// Returns a callback that counts stored ledgers and flushes them every [`FLUSH_EVERY`].
fn stored_callback(
    node: &Arc<Node>,
    progress: &Arc<Progress>,
) -> Arc<dyn Fn(&Ingested) + Send + Sync> {
    let (node, progress) = (Arc::clone(node), Arc::clone(progress));
    let flushed = Mutex::new(Instant::now());
    Arc::new(move |ingested| {
        progress.stored(ingested);
        let mut flushed = flushed.lock();
        if flushed.elapsed() >= FLUSH_EVERY {
            // Pruning does nothing while ledgers are not durable, so it runs after the flush. A
            // failure is only logged here: the last flush reports it.
            let done = node.store().flush().and_then(|()| node.prune());
            if let Err(error) = done {
                tracing::warn!("older ledgers could not be made durable: {error}");
            }
            *flushed = Instant::now();
        }
    })
}

/// Returns the reason why the run makes no progress, if storing or a source is down.
pub(super) fn stall_reason(health: &Health) -> Option<String> {
    let mut components = health.components();
    [STORING, SOURCE].into_iter().find_map(|name| match components.remove(name) {
        Some(Component::Down { reason }) => Some(reason),
        _ => None,
    })
}

/// Removes the backfill's components from health.
pub(super) fn forget(node: &Node) {
    node.health().forget(SOURCE);
    node.health().forget(STORING);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranges_are_found() {
        let missing = |first: u32, last: u32, stored: &[(u32, u32)]| -> Vec<(u32, u32)> {
            let stored: Vec<_> = stored.iter().map(|(f, l)| LedgerRange::new(*f, *l)).collect();
            let gaps = missing_between(LedgerRange::new(first, last), &stored);
            gaps.iter().map(|gap| (gap.first.0, gap.last.0)).collect()
        };
        assert_eq!(missing(2, 9, &[]), [(2, 9)]);
        assert_eq!(missing(2, 9, &[(2, 9)]), []);
        assert_eq!(missing(5, 9, &[(2, 20)]), []);
        assert_eq!(missing(2, 9, &[(1, 3), (5, 6), (9, 12)]), [(4, 4), (7, 8)]);
        assert_eq!(missing(4, 30, &[(1, 3), (10, 12), (40, 50)]), [(4, 9), (13, 30)]);
        assert_eq!(missing(7, 8, &[(1, 7)]), [(8, 8)]);
        assert_eq!(missing(u32::MAX, u32::MAX, &[(9, u32::MAX)]), []);
        assert_eq!(missing(0, u32::MAX, &[(0, u32::MAX - 1)]), [(u32::MAX, u32::MAX)]);
    }

    #[test]
    fn the_newest_part_comes_first() {
        let newest =
            |first: u32, last: u32, most| newest_piece(LedgerRange::new(first, last), most);
        assert_eq!(newest(2, 100_000, 1000), LedgerRange::new(99_001, 100_000));
        assert_eq!(newest(90, 100, 1000), LedgerRange::new(90, 100));
        assert_eq!(newest(0, 5, 1000), LedgerRange::new(0, 5));
        assert_eq!(newest(2, 100_000, u32::MAX), LedgerRange::new(2, 100_000));
    }
}
