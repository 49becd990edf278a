//! What one request may cost while it is worked on: records, index rows, time, and bytes of its answer.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::ApiError;
use super::client::{Client, Waiting};
use super::route::Call;
use crate::budget::Share;
use crate::store::{Bounds, Interrupted, Walked};

/// By how many bytes an answer's share grows.
pub(super) const STEP: u64 = 1 << 20;

/// What a question to the store may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// Event blocks or transaction records that it may read.
    pub records: u64,
    /// Rows of indexes that it may look at.
    pub index_rows: u64,
    /// How long it may take.
    pub time: Duration,
    /// Bytes after which a page ends, however few rows it has.
    pub page_bytes: u64,
    /// Rows that `offset` may pass over.
    pub offset: u64,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            records: 20_000,
            index_rows: 200_000,
            time: Duration::from_secs(2),
            page_bytes: 8 << 20,
            offset: 10_000,
        }
    }
}

/// What a request may still cost.
pub(super) struct Allowance<'a> {
    pub limits: &'a ScanLimits,
    waiting: Waiting<'a>,
    /// Bytes that are reserved for the answer.
    share: Mutex<&'a mut Share>,
    /// Whether the answer ended early for its bytes.
    was_cut: AtomicBool,
}

impl<'a> Allowance<'a> {
    /// For a request that is worked on from now on, and has this share of the bytes of answers.
    pub(super) fn new(limits: &'a ScanLimits, client: &'a Client, share: &'a mut Share) -> Self {
        Self {
            limits,
            waiting: Waiting::of(client),
            share: Mutex::new(share),
            was_cut: AtomicBool::new(false),
        }
    }

    /// Whether a page of so many bytes goes on: neither is it full, nor is memory short.
    pub(super) fn goes_on(&self, bytes: usize) -> ControlFlow<()> {
        let bytes = bytes as u64;
        let mut share = self.share.lock();
        let has_share = bytes < share.amount() || share.grow_to(bytes + STEP).is_ok();
        if bytes < self.limits.page_bytes && has_share {
            return ControlFlow::Continue(());
        }
        self.was_cut.store(true, Ordering::Relaxed);
        ControlFlow::Break(())
    }
}

/// Walks the store within what a request may cost; says whether the page is complete. `rows` is given
/// the bounds, and what decides by the length of the page whether it goes on; it says whether the page
/// has rows. One that has them when the walk is interrupted ends early: its last row is where to go on.
pub(super) fn walk<C: Into<serde_json::Value>>(
    call: &Call<'_>,
    offset: u64,
    rows: impl FnOnce(
        Bounds<'_>,
        &dyn Fn(usize) -> ControlFlow<()>,
    ) -> Result<(Walked<C>, bool), ApiError>,
) -> Result<bool, ApiError> {
    let Some(allowance) = call.allowance else {
        return rows(Bounds::NONE, &|_| ControlFlow::Continue(())).map(|_| true);
    };
    let Allowance { limits, waiting, .. } = allowance;
    let is_over = || waiting.elapsed() >= limits.time || waiting.has_ended();
    let bounds =
        Bounds { records: limits.records, index_rows: limits.index_rows, interrupted: &is_over };
    let (walked, has_rows) = rows(bounds, &|bytes| allowance.goes_on(bytes))?;
    match walked.interrupted {
        None => Ok(!allowance.was_cut.load(Ordering::Relaxed)),
        Some(_) if waiting.has_ended() => Err(ApiError::HungUp),
        Some(_) if has_rows => Ok(false),
        Some(Interrupted { cursor, skipped }) => {
            Err(ApiError::TooExpensive { cursor: cursor.into(), skipped, offset })
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::super::client::Pace;
    use super::*;
    use crate::budget::{Budget, Holder, Limits};
    use crate::store::QueryCost;

    const HOUR: Duration = Duration::from_secs(3600);

    async fn connected() -> (TcpStream, std::sync::Arc<Client>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, address) = listener.accept().await.unwrap();
        let (client, _) = Client::new(
            far,
            address,
            Pace { grace: HOUR, bytes_per_second: 1 },
            &std::sync::Arc::default(),
        );
        (near, client)
    }

    /// Walks for ever, unless it is interrupted.
    fn endless(bounds: Bounds<'_>) -> Walked<u64> {
        while !(bounds.interrupted)() {
            std::thread::yield_now();
        }
        let interrupted = Some(Interrupted { cursor: 7, skipped: 0 });
        Walked { cost: QueryCost::default(), interrupted }
    }

    fn share() -> Share {
        let budget = Budget::new("tests", Limits::without_waiting(16 << 20, 16 << 20));
        budget.take_now(Holder::of("somebody"), STEP).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_for_a_client_that_hung_up_ends() {
        let (near, client) = connected().await;
        let limits = ScanLimits { time: HOUR, ..ScanLimits::default() };
        let work = tokio::task::spawn_blocking(move || {
            let mut share = share();
            let allowance = Allowance::new(&limits, &client, &mut share);
            let call = Call { allowance: Some(&allowance), ..Call::default() };
            walk(&call, 0, |bounds, _| Ok((endless(bounds), false)))
        });
        drop(near);
        assert!(matches!(work.await.unwrap(), Err(ApiError::HungUp)));
    }

    #[tokio::test]
    async fn a_walk_ends_after_its_time_with_what_it_has() {
        let (_near, client) = connected().await;
        let limits = ScanLimits { time: Duration::from_millis(1), ..ScanLimits::default() };
        let mut share = share();
        let allowance = Allowance::new(&limits, &client, &mut share);
        let call = Call { allowance: Some(&allowance), ..Call::default() };
        let nothing = walk(&call, 0, |bounds, _| Ok((endless(bounds), false)));
        let Err(ApiError::TooExpensive { cursor, .. }) = nothing else { panic!("too much") };
        assert_eq!(cursor, 7);
        assert!(!walk(&call, 0, |bounds, _| Ok((endless(bounds), true))).unwrap());
    }

    #[tokio::test]
    async fn a_page_ends_when_it_is_long_or_memory_is_short() {
        let (_near, client) = connected().await;
        let limits = ScanLimits { page_bytes: 4 << 20, ..ScanLimits::default() };
        let mut share = share();
        let allowance = Allowance::new(&limits, &client, &mut share);
        assert!(allowance.goes_on((4 << 20) - 1).is_continue());
        assert!(allowance.goes_on(4 << 20).is_break());
        let budget = Budget::new("tests", Limits::without_waiting(16 << 20, 2 << 20));
        let mut share = budget.take_now(Holder::of("somebody"), STEP).unwrap();
        let allowance = Allowance::new(&limits, &client, &mut share);
        assert!(allowance.goes_on(1 << 20).is_continue());
        assert_eq!(budget.usage().taken, 2 << 20, "share is taken before it is used");
        assert!(allowance.goes_on(2 << 20).is_break());
    }
}
