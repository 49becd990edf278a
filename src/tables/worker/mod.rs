//! The SQL worker: a process of the same binary that has one database file open and answers its parent
//! over the socket that is its standard input. It holds no secret, and gives up whatever it does not need
//! before it opens the file.

// Public are the parts with which a query is answered in the process of a fuzz target.
#[doc(hidden)]
pub mod ask;
mod ast;
mod change;
mod conversion;
#[doc(hidden)]
pub mod database;
mod digest;
mod gate;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod timer;
mod views;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};

use self::ask::Examiner;
use self::change::{Changer, Names};
use self::database::{Contents, Database};
use self::timer::Timer;
use super::wire::{self, Failure, Frame, Opening, Question, Reply, Request};
use crate::confinement::{Confinement, ConfinementError, Profile};
use crate::priority::{Priority, name_process};

/// The longest frame that a service sends: rows for a table, in bytes.
const LONGEST: usize = 256 << 20;
/// Stacks of threads that run queries: expressions may be deep.
const STACK: usize = 16 << 20;

/// Why a worker has ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The socket.
    #[error("the SQL worker is started by orrery itself, with a socket as its standard input: {0}")]
    Socket(#[from] io::Error),
    /// It was not told how to run.
    #[error("the SQL worker was told something else before how to run")]
    NotOpened,
    /// It may answer no query at a time.
    #[error("the SQL worker was told to answer no queries")]
    NoReaders,
    /// It is not held back as it should be.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
}

/// Runs until the parent says so, or is gone.
///
/// # Errors
/// When it could not begin.
pub fn run() -> Result<(), WorkerError> {
    // Handed down to all its threads.
    Priority::Prompt.take();
    name_process(c"orrery-sql");
    let socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut requests = socket.try_clone()?;
    let directory = std::env::current_dir()?.to_string_lossy().into();
    let replies = Replies { socket: Arc::new(Mutex::new(socket)), directory };
    let first = wire::read::<Request>(&mut requests, LONGEST)?;
    let (id, opening, is_trial) = match first.map(|frame| (frame.id, frame.head)) {
        Some((id, Request::Open(opening))) => (id, opening, false),
        Some((id, Request::Try(opening))) => (id, opening, true),
        _ => return Err(WorkerError::NotOpened),
    };
    let confinement = match opening.process_wall {
        true => enter(&opening)?,
        false => Confinement { files: false, calls: false },
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

/// Gives up what is not needed, and looks whether the kernel means it: with some rules only, another
/// directory might still be open.
fn enter(opening: &Opening) -> Result<Confinement, ConfinementError> {
    let profile = Profile::sql_worker(opening.memory, opening.file_bytes);
    let confinement = profile.enter()?;
    let others = File::open("..").is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    Ok(Confinement { files: confinement.files && others, ..confinement })
}

/// The way back to the parent.
#[derive(Clone)]
struct Replies {
    socket: Arc<Mutex<File>>,
    /// The directory, which is nobody's business but the service's.
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
            end();
        }
    }
}

/// Ends at once: without a parent there is nobody to work for, and the file is for another process.
fn end() -> ! {
    // A process may always end itself; what is open is closed by the kernel.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

fn serve(
    database: Database,
    contents: Contents,
    opening: &Opening,
    id: u32,
    mut requests: File,
    replies: &Replies,
) -> Result<(), WorkerError> {
    let Database { changes, readers } = database;
    let names = Names::default();
    let parser = readers.first().map(|reader| &reader.parser);
    let examiner = parser.map(|parser| Examiner::new(parser, opening, Arc::clone(&names)));
    let examiner = match examiner.ok_or(WorkerError::NoReaders)? {
        Ok(examiner) => Arc::new(examiner),
        Err(error) => {
            replies.send(id, &Reply::Failed(database::other(error)), &[]);
            return Ok(());
        }
    };
    let timer = Arc::new(Timer::default());
    let (changing, to_change) = channel();
    let (asking, to_ask) = channel();
    let to_ask = Arc::new(Mutex::new(to_ask));
    let Contents { commit, programs, watermarks } = contents;
    let opened = Reply::Opened { commit, programs: programs.clone(), watermarks };
    let mut threads = Vec::new();
    {
        let replies = replies.clone();
        let changes = move || {
            change(Changer::new(&changes, programs, names), &changes, &to_change, &replies);
        };
        threads.push(thread::Builder::new().stack_size(STACK).spawn(changes)?);
    }
    for reader in readers {
        let (examiner, timer, replies) =
            (Arc::clone(&examiner), Arc::clone(&timer), replies.clone());
        let to_ask: Arc<Mutex<Receiver<(u32, Question)>>> = Arc::clone(&to_ask);
        let ask = move || {
            loop {
                let question = to_ask.lock().recv();
                let Ok((id, question)) = question else { return };
                match ask::answer(&reader, &examiner, &timer, id, &question) {
                    Ok(body) => replies.send(id, &Reply::Answered, &body),
                    Err(failure) => replies.send(id, &Reply::Failed(failure), &[]),
                }
            }
        };
        threads.push(thread::Builder::new().stack_size(STACK).spawn(ask)?);
    }
    let times = Arc::clone(&timer);
    thread::Builder::new().spawn(move || times.run())?;
    replies.send(id, &opened, &[]);
    if !hand_out(&mut requests, &changing, &asking, &timer) {
        end();
    }
    drop((changing, asking));
    for thread in threads {
        // One that has panicked has nothing left to close.
        let _ = thread.join();
    }
    Ok(())
}

/// Gives requests to those who do them, until the end. False when the parent is gone.
fn hand_out(
    requests: &mut File,
    changing: &Sender<Frame<Request>>,
    asking: &Sender<(u32, Question)>,
    timer: &Timer,
) -> bool {
    while let Ok(Some(frame)) = wire::read::<Request>(requests, LONGEST) {
        let sent = match frame.head {
            Request::Stop => return true,
            Request::Query(question) => {
                timer.expect(frame.id);
                asking.send((frame.id, question)).is_ok()
            }
            Request::Cancel { query } => {
                timer.cancel(query);
                true
            }
            head => changing.send(Frame { head, ..frame }).is_ok(),
        };
        if !sent {
            return false;
        }
    }
    false
}

/// Makes changes, one after the other.
fn change(
    mut changer: Changer<'_>,
    connection: &duckdb::Connection,
    requests: &Receiver<Frame<Request>>,
    replies: &Replies,
) {
    while let Ok(Frame { id, head, body }) = requests.recv() {
        let reply = match head {
            Request::Begin => {
                changer.begin();
                continue;
            }
            Request::Define(definition) => {
                changer.define(definition);
                continue;
            }
            Request::Drop { program } => {
                changer.drop(program);
                continue;
            }
            Request::Abort => {
                changer.abort();
                continue;
            }
            Request::Append { table } => {
                changer.append(&table, &body);
                Reply::Appended
            }
            Request::Commit { commit, watermarks } => {
                reply(changer.commit(commit, &watermarks).map(|()| Reply::Committed))
            }
            Request::Digest => reply(digest::digest(connection).map(Reply::Digest)),
            Request::Open(_)
            | Request::Try(_)
            | Request::Query(_)
            | Request::Cancel { .. }
            | Request::Stop => Reply::Failed(Failure::Unavailable("not now".to_owned())),
        };
        replies.send(id, &reply, &[]);
    }
}

fn reply(done: Result<Reply, Failure>) -> Reply {
    done.unwrap_or_else(Reply::Failed)
}
