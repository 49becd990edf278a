//! One SQL worker as its parent sees it: started, asked, and ended or killed.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::complaints::listen;
use super::wire::{self, Definition, Failure, Frame, Opening, Reply, Request};
use crate::budget::Share;
use crate::confinement::Confinement;
use crate::domain::ProgramId;

/// How the program is called that becomes a worker.
pub const VERB: &str = "sql-worker";
/// How long a worker may take to begin, and to close its file.
const BEGIN_WITHIN: Duration = Duration::from_secs(20);
/// How long it may take to open its file: the log of a large change is read again.
const OPEN_WITHIN: Duration = Duration::from_secs(600);
/// Between two looks at whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Bytes of a reply beside the answer to a query: the programs of a file, with all their columns.
const BESIDE_ANSWERS: usize = 64 << 20;

/// How long a worker may take for what is not a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To read what it is sent.
    pub send: Duration,
    /// To take in rows.
    pub append: Duration,
    /// To make a change durable, and to alter tables before rows come.
    pub commit: Duration,
    /// To close its file and end.
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

/// What a worker is started with.
pub struct Start<'a> {
    /// What becomes a worker.
    pub program: &'a Path,
    /// Where it works.
    pub directory: &'a Path,
    /// How it runs.
    pub opening: Opening,
    /// Bytes of the longest answer.
    pub longest_answer: usize,
    /// How long it may take.
    pub timeouts: Timeouts,
}

/// A running worker.
pub struct Worker {
    process: Arc<Process>,
    requests: Mutex<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
    timeouts: Timeouts,
    /// Given back when the process is gone.
    place: Option<Share>,
    /// What it can give up on this kernel.
    pub confinement: Confinement,
    /// What was in the file when it was opened.
    pub contents: Contents,
}

/// What was in a file when it was opened.
#[derive(Debug, Default)]
pub struct Contents {
    /// Number of the last change.
    pub commit: u64,
    /// The programs.
    pub programs: Vec<Definition>,
    /// The last row log entry of each.
    pub watermarks: BTreeMap<ProgramId, u64>,
}

type Answer = (Reply, Vec<u8>);

/// Who waits for which reply.
#[derive(Default)]
struct Waiting {
    last: u32,
    gone: bool,
    callers: HashMap<u32, SyncSender<Answer>>,
}

impl Waiting {
    /// There are no more replies.
    fn end(&mut self) {
        self.gone = true;
        self.callers.clear();
    }
}

/// Why a worker has not begun.
#[derive(Debug)]
pub enum StartError {
    /// It, or what it needs, is not there.
    Unavailable(String),
    /// The file cannot be read.
    Damaged(String),
    /// Another process has the file.
    Locked(String),
}

/// A request whose reply is waited for.
pub struct Asked<'a> {
    worker: &'a Worker,
    id: u32,
    answers: Receiver<Answer>,
}

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReply {
    /// The worker is gone.
    Gone,
    /// It takes too long.
    Late,
}

/// The process of a worker, which whoever finds it broken ends.
struct Process(Mutex<Child>);

impl Process {
    fn kill(&self) {
        let mut child = self.0.lock();
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Worker {
    /// Starts a worker. When it runs, it has taken the place.
    ///
    /// # Errors
    /// When it does not come to open its file.
    pub fn start(start: Start<'_>, place: &mut Option<Share>) -> Result<Self, StartError> {
        let opening = start.opening.clone();
        let (mut worker, last_words) = Self::spawn(start)?;
        worker.open(opening).inspect_err(|error| {
            worker.kill();
            let words = last_words.and_then(|words| words.join().ok()).unwrap_or_default();
            tracing::debug!(?error, last_words = words, "a SQL worker has not begun");
        })?;
        worker.place = place.take();
        Ok(worker)
    }

    /// Ends it at once, and gives its place to another one.
    pub fn end(mut self) -> Option<Share> {
        self.kill();
        self.place.take()
    }

    /// Starts a worker that opens no file, to learn what it can give up on this kernel.
    ///
    /// # Errors
    /// When it does not begin.
    pub fn try_out(start: Start<'_>) -> Result<Confinement, StartError> {
        let request = Request::Try(start.opening.clone());
        let (worker, _) = Self::spawn(start)?;
        let asked = worker.ask(&request, &[], BEGIN_WITHIN).map_err(does_not_begin)?;
        match asked.next(BEGIN_WITHIN).map_err(does_not_begin)? {
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
        let last_words = child.stderr.take().map(listen);
        let process = Arc::new(Process(Mutex::new(child)));
        let worker = Self {
            process: Arc::clone(&process),
            requests: Mutex::new(own),
            waiting: Arc::default(),
            timeouts: start.timeouts,
            place: None,
            confinement: Confinement { files: false, calls: false },
            contents: Contents::default(),
        };
        let replies = worker.requests.lock().try_clone();
        let replies = replies.map_err(|error| unavailable("has no socket", error))?;
        let waiting = Arc::clone(&worker.waiting);
        let longest = start.longest_answer.saturating_add(BESIDE_ANSWERS);
        thread::spawn(move || {
            let broken = distribute(replies, longest, &waiting);
            if let Err(error) = broken {
                tracing::warn!(%error, "a SQL worker does not speak as it should; it is ended");
                process.kill();
            }
        });
        Ok((worker, last_words))
    }

    fn open(&mut self, opening: Opening) -> Result<(), StartError> {
        let opened = self.ask(&Request::Open(opening), &[], BEGIN_WITHIN);
        let asked = opened.map_err(does_not_begin)?;
        let (ready, _) = asked.next(BEGIN_WITHIN).map_err(does_not_begin)?;
        let Reply::Ready(confinement) = ready else {
            return Err(StartError::Unavailable("The SQL worker does not answer".to_owned()));
        };
        // From here on it is the file that makes it end.
        let (opened, _) = asked.next(OPEN_WITHIN).map_err(|_| {
            StartError::Damaged("the process that opens the file ends or hangs".to_owned())
        })?;
        drop(asked);
        self.confinement = confinement;
        match opened {
            Reply::Opened { commit, programs, watermarks } => {
                self.contents = Contents { commit, programs, watermarks };
                Ok(())
            }
            Reply::Failed(Failure::Damaged(message)) => Err(StartError::Damaged(message)),
            Reply::Failed(Failure::Locked(message)) => Err(StartError::Locked(message)),
            Reply::Failed(
                Failure::Unavailable(message)
                | Failure::Refused(message)
                | Failure::TooLarge(message)
                | Failure::TransactionEnded(message),
            ) => Err(StartError::Unavailable(message)),
            other => Err(StartError::Unavailable(format!("The SQL worker answers {other:?}"))),
        }
    }

    /// Asks something that it has to have read within a time.
    ///
    /// # Errors
    /// When the worker is gone, or does not read.
    pub fn ask(
        &self,
        request: &Request,
        body: &[u8],
        within: Duration,
    ) -> Result<Asked<'_>, NoReply> {
        // Opening is answered twice.
        let (caller, answers) = sync_channel(2);
        let id = {
            let mut waiting = self.waiting.lock();
            if waiting.gone {
                return Err(NoReply::Gone);
            }
            waiting.last = waiting.last.wrapping_add(1);
            let id = waiting.last;
            waiting.callers.insert(id, caller);
            id
        };
        let asked = Asked { worker: self, id, answers };
        self.send(id, request, body, within)?;
        Ok(asked)
    }

    /// Says something that is not answered.
    ///
    /// # Errors
    /// When the worker is gone, or does not read.
    pub fn tell(&self, request: &Request) -> Result<(), NoReply> {
        self.send(0, request, &[], self.timeouts.send)
    }

    /// A worker that reads nothing is ended: half of a frame may be on its way.
    fn send(
        &self,
        id: u32,
        request: &Request,
        body: &[u8],
        within: Duration,
    ) -> Result<(), NoReply> {
        let deadline = Instant::now() + within;
        let Some(socket) = self.requests.try_lock_until(deadline) else {
            return Err(NoReply::Late);
        };
        let sent = wire::write(&mut Until { socket: &socket, deadline }, id, request, body);
        sent.map_err(|_| {
            self.kill();
            NoReply::Gone
        })
    }

    /// How long it may take.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        !self.waiting.lock().gone
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.0.lock().id()
    }

    /// Ends it at once, whoever is sending something to it. Whoever waits for a reply learns that it is
    /// gone.
    pub fn kill(&self) {
        self.waiting.lock().end();
        self.process.kill();
    }

    /// Lets it close its file and end, and kills it when it does not.
    pub fn stop(&self) {
        let deadline = Instant::now() + self.timeouts.end;
        if self.send(0, &Request::Stop, &[], self.timeouts.end).is_ok() {
            while Instant::now() < deadline {
                if !matches!(self.process.0.lock().try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(LOOK_EVERY);
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

impl Asked<'_> {
    /// Waits for a reply.
    ///
    /// # Errors
    /// When none comes in that time.
    pub fn next(&self, within: Duration) -> Result<Answer, NoReply> {
        self.answers.recv_timeout(within).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoReply::Late,
            RecvTimeoutError::Disconnected => NoReply::Gone,
        })
    }

    /// Asks that the query ends now, as if its time were up; its reply comes all the same.
    ///
    /// # Errors
    /// When the worker is gone, or does not read.
    pub fn cancel(&self) -> Result<(), NoReply> {
        self.worker.tell(&Request::Cancel { query: self.id })
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.worker.waiting.lock().callers.remove(&self.id);
    }
}

/// The only variables that a worker has. Told by them how large the machine is, DuckDB does not look it
/// up in files of the system, which are closed to it. Few arenas of the C library's allocator leave
/// address space, which is bounded, for data.
fn environment(opening: &Opening) -> [(&'static str, String); 3] {
    let megabytes = (opening.memory >> 20).max(1);
    [
        ("MALLOC_ARENA_MAX", "2".to_owned()),
        ("SLURM_CPUS_ON_NODE", opening.threads.max(1).to_string()),
        ("SLURM_MEM_PER_NODE", format!("{megabytes}M")),
    ]
}

/// Writes to a socket until a time.
struct Until<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_write_timeout(Some(left))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn does_not_begin(_: NoReply) -> StartError {
    StartError::Unavailable("The SQL worker does not begin".to_owned())
}

/// Gives replies to those who wait, until there are no more.
///
/// # Errors
/// When the worker sends what is no reply.
fn distribute(mut replies: UnixStream, longest: usize, waiting: &Mutex<Waiting>) -> io::Result<()> {
    let ended = loop {
        match wire::read::<Reply>(&mut replies, longest) {
            Ok(Some(Frame { id, head, body })) => {
                let caller = waiting.lock().callers.get(&id).cloned();
                if let Some(caller) = caller {
                    // Who waits no longer does not need it.
                    let _ = caller.try_send((head, body));
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    waiting.lock().end();
    ended
}
