//! The SQL worker: a process of the same binary that opens one database file and answers its parent
//! over the socket on its standard input. It holds no secrets, and gives up all access that it does
//! not need before it opens the file.

// Public for a fuzz target, which answers queries in its own process.
mod ast;
#[doc(hidden)]
pub mod chain;
mod change;
mod clock;
mod conversion;
#[doc(hidden)]
pub mod database;
mod digest;
mod gate;
mod held;
mod members;
#[doc(hidden)]
pub mod query;
#[doc(hidden)]
pub mod query_text;
mod rounding;
mod selects;
#[doc(hidden)]
pub mod timer;
mod tree;
mod views;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use orrery_runtime::confinement::{Confinement, ConfinementError, Profile};
use orrery_runtime::priority::{Priority, name_process};
use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};

use self::chain::{ChainQuery, Held};
use self::change::{Changer, Names};
use self::database::{Contents, Database, Reader};
use self::query::Examiner;
use self::timer::Timer;
use super::wire::{self, Failure, Frame, Opening, QuerySpec, Reply, Request};

/// Maximum length of a frame from the service, in bytes: rows for a table.
const MAX_FRAME_BYTES: usize = 256 << 20;
/// Time without a change after which memory is given back.
const RESTS_AFTER: Duration = Duration::from_secs(1);
/// Stack size of the threads that run queries and changes, in bytes: expressions may be nested
/// deeply.
const STACK: usize = 16 << 20;

/// Why a worker ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The socket on standard input failed, or a thread could not be started.
    #[error("the SQL worker is started by orrery itself, with a socket as its standard input: {0}")]
    Socket(#[from] io::Error),
    /// The first request was neither `Open` nor `Try`.
    #[error("the first request to the SQL worker was neither open nor try")]
    NotOpened,
    /// The number of concurrent queries is zero.
    #[error("the SQL worker was started with zero concurrent queries")]
    NoReaders,
    /// The process could not be confined.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
}

/// Runs until the parent sends `Stop`. If the parent disappears, the process kills itself.
///
/// # Errors
/// When the worker could not start.
pub fn run() -> Result<(), WorkerError> {
    // Inherited by all threads that are started later.
    Priority::Prompt.apply_to_current_thread();
    name_process(c"orrery-sql");
    let socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut requests = socket.try_clone()?;
    let directory = std::env::current_dir()?.to_string_lossy().into();
    let replies = Replies { socket: Arc::new(Mutex::new(socket)), directory };
    let first = wire::read::<Request>(&mut requests, MAX_FRAME_BYTES)?;
    let (id, opening, is_trial) = match first.map(|frame| (frame.id, frame.head)) {
        Some((id, Request::Open(opening))) => (id, opening, false),
        Some((id, Request::Try(opening))) => (id, opening, true),
        _ => return Err(WorkerError::NotOpened),
    };
    let confinement = if opening.process_wall {
        enter(&opening)?
    } else {
        Confinement { files: false, calls: false }
    };
    replies.send(id, &Reply::Ready(confinement), &[]);
    if is_trial {
        return Ok(());
    }
    let (database, contents) = match Database::open(&opening) {
        Ok(open) => open,
        Err(failure) => {
            replies.send(id, &Reply::Failed(failure), &[]);
            return Ok(());
        }
    };
    serve(database, contents, &opening, id, requests, &replies)
}

/// Confines the process, and verifies that the parent directory is really inaccessible: a kernel
/// that supports only some of the rules might still allow other directories.
fn enter(opening: &Opening) -> Result<Confinement, ConfinementError> {
    let directories = opening.chain.iter().flat_map(|chain| &chain.directories);
    let profile = Profile::sql_worker(opening.memory, opening.file_bytes)
        .reading(directories.map(PathBuf::from));
    let confinement = profile.enter()?;
    let others = File::open("..").is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    Ok(Confinement { files: confinement.files && others, ..confinement })
}

/// Sends replies to the parent.
#[derive(Clone)]
struct Replies {
    socket: Arc<Mutex<File>>,
    /// Working directory, which is removed from error messages before they leave the process.
    directory: Arc<str>,
}

impl Replies {
    fn send(&self, id: u32, reply: &Reply, body: &[u8]) {
        let hidden = match reply {
            Reply::Failed(failure) => Some(Reply::Failed(failure.without(&self.directory))),
            _ => None,
        };
        let reply = hidden.as_ref().unwrap_or(reply);
        if wire::write(&mut *self.socket.lock(), id, reply, body).is_err() {
            kill_self();
        }
    }
}

/// Kills the process at once: without a parent there is no work, and another process may need the
/// file.
fn kill_self() -> ! {
    // A process may always kill itself; the kernel closes its descriptors.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

/// Runs the work of a thread. A panic ends the whole process at once, so that the parent learns of it
/// and no request waits for a thread that is gone.
fn or_kill_self(work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        kill_self();
    }
}

fn serve(
    database: Database,
    contents: Contents,
    opening: &Opening,
    id: u32,
    mut requests: File,
    replies: &Replies,
) -> Result<(), WorkerError> {
    let Database { writer, readers } = database;
    let names = Names::default();
    let parser = readers.first().map(|reader| &reader.parser);
    let examiner = parser.map(|parser| Examiner::new(parser, opening, Arc::clone(&names)));
    let examiner = match examiner.ok_or(WorkerError::NoReaders)? {
        Ok(examiner) => Arc::new(examiner),
        Err(error) => {
            replies.send(id, &Reply::Failed(database::storage_failure(error)), &[]);
            return Ok(());
        }
    };
    let timer = Arc::new(Timer::default());
    let held = Held::new(opening.chain.clone());
    let tables = held.tables().to_vec();
    let (change_sender, change_receiver) = channel();
    let (query_sender, query_receiver) = channel();
    let query_receiver = Arc::new(Mutex::new(query_receiver));
    let Contents { commit, programs, watermarks, fillings } = contents;
    let (of_programs, of_fillings) = (programs.clone(), fillings.clone());
    let opened = Reply::Opened { commit, programs: of_programs, watermarks, fillings: of_fillings };
    let mut threads = Vec::new();
    {
        let replies = replies.clone();
        let run = move || {
            or_kill_self(|| {
                let changer = Changer::new(&writer, programs, fillings, names, tables);
                // Queries come from now on, and find the names of all tables.
                replies.send(id, &opened, &[]);
                change(changer, &writer, &change_receiver, &replies);
            });
        };
        threads.push(thread::Builder::new().stack_size(STACK).spawn(run)?);
    }
    for reader in readers {
        let (examiner, timer, replies) =
            (Arc::clone(&examiner), Arc::clone(&timer), replies.clone());
        let query_receiver: Arc<Mutex<Receiver<Asked>>> = Arc::clone(&query_receiver);
        let ask = move || {
            or_kill_self(|| answer(&reader, &examiner, &timer, &query_receiver, &replies));
        };
        threads.push(thread::Builder::new().stack_size(STACK).spawn(ask)?);
    }
    let times = Arc::clone(&timer);
    thread::Builder::new().spawn(move || or_kill_self(|| times.run()))?;
    if !dispatch_requests(&mut requests, &change_sender, &query_sender, &timer, &held) {
        kill_self();
    }
    drop((change_sender, query_sender));
    for thread in threads {
        // A thread that has panicked has nothing left to close.
        let _ = thread.join();
    }
    Ok(())
}

/// A query with its request number, and what it finds in the tables of the chain if it may read them.
type Asked = (u32, QuerySpec, Option<Arc<ChainQuery>>);

/// Dispatches requests to the threads that handle them. Returns true after `Stop`, and false when
/// the parent is gone or the handling threads have ended.
fn dispatch_requests(
    requests: &mut File,
    change_sender: &Sender<Frame<Request>>,
    query_sender: &Sender<Asked>,
    timer: &Timer,
    held: &Held,
) -> bool {
    while let Ok(Some(frame)) = wire::read::<Request>(requests, MAX_FRAME_BYTES) {
        let sent = match frame.head {
            Request::Stop => return true,
            Request::Query(query) => {
                timer.register(frame.id);
                // A query names parts that were sent before it.
                let found = query.chain.as_ref().map(|parts| held.query(parts).map(Arc::new));
                match found {
                    Some(None) => false,
                    found => query_sender.send((frame.id, query, found.flatten())).is_ok(),
                }
            }
            Request::Chain(part) => held.add(part, &frame.body).is_ok(),
            Request::ForgetChain { parts } => {
                held.forget(&parts);
                true
            }
            Request::Cancel { query } => {
                timer.cancel(query);
                true
            }
            head => change_sender.send(Frame { head, ..frame }).is_ok(),
        };
        if !sent {
            return false;
        }
    }
    false
}

/// Answers queries one after the other, while other threads take the next ones.
fn answer(
    reader: &Reader,
    examiner: &Examiner,
    timer: &Timer,
    queries: &Mutex<Receiver<Asked>>,
    replies: &Replies,
) {
    loop {
        let query = queries.lock().recv();
        let Ok((id, query, chain)) = query else { return };
        match query::answer(reader, examiner, timer, id, &query, chain.as_ref()) {
            Ok(body) => replies.send(id, &Reply::Answered, &body),
            Err(failure) => replies.send(id, &Reply::Failed(failure), &[]),
        }
    }
}

/// Makes changes one after the other.
fn change(
    mut changer: Changer<'_>,
    connection: &duckdb::Connection,
    requests: &Receiver<Frame<Request>>,
    replies: &Replies,
) {
    loop {
        let request = match changer.holds_memory() {
            true => requests.recv_timeout(RESTS_AFTER),
            false => requests.recv().map_err(RecvTimeoutError::from),
        };
        match request {
            Ok(Frame { id, head, body }) => {
                if let Some(reply) = apply(&mut changer, connection, head, &body) {
                    replies.send(id, &reply, &[]);
                }
            }
            Err(RecvTimeoutError::Timeout) => changer.give_back_memory(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Does what a request to change the tables says. Returns the reply, if it has one: most steps of a
/// change have none, and fail when the change is committed.
fn apply(
    changer: &mut Changer<'_>,
    connection: &duckdb::Connection,
    request: Request,
    body: &[u8],
) -> Option<Reply> {
    match request {
        Request::Begin => changer.begin(),
        Request::Define(definition) => changer.define(definition),
        Request::Fill(filling) => changer.fill(filling),
        Request::Discard { program } => changer.discard(program),
        Request::Swap { program } => changer.swap(program),
        Request::Drop { program } => changer.drop(program),
        Request::Progress { program, ranges } => changer.set_progress(program, &ranges),
        Request::Abort => changer.abort(),
        Request::Append { table } => {
            changer.append(&table, body);
            return Some(Reply::Appended);
        }
        Request::Commit { commit, watermarks } => {
            return Some(reply(changer.commit(commit, &watermarks).map(|()| Reply::Committed)));
        }
        Request::Digest => return Some(reply(digest::digest(connection).map(Reply::Digest))),
        Request::Open(_)
        | Request::Try(_)
        | Request::Query(_)
        | Request::Chain(_)
        | Request::ForgetChain { .. }
        | Request::Cancel { .. }
        | Request::Stop => {
            return Some(Reply::Failed(Failure::Unavailable("not now".to_owned())));
        }
    }
    None
}

fn reply(done: Result<Reply, Failure>) -> Reply {
    done.unwrap_or_else(Reply::Failed)
}
