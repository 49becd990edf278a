//! Limits what one request may cost while it is processed: records, index rows, time, and bytes of
//! its response.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::ApiError;
use super::client::{Client, Waiting};
use orrery_runtime::budget::{Refusal, Share};
use orrery_settings::Limits;
use orrery_store::{Bounds, Interrupted, RowBounds, WalkOutcome};

/// Bytes by which the share reserved for a response grows at a time.
pub(super) const GROWTH_STEP: u64 = 1 << 20;

/// Remaining cost limits of one request.
pub(super) struct Allowance<'a> {
    pub limits: &'a Limits,
    waiting: Waiting<'a>,
    /// Share of the byte budget that is reserved for the response.
    share: Mutex<&'a mut Share>,
    /// Whether the response ended early because of its size.
    was_truncated: AtomicBool,
}

impl<'a> Allowance<'a> {
    /// Creates the allowance of a request whose processing begins now and whose response has this
    /// share of the byte budget.
    pub(super) fn new(limits: &'a Limits, client: &'a Client, share: &'a mut Share) -> Self {
        Self {
            limits,
            waiting: Waiting::of(client),
            share: Mutex::new(share),
            was_truncated: AtomicBool::new(false),
        }
    }

    /// Reserves bytes before they are allocated: grows the share to at least `bytes`.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), ReserveError> {
        reserve(*self.share.lock(), bytes)
    }

    /// Like [`Self::reserve`], for a response that cannot be made smaller: of one that is larger than
    /// what a client can have, all of that is reserved.
    pub(super) fn reserve_one(&self, bytes: usize) -> Result<(), ReserveError> {
        reserve_one(*self.share.lock(), bytes)
    }

    /// Limits of a walk through the store, which ends when it is `interrupted`.
    pub(super) fn bounds<'i>(&self, interrupted: &'i dyn Fn() -> bool) -> Bounds<'i> {
        let Limits { scan_records, scan_index_rows, .. } = self.limits;
        let (records, index_rows) = (scan_records.get().into(), scan_index_rows.get().into());
        Bounds { records, index_rows, interrupted }
    }

    /// Limits of what the request reads of a consumer's rows.
    pub(super) fn row_bounds(&self, bytes: u64) -> RowBounds<'_> {
        let interrupted = Box::new(|| self.is_over());
        RowBounds { rows: u64::from(self.limits.scan_records.get()), bytes, interrupted }
    }

    /// Whether the time of the request is over or its client has gone.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.elapsed() >= self.limits.scan_ms.duration() || self.waiting.is_abandoned()
    }

    /// Fails when the client has gone, so that what ended for that reason is not cached.
    pub(super) fn unless_abandoned<T>(&self, answer: T) -> Result<T, ApiError> {
        if self.waiting.is_abandoned() { Err(ApiError::HungUp) } else { Ok(answer) }
    }

    /// Continues while a page of `bytes` bytes is below the page limit and the share covers it or
    /// can grow.
    pub(super) fn may_continue(&self, bytes: usize) -> ControlFlow<()> {
        let bytes = bytes as u64;
        let mut share = self.share.lock();
        let has_share = bytes < share.amount() || share.grow_to(bytes + GROWTH_STEP).is_ok();
        if bytes < self.limits.page_mib.bytes() && has_share {
            return ControlFlow::Continue(());
        }
        self.was_truncated.store(true, Ordering::Relaxed);
        ControlFlow::Break(())
    }
}

/// Why the bytes of a response cannot be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReserveError {
    /// Too many are taken at the moment.
    NotNow(Refusal),
    /// The response is larger than what a client can have: its size, and the limit, in bytes.
    Never { bytes: u64, most: u64 },
}

/// Grows the share of a response to at least `bytes`.
pub(super) fn reserve(share: &mut Share, bytes: usize) -> Result<(), ReserveError> {
    let (bytes, most) = (bytes as u64, share.most());
    if bytes > most {
        return Err(ReserveError::Never { bytes, most });
    }
    share.grow_to(bytes).map_err(ReserveError::NotNow)
}

/// Bytes that the request of a response that cannot be made smaller has at most, and is charged for
/// beside it.
const LARGEST_CALL: u64 = 512 << 10;

/// Grows the share of a response that cannot be made smaller to at least `bytes`, or to all that a
/// client can have beside its request.
pub(super) fn reserve_one(share: &mut Share, bytes: usize) -> Result<(), ReserveError> {
    let bytes = (bytes as u64).min(share.most().saturating_sub(LARGEST_CALL));
    share.grow_to(bytes).map_err(ReserveError::NotNow)
}

/// Walks the store within the cost limits of a request and returns whether the page is complete.
/// `rows` receives the bounds and a function that decides from the page's size whether to continue;
/// it returns the walk's outcome and whether the page has rows. An interrupted page with rows ends
/// early, and the client continues from its last row; without rows the walk fails with
/// [`ApiError::TooExpensive`]. If the client has hung up, it fails with [`ApiError::HungUp`] in
/// either case.
pub(super) fn walk<C: Into<serde_json::Value>>(
    allowance: &Allowance<'_>,
    offset: u64,
    rows: impl FnOnce(
        Bounds<'_>,
        &dyn Fn(usize) -> ControlFlow<()>,
    ) -> Result<(WalkOutcome<C>, bool), ApiError>,
) -> Result<bool, ApiError> {
    let is_over = || allowance.is_over();
    let (walked, has_rows) =
        rows(allowance.bounds(&is_over), &|bytes| allowance.may_continue(bytes))?;
    match walked.interrupted {
        None => Ok(!allowance.was_truncated.load(Ordering::Relaxed)),
        Some(_) if allowance.waiting.is_abandoned() => Err(ApiError::HungUp),
        Some(_) if has_rows => Ok(false),
        Some(Interrupted { cursor, skipped }) => {
            Err(ApiError::TooExpensive { cursor: cursor.into(), skipped, offset })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpStream};

    use super::super::client::Pace;
    use super::*;
    use orrery_runtime::budget::{self, Budget, Holder};
    use orrery_settings::{Mib, Millis, nonzero};
    use orrery_store::QueryCost;

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

    /// Walks until it is interrupted.
    fn endless(bounds: Bounds<'_>) -> WalkOutcome<u64> {
        while !(bounds.interrupted)() {
            std::thread::yield_now();
        }
        let interrupted = Some(Interrupted { cursor: 7, skipped: 0 });
        WalkOutcome { cost: QueryCost::default(), broken_off: None, interrupted }
    }

    fn share() -> Share {
        let budget = Budget::new("tests", budget::Limits::without_waiting(16 << 20, 16 << 20));
        budget.take_now(Holder::of("somebody"), GROWTH_STEP).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_ends_when_its_client_disconnects() {
        let (near, client) = connected().await;
        let limits = Limits { scan_ms: Millis::exactly(HOUR), ..Limits::default() };
        let work = tokio::task::spawn_blocking(move || {
            let mut share = share();
            let allowance = Allowance::new(&limits, &client, &mut share);
            walk(&allowance, 0, |bounds, _| Ok((endless(bounds), false)))
        });
        drop(near);
        assert!(matches!(work.await.unwrap(), Err(ApiError::HungUp)));
    }

    #[tokio::test]
    async fn a_scan_stops_when_its_time_is_up_and_keeps_its_rows() {
        let (_near, client) = connected().await;
        let limits = Limits { scan_ms: Millis::new(nonzero!(1)), ..Limits::default() };
        let mut share = share();
        let allowance = Allowance::new(&limits, &client, &mut share);
        let nothing = walk(&allowance, 0, |bounds, _| Ok((endless(bounds), false)));
        let Err(ApiError::TooExpensive { cursor, .. }) = nothing else { panic!("too much") };
        assert_eq!(cursor, 7);
        assert!(!walk(&allowance, 0, |bounds, _| Ok((endless(bounds), true))).unwrap());
    }

    #[tokio::test]
    async fn a_page_ends_at_its_byte_limit_or_the_memory_budget() {
        let (_near, client) = connected().await;
        let limits = Limits { page_mib: Mib::new(nonzero!(4)), ..Limits::default() };
        let mut share = share();
        let allowance = Allowance::new(&limits, &client, &mut share);
        assert!(allowance.may_continue((4 << 20) - 1).is_continue());
        assert!(allowance.may_continue(4 << 20).is_break());
        let budget = Budget::new("tests", budget::Limits::without_waiting(16 << 20, 2 << 20));
        let mut share = budget.take_now(Holder::of("somebody"), GROWTH_STEP).unwrap();
        let allowance = Allowance::new(&limits, &client, &mut share);
        assert!(allowance.may_continue(1 << 20).is_continue());
        assert_eq!(budget.usage().taken, 2 << 20, "share is taken before it is used");
        assert!(allowance.may_continue(2 << 20).is_break());
    }
}
