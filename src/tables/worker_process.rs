//! One SQL worker as seen by its parent process: starting it, sending it requests, stopping or
//! killing it.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use orrery_ledger::domain::ProgramId;
use orrery_runtime::budget::Share;
use orrery_runtime::confinement::Confinement;
use parking_lot::Mutex;

use super::chain::{ChainSnapshot, Sent};
use super::wire::{self, Definition, Failure, Filling, Frame, Opening, QuerySpec, Reply, Request};
use super::worker_log::spawn_stderr_logger;

/// Subcommand that runs the program as a worker.
pub const VERB: &str = "sql-worker";
/// Timeout for a worker to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for a worker to open its file: DuckDB replays the WAL of a large change.
const OPEN_TIMEOUT: Duration = Duration::from_secs(600);
/// Interval between two checks whether a stopping worker has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes allowed for a reply besides the answer to a query: the programs of a file, with all their
/// columns.
const MAX_OTHER_REPLY_BYTES: usize = 64 << 20;

/// Timeouts of requests that are not queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For reading a request.
    pub send: Duration,
    /// For appending a frame of rows.
    pub append: Duration,
    /// For making a change durable, and for altering tables before rows are appended.
    pub commit: Duration,
    /// For closing its file and ending.
    pub end: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            send: Duration::from_secs(30),
            append: Duration::from_secs(30),
            commit: Duration::from_secs(120),
            end: Duration::from_secs(30),
        }
    }
}

/// Parameters for starting a worker.
pub struct Start<'a> {
    /// Program to run as a worker.
    pub program: &'a Path,
    /// Working directory of the worker.
    pub directory: &'a Path,
    /// Settings sent to the worker.
    pub opening: Opening,
    /// Directories with files of the tables of the chain, as the settings name them.
    pub directories: Vec<PathBuf>,
    /// Maximum length of an answer in bytes.
    pub longest_answer: usize,
    /// Timeouts of requests.
    pub timeouts: Timeouts,
}

/// A running worker.
pub struct Worker {
    process: Arc<Process>,
    requests: Mutex<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
    timeouts: Timeouts,
    /// The worker's permit of the budget; released when the process is gone.
    permit: Option<Share>,
    /// How the process has confined itself.
    pub confinement: Confinement,
    /// Contents of the file when it was opened.
    pub contents: Contents,
    /// What the worker has of the tables of the chain. Locked while a query that reads them is sent.
    chain: Mutex<Sent>,
}

/// Contents of a file when it was opened.
#[derive(Debug, Default)]
pub struct Contents {
    /// Number of the last change.
    pub commit: u64,
    /// Programs whose tables the file has.
    pub programs: Vec<Definition>,
    /// Number of the row log entry after which the rows of each program continue.
    pub watermarks: BTreeMap<ProgramId, u64>,
    /// Programs whose tables are being filled anew.
    pub fillings: Vec<Filling>,
}

type Answer = (Reply, Vec<u8>);

/// Callers that wait for replies, by request number.
#[derive(Default)]
struct Waiting {
    last: u32,
    closed: bool,
    callers: HashMap<u32, SyncSender<Answer>>,
}

impl Waiting {
    /// Records that no further replies will come.
    fn close(&mut self) {
        self.closed = true;
        self.callers.clear();
    }
}

/// Why a worker did not start.
#[derive(Debug)]
pub enum StartError {
    /// The worker cannot be started, or something that it needs is unavailable.
    Unavailable(String),
    /// The file cannot be read.
    Damaged(String),
    /// Another process has locked the file.
    Locked(String),
}

/// A request whose reply is outstanding. Dropping it discards the reply.
pub struct PendingReply<'a> {
    worker: &'a Worker,
    id: u32,
    answers: Receiver<Answer>,
}

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReply {
    /// The worker has ended.
    WorkerEnded,
    /// The timeout has passed.
    TimedOut,
}

/// The child process. Any thread that finds the worker broken kills it.
struct Process(Mutex<Child>);

impl Process {
    fn kill(&self) {
        let mut child = self.0.lock();
        // The process may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Worker {
    /// Starts a worker and opens its file. On success the worker takes the permit from `permit`.
    ///
    /// # Errors
    /// When the worker cannot be started or cannot open its file.
    pub fn start(start: Start<'_>, permit: &mut Option<Share>) -> Result<Self, StartError> {
        let opening = start.opening.clone();
        let (mut worker, last_words) = Self::spawn(start)?;
        worker.open(opening).inspect_err(|error| {
            worker.kill();
            let words = last_words.and_then(|words| words.join().ok()).unwrap_or_default();
            tracing::debug!(?error, last_words = words, "a SQL worker could not be started");
        })?;
        worker.permit = permit.take();
        Ok(worker)
    }

    /// Kills the worker and returns its permit, for the worker that replaces it.
    pub fn into_permit(mut self) -> Option<Share> {
        self.kill();
        self.permit.take()
    }

    /// Starts a worker that opens no file, to determine how this kernel can confine it.
    ///
    /// # Errors
    /// When the worker does not start.
    pub fn probe_confinement(start: Start<'_>) -> Result<Confinement, StartError> {
        let request = Request::Try(start.opening.clone());
        let (worker, _) = Self::spawn(start)?;
        let pending = worker.send_request(&request, &[], START_TIMEOUT).map_err(start_failed)?;
        match pending.next(START_TIMEOUT).map_err(start_failed)? {
            (Reply::Ready(confinement), _) => Ok(confinement),
            _ => Err(StartError::Unavailable("The SQL worker does not answer".to_owned())),
        }
    }

    fn spawn(start: Start<'_>) -> Result<(Self, Option<thread::JoinHandle<String>>), StartError> {
        let unavailable = |what: &str, error: io::Error| {
            StartError::Unavailable(format!("The SQL worker {what}: {error}"))
        };
        let (own, other) =
            UnixStream::pair().map_err(|error| unavailable("has no socket", error))?;
        let mut child = Command::new(start.program)
            .arg(VERB)
            .current_dir(start.directory)
            .env_clear()
            .envs(environment(&start.opening))
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| unavailable("cannot be started", error))?;
        let last_words = child.stderr.take().map(spawn_stderr_logger);
        let process = Arc::new(Process(Mutex::new(child)));
        let worker = Self {
            process: Arc::clone(&process),
            requests: Mutex::new(own),
            waiting: Arc::default(),
            timeouts: start.timeouts,
            permit: None,
            confinement: Confinement { files: false, calls: false },
            contents: Contents::default(),
            chain: Mutex::new(Sent::new(start.directories)),
        };
        let replies = worker.requests.lock().try_clone();
        let replies = replies.map_err(|error| unavailable("has no socket", error))?;
        let waiting = Arc::clone(&worker.waiting);
        let longest = start.longest_answer.saturating_add(MAX_OTHER_REPLY_BYTES);
        thread::spawn(move || {
            let broken = distribute(replies, longest, &waiting);
            if let Err(error) = broken {
                tracing::warn!(%error, "a SQL worker broke the protocol; it is killed");
                process.kill();
            }
        });
        Ok((worker, last_words))
    }

    fn open(&mut self, opening: Opening) -> Result<(), StartError> {
        let opened = self.send_request(&Request::Open(opening), &[], START_TIMEOUT);
        let pending = opened.map_err(start_failed)?;
        let (ready, _) = pending.next(START_TIMEOUT).map_err(start_failed)?;
        let Reply::Ready(confinement) = ready else {
            return Err(StartError::Unavailable("The SQL worker does not answer".to_owned()));
        };
        // From here on, a failure is attributed to the file.
        let (opened, _) = pending.next(OPEN_TIMEOUT).map_err(|_| {
            StartError::Damaged("the process that opens the file ends or hangs".to_owned())
        })?;
        drop(pending);
        self.confinement = confinement;
        match opened {
            Reply::Opened { commit, programs, watermarks, fillings } => {
                self.contents = Contents { commit, programs, watermarks, fillings };
                Ok(())
            }
            Reply::Failed(Failure::Damaged(message)) => Err(StartError::Damaged(message)),
            Reply::Failed(Failure::Locked(message)) => Err(StartError::Locked(message)),
            Reply::Failed(
                Failure::Unavailable(message)
                | Failure::Refused(message)
                | Failure::TooLarge(message)
                | Failure::TransactionEnded(message)
                | Failure::Unreadable(message),
            ) => Err(StartError::Unavailable(message)),
            other => Err(StartError::Unavailable(format!("The SQL worker answers {other:?}"))),
        }
    }

    /// Sends a request, which the worker has to read within `timeout`.
    ///
    /// # Errors
    /// When the worker is gone, or does not read the request in time.
    pub fn send_request(
        &self,
        request: &Request,
        body: &[u8],
        timeout: Duration,
    ) -> Result<PendingReply<'_>, NoReply> {
        // A request to open is answered by two replies.
        let (caller, answers) = sync_channel(2);
        let id = {
            let mut waiting = self.waiting.lock();
            if waiting.closed {
                return Err(NoReply::WorkerEnded);
            }
            waiting.last = waiting.last.wrapping_add(1);
            let id = waiting.last;
            waiting.callers.insert(id, caller);
            id
        };
        let pending = PendingReply { worker: self, id, answers };
        self.send(id, request, body, timeout)?;
        Ok(pending)
    }

    /// Sends a request that gets no reply.
    ///
    /// # Errors
    /// When the worker is gone, or does not read the request in time.
    pub fn send_one_way(&self, request: &Request) -> Result<(), NoReply> {
        self.send(0, request, &[], self.timeouts.send)
    }

    /// Sends a query, and before it what the worker does not have yet of the tables of the chain.
    ///
    /// # Errors
    /// When the worker is gone, or does not read what is sent in time.
    pub fn send_query(
        &self,
        query: QuerySpec,
        chain: Option<&ChainSnapshot>,
        timeout: Duration,
    ) -> Result<PendingReply<'_>, NoReply> {
        let Some(snapshot) = chain else {
            return self.send_request(&Request::Query(query), &[], timeout);
        };
        // No other query has a part forgotten before this one is sent.
        let mut sent = self.chain.lock();
        let send = |part: &Request, body: &[u8]| self.send(0, part, body, self.timeouts.send);
        let parts = sent.send(snapshot, send).inspect_err(|_| self.kill())?;
        let query = QuerySpec { chain: Some(parts), ..query };
        self.send_request(&Request::Query(query), &[], timeout)
    }

    /// Writes a request. If that fails, the worker is killed, because part of a frame may have been
    /// sent.
    fn send(
        &self,
        id: u32,
        request: &Request,
        body: &[u8],
        timeout: Duration,
    ) -> Result<(), NoReply> {
        let deadline = Instant::now() + timeout;
        let Some(socket) = self.requests.try_lock_until(deadline) else {
            return Err(NoReply::TimedOut);
        };
        let sent =
            wire::write(&mut DeadlineWriter { socket: &socket, deadline }, id, request, body);
        sent.map_err(|_| {
            self.kill();
            NoReply::WorkerEnded
        })
    }

    /// Timeouts of requests to this worker.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Whether the worker still answers: its reply stream has not ended and it was not killed.
    pub fn is_alive(&self) -> bool {
        !self.waiting.lock().closed
    }

    /// Whether the worker may read all files of these tables of the chain.
    pub fn reads(&self, snapshot: &ChainSnapshot) -> bool {
        self.chain.lock().reads(snapshot)
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.0.lock().id()
    }

    /// Kills the process at once, even while another thread sends to it. Callers that wait for a
    /// reply get [`NoReply::WorkerEnded`].
    pub fn kill(&self) {
        self.waiting.lock().close();
        self.process.kill();
    }

    /// Asks the worker to close its file and end; kills it when it does not end in time.
    pub fn stop(&self) {
        let deadline = Instant::now() + self.timeouts.end;
        if self.send(0, &Request::Stop, &[], self.timeouts.end).is_ok() {
            while Instant::now() < deadline {
                if !matches!(self.process.0.lock().try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
        self.kill();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

impl PendingReply<'_> {
    /// Waits for the next reply.
    ///
    /// # Errors
    /// When no reply comes within `timeout`.
    pub fn next(&self, timeout: Duration) -> Result<Answer, NoReply> {
        self.answers.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoReply::TimedOut,
            RecvTimeoutError::Disconnected => NoReply::WorkerEnded,
        })
    }

    /// Cancels the query, as if its time were up. Its reply is still sent.
    ///
    /// # Errors
    /// When the worker is gone, or does not read the request in time.
    pub fn cancel(&self) -> Result<(), NoReply> {
        self.worker.send_one_way(&Request::Cancel { query: self.id })
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        self.worker.waiting.lock().callers.remove(&self.id);
    }
}

/// Environment of a worker, which has no other variables. The SLURM variables give DuckDB the size
/// of the machine, so that it does not read system files, which are closed to the worker. A small
/// number of malloc arenas saves address space, which is limited.
fn environment(opening: &Opening) -> [(&'static str, String); 3] {
    let megabytes = (opening.memory >> 20).max(1);
    [
        ("MALLOC_ARENA_MAX", "2".to_owned()),
        ("SLURM_CPUS_ON_NODE", opening.threads.max(1).to_string()),
        ("SLURM_MEM_PER_NODE", format!("{megabytes}M")),
    ]
}

/// Writes to a socket until a deadline.
struct DeadlineWriter<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
}

impl Write for DeadlineWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_write_timeout(Some(remaining))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn start_failed(_: NoReply) -> StartError {
    StartError::Unavailable("The SQL worker does not start".to_owned())
}

/// Passes each reply to the caller that waits for it, until the stream ends.
///
/// # Errors
/// When the worker sends anything that is not a reply, or the stream breaks.
fn distribute(mut replies: UnixStream, longest: usize, waiting: &Mutex<Waiting>) -> io::Result<()> {
    let ended = loop {
        match wire::read::<Reply>(&mut replies, longest) {
            Ok(Some(Frame { id, head, body })) => {
                let caller = waiting.lock().callers.get(&id).cloned();
                if let Some(caller) = caller {
                    // The caller may have stopped waiting.
                    let _ = caller.try_send((head, body));
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    waiting.lock().close();
    ended
}
