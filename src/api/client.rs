//! The client of a connection: whether it is still connected, whether it waits for a response, and
//! how long it may take to read one. Does not depend on HTTP.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A client may close its sending side and still wait for the response. Work for a half-closed
/// client continues for this long after it began; longer work is abandoned.
const HALF_CLOSED_GRACE: Duration = Duration::from_millis(100);

/// Interval at which a waiting request checks whether its client hung up, while unread data keeps
/// the socket readable.
const HANGUP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Minimum speed at which a client must read responses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Time that is allowed for any response.
    pub grace: Duration,
    /// Number of response bytes that add another second.
    pub bytes_per_second: u64,
}

/// The client of one connection.
pub(super) struct Client {
    /// Remote address of the connection.
    pub address: SocketAddr,
    read: OwnedReadHalf,
    pace: Pace,
    traffic: Mutex<Traffic>,
    evicted: Notify,
    /// Notified whenever a client has no more requests in progress.
    became_idle: Arc<Notify>,
}

struct Traffic {
    /// Number of requests whose head has arrived.
    requests: u64,
    /// Number of requests that are not answered yet, or whose response has not been sent
    /// completely.
    in_flight: usize,
    idle_since: Instant,
    /// Time at which the first bytes of the next request were read; `None` before, and once its
    /// head is complete.
    head_since: Option<Instant>,
    /// Time by which all responses in progress must have been sent.
    deadline: Option<Instant>,
}

impl Client {
    /// Creates the client of a connection, and returns it with the write half.
    pub(super) fn new(
        stream: TcpStream,
        address: SocketAddr,
        pace: Pace,
        became_idle: &Arc<Notify>,
    ) -> (Arc<Self>, OwnedWriteHalf) {
        let (read, write) = stream.into_split();
        let traffic = Traffic {
            requests: 0,
            in_flight: 0,
            idle_since: Instant::now(),
            head_since: None,
            deadline: None,
        };
        let client = Self {
            address,
            read,
            pace,
            traffic: Mutex::new(traffic),
            evicted: Notify::new(),
            became_idle: Arc::clone(became_idle),
        };
        (Arc::new(client), write)
    }

    /// Returns the read half of the connection.
    pub(super) fn read_half(&self) -> &OwnedReadHalf {
        &self.read
    }

    /// Registers a request in progress, until the returned guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlightGuard {
        let mut traffic = self.traffic.lock();
        traffic.requests += 1;
        traffic.in_flight += 1;
        traffic.head_since = None;
        InFlightGuard(Arc::clone(self))
    }

    /// Notes that bytes were read from the client.
    pub(super) fn note_read(&self) {
        let mut traffic = self.traffic.lock();
        if traffic.in_flight == 0 {
            traffic.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the client has begun a request and has not sent its whole head within `limit`.
    pub(super) fn is_head_overdue(&self, limit: Duration) -> bool {
        self.traffic.lock().head_since.is_some_and(|since| since.elapsed() >= limit)
    }

    /// Whether the client has sent a request.
    pub(super) fn has_sent_request(&self) -> bool {
        self.traffic.lock().requests > 0
    }

    /// Time since which the client has had no request in progress; `None` while it has one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let traffic = self.traffic.lock();
        (traffic.in_flight == 0).then_some(traffic.idle_since)
    }

    /// Time by which all responses in progress must have been sent; `None` without one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.traffic.lock().deadline
    }

    /// Requests the end of the connection to make room for another client.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Completes when [`Self::evict`] was called.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Whether the client has closed its sending side, as last reported by the operating system.
    pub(super) fn has_hung_up(&self) -> bool {
        let ready = pin!(self.read.ready(Interest::READABLE));
        let state = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(state, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Completes when the client has closed its sending side, at the earliest after
    /// [`HALF_CLOSED_GRACE`].
    pub(super) async fn wait_for_hangup(&self) {
        sleep(HALF_CLOSED_GRACE).await;
        loop {
            match self.read.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => sleep(HANGUP_CHECK_INTERVAL).await,
                _ => return,
            }
        }
    }
}

/// A client that waits for a response, and since when.
#[derive(Clone, Copy)]
pub(super) struct Waiting<'a> {
    client: &'a Client,
    since: Instant,
}

impl<'a> Waiting<'a> {
    /// Begins waiting now.
    pub(super) fn of(client: &'a Client) -> Self {
        Self { client, since: Instant::now() }
    }

    /// Returns how long the client has waited.
    pub(super) fn elapsed(self) -> Duration {
        self.since.elapsed()
    }

    /// Whether the client has closed its sending side and [`HALF_CLOSED_GRACE`] has passed.
    pub(super) fn is_abandoned(self) -> bool {
        self.elapsed() >= HALF_CLOSED_GRACE && self.client.has_hung_up()
    }
}

/// A request in progress; it ends when this guard is dropped.
pub(super) struct InFlightGuard(Arc<Client>);

impl InFlightGuard {
    /// Extends the deadline for a response of `bytes` bytes that is about to be sent.
    pub(super) fn extend_deadline(&self, bytes: usize) {
        let Pace { grace, bytes_per_second } = self.0.pace;
        let more = Duration::from_secs(bytes as u64 / bytes_per_second.max(1));
        let mut traffic = self.0.traffic.lock();
        let before = traffic.deadline.unwrap_or_else(|| Instant::now() + grace);
        traffic.deadline = Some(before + more);
    }
}

impl InFlightGuard {
    /// Sets the deadline for the next piece of a streamed response, with `bytes` bytes left to
    /// read. Earlier pieces count as sent.
    pub(super) fn reset_deadline(&self, bytes: usize) {
        let Pace { grace, bytes_per_second } = self.0.pace;
        let more = Duration::from_secs(bytes as u64 / bytes_per_second.max(1));
        self.0.traffic.lock().deadline = Some(Instant::now() + grace + more);
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut traffic = self.0.traffic.lock();
        traffic.in_flight = traffic.in_flight.saturating_sub(1);
        if traffic.in_flight == 0 {
            traffic.idle_since = Instant::now();
            traffic.deadline = None;
            drop(traffic);
            self.0.became_idle.notify_one();
        }
    }
}
