//! One run of stellar-core: the commands that bring it to the needed ledger, and the stream from
//! there on. It has a thread with a runtime of its own, so that the stream is drained whatever the
//! rest of the program does, and so that any thread can stop it and wait for its end.

mod online;
mod ports;
mod replay;
mod standalone;

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use orrery_ledger::domain::{LedgerSeq, Origin, RawLedger, sequence_of};
use orrery_runtime::durable::write_atomically;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::time::timeout;
use toml::Table;

use super::archive::{self, ArchiveState};
use super::config::{self, Purpose};
use super::error::CoreError;
use super::frames::Frames;
use super::process::{Launcher, Process};
use super::queue::{End, Pushed, Queue};
use super::settings::{CoreSettings, Mode, OnlineStart};
use super::storage::{CONFIG_FILE, Storage, failed};
use super::version::{self, Version};
use crate::records::RecordError;

/// Inputs of a session.
#[derive(Clone)]
pub(super) struct Plan {
    pub settings: Arc<CoreSettings>,
    pub own: Arc<Table>,
    pub storage: Arc<Storage>,
    /// The first ledger that is needed.
    pub from: LedgerSeq,
}

/// A running session. Dropping it stops core and waits for its end.
pub(super) struct Session {
    queue: Arc<Queue>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Starts the session's thread.
    pub fn start(plan: Plan) -> Self {
        let directory = plan.storage.root().to_owned();
        let queue = Arc::new(Queue::new(plan.settings.limits.clone(), directory));
        let (stop, stopping) = watch::channel(false);
        let runner = Runner { plan, queue: Arc::clone(&queue), stop: Stop(stopping), last: None };
        let spawned = thread::Builder::new().name("stellar-core".to_owned()).spawn(move || {
            // Ends the queue when the thread panics, so that the source does not wait for ever.
            let _guard = EndGuard(Arc::clone(&runner.queue));
            runner.work();
        });
        let thread =
            spawned.map_err(|error| queue.end(End::Failed(CoreError::internal(error)))).ok();
        Self { queue, stop, thread }
    }

    /// Returns the queue of its ledgers.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return };
        let join = || drop(thread.join());
        // Core may take seconds to stop; on a multi-threaded runtime, other tasks of this worker
        // thread are moved to another one.
        match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(join),
            _ => join(),
        }
    }
}

struct EndGuard(Arc<Queue>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        // Has no effect when the queue has ended already.
        self.0.end(End::Failed(CoreError::internal("see the log")));
    }
}

/// The stop signal of a session.
struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until the session is to stop.
    async fn requested(&mut self) {
        // The sender is dropped only together with the session.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Returns the output of `work`, or an error if the session is to stop first.
    async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, CoreError> {
        tokio::select! {
            () = self.requested() => Err(CoreError::stopped()),
            output = work => Ok(output),
        }
    }
}

struct Runner {
    plan: Plan,
    queue: Arc<Queue>,
    stop: Stop,
    /// The newest ledger that was streamed.
    last: Option<LedgerSeq>,
}

/// What to do after a record.
enum Accepted {
    Continue,
    /// Core is to stop; the rest of its stream is kept.
    StopAfter,
    /// Core is to stop; the rest of its stream is discarded.
    StopHere,
}

impl Runner {
    fn work(mut self) {
        match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.run()),
            Err(error) => self.queue.end(End::Failed(CoreError::internal(error))),
        }
    }

    async fn run(&mut self) {
        let ended = match self.plan.settings.mode {
            Mode::Online => self.online().await,
            Mode::Bounded { to } => self.replay(to).await,
            Mode::Standalone => self.standalone().await,
        };
        self.queue.end(ended.unwrap_or_else(End::Failed));
        // Ledgers on disk are moved to memory as long as the source takes ledgers.
        while !self.queue.is_drained() {
            let queue = Arc::clone(&self.queue);
            if self.stop.or(queue.taken.notified()).await.is_err() {
                return;
            }
            if let Err(error) = queue.refill() {
                tracing::warn!("ledgers queued on disk are lost and streamed again: {error}");
            }
        }
    }

    /// Returns the version of the executable.
    async fn version(&mut self) -> Result<Version, CoreError> {
        let version = self.stop.or(version::probe(&self.plan.settings.binary)).await??;
        if let Some(warning) = version.warning() {
            tracing::warn!("{warning}");
        }
        Ok(version)
    }

    /// Writes the configuration into `directory`.
    fn configure(
        &self,
        directory: &Path,
        protocol: u32,
        start: OnlineStart,
    ) -> Result<(Launcher, Table), CoreError> {
        let CoreSettings { network, mode, http_port, limits, .. } = &*self.plan.settings;
        let (own, http_port) = (&*self.plan.own, *http_port);
        let table = config::compose(&Purpose { network, mode, own, http_port, protocol, start })?;
        let config = directory.join(CONFIG_FILE);
        std::fs::create_dir_all(directory).map_err(failed(directory))?;
        write_config(&config, &table)?;
        let (binary, directory) = (self.plan.settings.binary.clone(), directory.to_owned());
        let (stop_timeout, storage) = (limits.stop, Arc::clone(&self.plan.storage));
        Ok((Launcher { binary, config, directory, stop_timeout, storage }, table))
    }

    /// Returns the newest state of an archive in `table`, or `None` if none answers. Fails if it
    /// belongs to another network.
    async fn archive(&mut self, table: &Table) -> Result<Option<ArchiveState>, CoreError> {
        let commands = config::archives(table);
        let state = archive::state(&commands, self.plan.storage.root());
        let Some(state) = self.stop.or(state).await? else { return Ok(None) };
        let wanted = &self.plan.settings.network;
        match &state.passphrase {
            Some(found) if found != wanted.passphrase() => {
                let what = "the history archive of stellar-core";
                Err(CoreError::wrong_network(what, found, wanted))
            }
            _ => Ok(Some(state)),
        }
    }

    /// Runs a command to its end; an unsuccessful exit status is an error.
    async fn command(&mut self, launcher: &Launcher, arguments: &[&str]) -> Result<(), CoreError> {
        tracing::info!("stellar-core {}", arguments.join(" "));
        let mut process = launcher.start(arguments, None)?;
        match self.stop.or(process.succeeded()).await {
            Ok(ended) => ended,
            Err(stopped) => {
                process.stop().await?;
                Err(stopped)
            }
        }
    }

    /// Returns the newest ledger that core has closed in its storage.
    async fn closed(&mut self, launcher: &Launcher) -> Result<LedgerSeq, CoreError> {
        let (mut process, answer) = launcher.start_with_output(&["offline-info"])?;
        let asked = async {
            let (ended, answer) = tokio::join!(process.succeeded(), answer);
            ended.map(|()| answer)
        };
        let answer = match self.stop.or(asked).await {
            Ok(answer) => answer?,
            Err(stopped) => {
                process.stop().await?;
                return Err(stopped);
            }
        };
        read_closed(&answer).map_err(|reason| {
            CoreError::StorageInDoubt(format!(
                "the answer of stellar-core offline-info is not understood: {reason}"
            ))
        })
    }

    /// Queues the ledgers that core streams until it ends or has to be stopped. Runs `checks`
    /// meanwhile, and fails if they fail.
    async fn stream(
        &mut self,
        mut process: Process,
        mut frames: Frames,
        checks: impl Future<Output = Result<(), CoreError>>,
    ) -> Result<End, CoreError> {
        let mut checks = pin!(checks);
        let (mut checked, mut status) = (false, None);
        let (queue, may_wait) = (Arc::clone(&self.queue), self.plan.settings.mode != Mode::Online);
        loop {
            let reads = !may_wait || queue.has_room();
            let record = tokio::select! {
                () = self.stop.requested() => {
                    self.wind_down(&mut process, &mut frames, false).await?;
                    return Err(CoreError::stopped());
                }
                result = &mut checks, if !checked => {
                    checked = true;
                    if let Err(error) = result {
                        self.wind_down(&mut process, &mut frames, false).await?;
                        return Err(error);
                    }
                    continue;
                }
                ended = process.ended(), if status.is_none() => {
                    status = Some(ended?);
                    frames.writer_ended();
                    continue;
                }
                () = queue.taken.notified() => {
                    if let Err(error) = queue.refill() {
                        self.wind_down(&mut process, &mut frames, false).await?;
                        return Err(CoreError::storage(self.plan.storage.root(), error));
                    }
                    continue;
                }
                record = frames.next(), if reads => record,
            };
            let keep_rest = match self.handle_record(record, &frames) {
                Ok(Some(Accepted::Continue)) => continue,
                Ok(Some(Accepted::StopAfter)) => true,
                Ok(Some(Accepted::StopHere)) => false,
                Ok(None) => return self.ended(process, frames, status).await,
                Err(problem) => return Err(self.broken(process, frames, problem).await?),
            };
            tracing::info!("stellar-core is stopped until its queued ledgers have been fetched");
            self.wind_down(&mut process, &mut frames, keep_rest).await?;
            return Ok(End::Restart);
        }
    }

    /// Processes the result of a read. Returns `None` at the end of the stream.
    fn handle_record(
        &mut self,
        record: Result<Option<Vec<u8>>, RecordError>,
        frames: &Frames,
    ) -> Result<Option<Accepted>, Problem> {
        let Some(xdr) = record.map_err(Problem::Stream)? else { return Ok(None) };
        let offset = frames.offset();
        let sequence = sequence_of(&xdr)
            .map_err(|reason| Problem::Stream(RecordError::damaged(offset, reason)))?;
        let accepted = self.accept(sequence, xdr)?;
        let too_long = self.plan.settings.mode == Mode::Standalone
            && offset >= self.plan.settings.limits.bytes_on_disk;
        Ok(Some(if too_long { Accepted::StopHere } else { accepted }))
    }

    /// Queues a ledger. Core begins at the start of its checkpoint, so the first ledgers may
    /// precede the needed one; they are skipped.
    fn accept(&mut self, sequence: LedgerSeq, xdr: Vec<u8>) -> Result<Accepted, Problem> {
        let from = self.plan.from;
        let expected = self.last.and_then(LedgerSeq::next).unwrap_or(from);
        if sequence > expected {
            return Err(Problem::Skipped { expected, found: sequence });
        }
        let repeated = self.last.is_some_and(|last| sequence <= last);
        let beyond = matches!(self.plan.settings.mode, Mode::Bounded { to } if sequence > to);
        if repeated || beyond {
            return Ok(Accepted::Continue);
        }
        self.last = Some(sequence);
        if let Some(query) = &self.plan.settings.query {
            query.streamed(sequence);
        }
        if sequence < from {
            return Ok(Accepted::Continue);
        }
        let origin = Origin { name: super::error::NAME.into(), position: None };
        match self.queue.push(RawLedger { sequence, xdr, compressed: None, origin }) {
            Pushed::Queued => Ok(Accepted::Continue),
            Pushed::Full => Ok(Accepted::StopAfter),
            Pushed::Refused(error) => {
                tracing::warn!("ledgers of stellar-core cannot be queued on disk: {error}");
                Ok(Accepted::StopHere)
            }
        }
    }

    /// Stops core, and reads its stream meanwhile, so that core can finish its write. With `keep`,
    /// the rest of the ledgers are queued.
    async fn wind_down(
        &mut self,
        process: &mut Process,
        frames: &mut Frames,
        keep: bool,
    ) -> Result<ExitStatus, CoreError> {
        let mut stopping = pin!(process.stop());
        let (mut status, mut keep) = (None, keep);
        loop {
            let record = tokio::select! {
                ended = &mut stopping, if status.is_none() => {
                    status = Some(ended?);
                    frames.writer_ended();
                    continue;
                }
                record = frames.next() => record,
            };
            if !self.handle_remaining_record(record, frames, &mut keep) {
                break;
            }
        }
        match status {
            Some(status) => Ok(status),
            None => stopping.await,
        }
    }

    /// Processes a read after the stop was requested, and returns whether there may be more to
    /// read.
    fn handle_remaining_record(
        &mut self,
        record: Result<Option<Vec<u8>>, RecordError>,
        frames: &Frames,
        keep: &mut bool,
    ) -> bool {
        if !*keep {
            return matches!(record, Ok(Some(_)));
        }
        let taken = self.handle_record(record, frames);
        *keep = matches!(taken, Ok(Some(Accepted::Continue | Accepted::StopAfter)));
        matches!(taken, Ok(Some(_)))
    }

    /// Ends the session after the stream has ended between two ledgers.
    async fn ended(
        &mut self,
        mut process: Process,
        mut frames: Frames,
        status: Option<ExitStatus>,
    ) -> Result<End, CoreError> {
        let status = match status {
            Some(status) => status,
            None => self.settle(&mut process, &mut frames).await?,
        };
        let before = self.plan.from.previous().unwrap_or(self.plan.from);
        let last = self.last.unwrap_or(before);
        if matches!(self.plan.settings.mode, Mode::Bounded { to } if to == last && status.success())
        {
            return Ok(End::Complete);
        }
        let end = process.exit_description(status).await;
        let sentence = format!("stellar-core ended after ledger {last} with {end}");
        let clean = status.success();
        Err(if clean { CoreError::Other } else { CoreError::StorageInDoubt }(sentence))
    }

    /// Ends the session after the stream has become unusable, and returns the error.
    async fn broken(
        &mut self,
        mut process: Process,
        mut frames: Frames,
        problem: Problem,
    ) -> Result<CoreError, CoreError> {
        let status = match problem {
            Problem::Stream(RecordError::Truncated { .. }) => {
                self.settle(&mut process, &mut frames).await?
            }
            _ => self.wind_down(&mut process, &mut frames, false).await?,
        };
        Ok(CoreError::StorageInDoubt(match problem {
            Problem::Skipped { expected, found } => {
                format!("stellar-core streams ledger {found} where ledger {expected} should come")
            }
            Problem::Stream(error) => {
                let end = process.exit_description(status).await;
                format!(
                    "the ledger stream of stellar-core broke: {error}; stellar-core ended with {end}"
                )
            }
        }))
    }

    /// Returns the exit status of a core that has closed its stream. Stops it if it does not end by
    /// itself soon.
    async fn settle(
        &mut self,
        process: &mut Process,
        frames: &mut Frames,
    ) -> Result<ExitStatus, CoreError> {
        let within = self.plan.settings.limits.stop;
        match self.stop.or(timeout(within, process.ended())).await {
            Ok(Ok(status)) => status,
            _ => self.wind_down(process, frames, false).await,
        }
    }
}

fn write_config(path: &Path, table: &Table) -> Result<(), CoreError> {
    let text = toml::to_string(table).map_err(CoreError::internal)?;
    write_atomically(path, |file| file.write_all(text.as_bytes())).map_err(failed(path))
}

/// A defect of the stream.
enum Problem {
    Stream(RecordError),
    Skipped { expected: LedgerSeq, found: LedgerSeq },
}

/// Parses `info.ledger.num` in an answer, which may be preceded by log lines.
fn read_closed(answer: &str) -> Result<LedgerSeq, String> {
    let begin = answer
        .match_indices('{')
        .map(|(at, _)| at)
        .find(|at| *at == 0 || answer[..*at].ends_with('\n'));
    let text = &answer[begin.ok_or("there is no JSON in it")?..];
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let value = values.next().ok_or("it is empty")?.map_err(|error| error.to_string())?;
    let number = value.pointer("/info/ledger/num").and_then(serde_json::Value::as_u64);
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.map(LedgerSeq).ok_or_else(|| "it has no ledger sequence".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ledger_is_parsed_among_log_lines() {
        let answer = "2026-08-01T10:00:00.000 [default INFO] {not this}\n{\n \"info\" : {\n\
                      \"ledger\" : { \"num\" : 63 }\n } }\nmore\n";
        assert_eq!(read_closed(answer), Ok(LedgerSeq(63)));
        for wrong in ["", "no", "{", "{}", "{\"info\":{\"ledger\":{\"num\":-1}}}"] {
            assert!(read_closed(wrong).is_err(), "{wrong}");
        }
    }
}
