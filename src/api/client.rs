//! The client at the other end of a connection: whether it is still there, whether it waits for an
//! answer, and how long it may take to read one. Knows no HTTP.

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

/// A client may close its sending side and still wait for the answer. Work for it goes on so long;
/// whatever takes longer ends when the sending side is closed.
const HALF_CLOSED: Duration = Duration::from_millis(100);

/// How often a client that has sent more than is read yet is looked at while its request waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How slowly an answer may be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Time for any answer.
    pub grace: Duration,
    /// Bytes for which there is another second.
    pub bytes_per_second: u64,
}

/// The client of one connection.
pub(super) struct Client {
    /// Its end of the connection.
    pub address: SocketAddr,
    read: OwnedReadHalf,
    pace: Pace,
    traffic: Mutex<Traffic>,
    evicted: Notify,
    /// Told whenever nothing is left to do for a client.
    became_idle: Arc<Notify>,
}

struct Traffic {
    /// Requests whose head has arrived.
    requests: u64,
    /// Requests that are not answered yet, or whose answer has not left whole.
    unfinished: usize,
    idle_since: Instant,
    /// When all answers under way must have left.
    deadline: Option<Instant>,
}

impl Client {
    /// The client of a connection, and the half that is written to.
    pub(super) fn new(
        stream: TcpStream,
        address: SocketAddr,
        pace: Pace,
        became_idle: &Arc<Notify>,
    ) -> (Arc<Self>, OwnedWriteHalf) {
        let (read, write) = stream.into_split();
        let traffic =
            Traffic { requests: 0, unfinished: 0, idle_since: Instant::now(), deadline: None };
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

    /// What it sends.
    pub(super) fn read_half(&self) -> &OwnedReadHalf {
        &self.read
    }

    /// Notes that a request of it is worked on, until that and its answer are done with.
    pub(super) fn begin(self: &Arc<Self>) -> Unfinished {
        let mut traffic = self.traffic.lock();
        traffic.requests += 1;
        traffic.unfinished += 1;
        Unfinished(Arc::clone(self))
    }

    /// Whether it has sent a request.
    pub(super) fn has_asked(&self) -> bool {
        self.traffic.lock().requests > 0
    }

    /// Since when nothing has been done for it; none while something is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let traffic = self.traffic.lock();
        (traffic.unfinished == 0).then_some(traffic.idle_since)
    }

    /// When all answers under way must have left.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.traffic.lock().deadline
    }

    /// Ends the connection, because another client needs its place.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Returns when the connection is to end although the client did nothing wrong.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Whether it has closed its sending side, as far as the operating system has told.
    pub(super) fn has_hung_up(&self) -> bool {
        let ready = pin!(self.read.ready(Interest::READABLE));
        let state = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(state, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Returns when nobody is likely to wait any more.
    pub(super) async fn gives_up(&self) {
        sleep(HALF_CLOSED).await;
        loop {
            match self.read.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => sleep(LOOK_EVERY).await,
                _ => return,
            }
        }
    }
}

/// A client that waits for an answer.
#[derive(Clone, Copy)]
pub(super) struct Waiting<'a> {
    client: &'a Client,
    since: Instant,
}

impl<'a> Waiting<'a> {
    /// From now on.
    pub(super) fn of(client: &'a Client) -> Self {
        Self { client, since: Instant::now() }
    }

    /// How long it has waited.
    pub(super) fn elapsed(self) -> Duration {
        self.since.elapsed()
    }

    /// Whether nobody is likely to wait any more.
    pub(super) fn has_ended(self) -> bool {
        self.elapsed() >= HALF_CLOSED && self.client.has_hung_up()
    }
}

/// A request that is not done with, until this is dropped.
pub(super) struct Unfinished(Arc<Client>);

impl Unfinished {
    /// Notes that its answer, of so many bytes, is on its way.
    pub(super) fn answered_with(&self, bytes: usize) {
        let Pace { grace, bytes_per_second } = self.0.pace;
        let more = Duration::from_secs(bytes as u64 / bytes_per_second.max(1));
        let mut traffic = self.0.traffic.lock();
        let before = traffic.deadline.unwrap_or_else(|| Instant::now() + grace);
        traffic.deadline = Some(before + more);
    }
}

impl Unfinished {
    /// Notes that the next piece of an answer without an end is on its way, so that there are so many bytes to
    /// read: what came before it has left, as far as it matters.
    pub(super) fn goes_on_with(&self, bytes: usize) {
        let Pace { grace, bytes_per_second } = self.0.pace;
        let more = Duration::from_secs(bytes as u64 / bytes_per_second.max(1));
        self.0.traffic.lock().deadline = Some(Instant::now() + grace + more);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut traffic = self.0.traffic.lock();
        traffic.unfinished = traffic.unfinished.saturating_sub(1);
        if traffic.unfinished == 0 {
            traffic.idle_since = Instant::now();
            traffic.deadline = None;
            drop(traffic);
            self.0.became_idle.notify_one();
        }
    }
}
