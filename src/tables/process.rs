//! One SQL worker as its parent sees it: started, asked, and ended or killed.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::wire::{self, Definition, Failure, Frame, Opening, Reply, Request};
use crate::confinement::Confinement;
use crate::domain::ProgramId;

/// How the program is called that becomes a worker.
pub const VERB: &str = "sql-worker";
/// How long a worker may take to begin, and to close its file.
const BEGIN_WITHIN: Duration = Duration::from_secs(20);
/// How long it may take to open its file: the log of a large change is read again.
const OPEN_WITHIN: Duration = Duration::from_secs(600);
/// How long it may take to close its file and end.
const END_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks at whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Bytes of a line that it writes to its log.
const LONGEST_LINE: u64 = 4096;

/// A running worker.
pub struct Worker {
    child: Mutex<Child>,
    requests: Mutex<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
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

impl Worker {
    /// Starts `program` as a worker in `directory`.
    ///
    /// # Errors
    /// When it does not come to open its file.
    pub fn start(program: &Path, directory: &Path, opening: Opening) -> Result<Self, StartError> {
        let unavailable = |what: &str, error: std::io::Error| {
            StartError::Unavailable(format!("The SQL worker {what}: {error}"))
        };
        let (own, other) =
            UnixStream::pair().map_err(|error| unavailable("has no socket", error))?;
        let mut child = Command::new(program)
            .arg(VERB)
            .current_dir(directory)
            .env_clear()
            .envs(environment(&opening))
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| unavailable("cannot be started", error))?;
        let last_words = child.stderr.take().map(listen);
        let replies = own.try_clone().map_err(|error| unavailable("has no socket", error))?;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let hand_over = Arc::clone(&waiting);
        thread::spawn(move || distribute(replies, &hand_over));
        let mut worker = Self {
            child: Mutex::new(child),
            requests: Mutex::new(own),
            waiting,
            confinement: Confinement { files: false, calls: false },
            contents: Contents::default(),
        };
        worker.open(opening).inspect_err(|error| {
            worker.kill();
            let words = last_words.and_then(|words| words.join().ok()).unwrap_or_default();
            tracing::debug!(?error, last_words = words, "a SQL worker has not begun");
        })?;
        Ok(worker)
    }

    fn open(&mut self, opening: Opening) -> Result<(), StartError> {
        let gone = |_| StartError::Unavailable("The SQL worker does not begin".to_owned());
        let asked = self.ask(&Request::Open(opening), &[]).map_err(gone)?;
        let (ready, _) = asked.next(BEGIN_WITHIN).map_err(gone)?;
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
                | Failure::TooLarge(message),
            ) => Err(StartError::Unavailable(message)),
            other => Err(StartError::Unavailable(format!("The SQL worker answers {other:?}"))),
        }
    }

    /// Asks something.
    ///
    /// # Errors
    /// When the worker is gone.
    pub fn ask(&self, request: &Request, body: &[u8]) -> Result<Asked<'_>, NoReply> {
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
        match wire::write(&mut *self.requests.lock(), id, request, body) {
            Ok(()) => Ok(asked),
            Err(_) => Err(NoReply::Gone),
        }
    }

    /// Says something that is not answered.
    ///
    /// # Errors
    /// When the worker is gone.
    pub fn tell(&self, request: &Request) -> Result<(), NoReply> {
        let told = wire::write(&mut *self.requests.lock(), 0, request, &[]);
        told.map_err(|_| NoReply::Gone)
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        !self.waiting.lock().gone
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.lock().id()
    }

    /// Ends it at once. Whoever waits for a reply learns that it is gone.
    pub fn kill(&self) {
        let mut child = self.child.lock();
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Lets it close its file and end, and kills it when it does not.
    pub fn stop(&self) {
        if self.tell(&Request::Stop).is_ok() {
            let deadline = Instant::now() + END_WITHIN;
            while Instant::now() < deadline {
                if !matches!(self.child.lock().try_wait(), Ok(None)) {
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

/// Gives replies to those who wait, until there are no more.
fn distribute(mut replies: UnixStream, waiting: &Mutex<Waiting>) {
    while let Ok(Some(Frame { id, head, body })) = wire::read::<Reply>(&mut replies, 256 << 20) {
        let caller = waiting.lock().callers.get(&id).cloned();
        if let Some(caller) = caller {
            // Who waits no longer does not need it.
            let _ = caller.try_send((head, body));
        }
    }
    let mut waiting = waiting.lock();
    waiting.gone = true;
    waiting.callers.clear();
}

/// Notes what a worker complains about, and returns the last of it.
fn listen(words: ChildStderr) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut lines = BufReader::new(words);
        let mut last = String::new();
        loop {
            let mut line = Vec::new();
            match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(read) if read > 0 => {
                    last = String::from_utf8_lossy(&line).trim_end().to_owned();
                    tracing::warn!(words = last, "a SQL worker says");
                }
                _ => return last,
            }
        }
    })
}
