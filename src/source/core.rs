//! A captive stellar-core as a source: a process that follows its network, or replays a part of its
//! history, and streams the ledgers. Here is what it can be asked; how it is started, read and
//! stopped is in the modules below, `session` first.
//!
//! What always holds: the stream is drained whatever the store does (`queue`); core is stopped
//! cleanly before this source is gone (`session`); and a core that an earlier process left behind is
//! stopped before another begins (`storage`).

mod archive;
mod config;
mod error;
mod frames;
mod http;
mod log;
mod networks;
mod process;
mod query;
mod queue;
mod session;
mod spill;
mod standalone;
mod storage;
mod submission;
mod version;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};
use toml::Table;

pub use error::CoreError;
pub use query::{CoreEntries, QueryError, QueryPort};
pub use submission::{Answered, CoreSubmission, SubmissionError};

use self::queue::{End, Taken};
use self::session::{Plan, Session};
use self::storage::Storage;
use super::follow::{Fetched, LedgerSource, SourceError};
use crate::domain::{LedgerRange, LedgerSeq, Network};

/// How the source is called in messages.
const NAME: &str = "stellar-core";

/// How core is run.
#[derive(Debug, Clone)]
pub struct CoreSettings {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub binary: PathBuf,
    /// A directory for core alone. It is created when it is missing, and may be wiped.
    pub storage: PathBuf,
    /// The network that it follows.
    pub network: Network,
    /// What it does.
    pub mode: Mode,
    /// A configuration file of core, laid over what is known of the network: other validators,
    /// archives or ports.
    pub own_config: Option<PathBuf>,
    /// Port of core's HTTP interface; 0 for what the own file says, else one that is free where entries are asked for,
    /// else off.
    pub http_port: u16,
    /// Who asks it for entries of the ledger and is told where; none when nobody does.
    pub query: Option<QueryPort>,
    /// The first ledger that is wanted; none for the begin of the newest checkpoint.
    pub first: Option<LedgerSeq>,
    /// How much may wait, and how long.
    pub limits: Limits,
}

/// What core does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Follows its network without an end.
    Online,
    /// Replays archived ledgers, and ends.
    Bounded {
        /// The last of them.
        to: LedgerSeq,
    },
    /// Is a network of its own, without any other node.
    Standalone,
}

impl Mode {
    /// What core does on `network` when nothing is to be replayed: it is alone where its own file
    /// says so, and on the network `local` unless its own file names validators.
    ///
    /// # Errors
    /// When that file cannot be read or does not fit.
    pub fn of(network: &Network, own_config: Option<&Path>) -> Result<Self, CoreError> {
        let own = own_config.map(|path| config::read_own(path, network)).transpose()?;
        let alone = config::is_standalone(&own.unwrap_or_default(), network);
        Ok(if alone { Self::Standalone } else { Self::Online })
    }
}

/// How much may wait, and how long.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Ledgers that wait in memory.
    pub ledgers_in_memory: usize,
    /// Bytes of ledgers that wait in memory; one ledger more fits always.
    pub bytes_in_memory: usize,
    /// Bytes of ledgers that wait on disk, before core is stopped until they were fetched. Of a
    /// standalone network: bytes of its ledgers, before core is stopped for a moment to shorten them.
    pub bytes_on_disk: u64,
    /// From SIGINT to SIGKILL.
    pub stop: Duration,
    /// Until a fetch answers that there is nothing yet.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ledgers_in_memory: 20,
            bytes_in_memory: 64 << 20,
            bytes_on_disk: 1 << 30,
            stop: Duration::from_secs(10),
            // Less than a follower waits for one call.
            answer: Duration::from_secs(30),
        }
    }
}

/// How a core that follows its network comes to its first ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnlineStart {
    /// By replaying everything: only so does it stream ledger 2.
    Genesis,
    /// By way of the checkpoint before it.
    Checkpoint,
}

impl OnlineStart {
    fn at(first: LedgerSeq) -> Self {
        if first <= LedgerSeq::FIRST { Self::Genesis } else { Self::Checkpoint }
    }
}

/// Yields the ledgers of a stellar-core that it runs.
pub struct CoreSource {
    settings: Arc<CoreSettings>,
    own: Arc<Table>,
    storage: Arc<Storage>,
    session: Option<Session>,
    /// The next ledger of the session.
    next: LedgerSeq,
    first: Option<LedgerSeq>,
    newest: Option<LedgerSeq>,
    /// Why the last session ended, until the next one yields something.
    failed: Option<String>,
}

impl CoreSource {
    /// Opens the storage, and looks whether the program is there and fits. Core itself is started by
    /// the first fetch.
    ///
    /// # Errors
    /// What does not fit, in a sentence.
    pub async fn open(mut settings: CoreSettings) -> Result<Self, CoreError> {
        if settings.binary.components().count() > 1 {
            // Core works in another directory, where a relative path would mean another file.
            let found = std::path::absolute(&settings.binary).ok().filter(|path| path.is_file());
            settings.binary = found.ok_or(CoreError::NotFound(settings.binary))?;
        }
        let own = settings.own_config.as_deref();
        let own = own.map(|path| config::read_own(path, &settings.network)).transpose()?;
        let own = own.unwrap_or_default();
        let version = version::probe(&settings.binary).await?;
        let start = OnlineStart::Checkpoint;
        // What cannot work should be said before a service has begun.
        config::compose(&purpose(&settings, &own, version.protocol, start))?;
        let storage = Arc::new(Storage::open(&settings.storage)?);
        tracing::info!(build = version.build, protocol = version.protocol, "found stellar-core");
        Ok(Self {
            first: settings.first,
            settings: Arc::new(settings),
            own: Arc::new(own),
            storage,
            session: None,
            next: LedgerSeq::FIRST,
            newest: None,
            failed: None,
        })
    }

    /// The ledger to begin with when none is asked for: what the network can show without a replay
    /// of all its history.
    async fn oldest(&self) -> Result<LedgerSeq, CoreError> {
        match self.settings.mode {
            Mode::Bounded { .. } => Ok(LedgerSeq::FIRST),
            Mode::Standalone => Ok(standalone::oldest(&self.storage).unwrap_or(LedgerSeq::FIRST)),
            Mode::Online => {
                let version = version::probe(&self.settings.binary).await?;
                let start = OnlineStart::Checkpoint;
                let purpose = purpose(&self.settings, &self.own, version.protocol, start);
                let commands = config::archives(&config::compose(&purpose)?);
                let state = archive::state(&commands, self.storage.root()).await;
                let newest = state.map(|state| state.newest());
                let first = newest.and_then(LedgerSeq::next);
                first.ok_or_else(|| CoreError::NoArchive(self.settings.network.clone()))
            }
        }
    }

    /// Makes sure that a session runs that comes to `from`.
    fn run(&mut self, from: LedgerSeq) -> &Session {
        if from < self.next {
            // A stream does not go back.
            self.session = None;
        }
        self.session.get_or_insert_with(|| {
            self.next = from;
            Session::start(Plan {
                settings: Arc::clone(&self.settings),
                own: Arc::clone(&self.own),
                storage: Arc::clone(&self.storage),
                from,
            })
        })
    }

    async fn fetch_from(&mut self, from: LedgerSeq) -> Result<Fetched, SourceError> {
        let from = from.max(LedgerSeq::FIRST);
        let deadline = Instant::now() + self.settings.limits.answer;
        loop {
            let queue = Arc::clone(self.run(from).queue());
            match queue.take(from) {
                Taken::Ledgers(ledgers) => {
                    self.failed = None;
                    self.newest = self.newest.max(queue.newest());
                    let last = ledgers.last().map(|ledger| ledger.sequence);
                    self.next = last.and_then(LedgerSeq::next).unwrap_or(from);
                    return Ok(Fetched::Ledgers(ledgers));
                }
                Taken::End(end) => {
                    self.session = None;
                    match end {
                        End::Complete => return Ok(Fetched::Ended),
                        End::Again => {}
                        End::Failed(error) => {
                            self.failed = Some(error.to_string());
                            return Err(error.into());
                        }
                    }
                }
                Taken::Nothing => {
                    if timeout_at(deadline, queue.filled.notified()).await.is_err() {
                        return self.nothing_yet();
                    }
                }
            }
        }
    }

    /// A core that was started again after a failure has not healed before it yields a ledger.
    fn nothing_yet(&self) -> Result<Fetched, SourceError> {
        match &self.failed {
            None => Ok(Fetched::NotYet),
            Some(reason) => Err(SourceError::Retryable(format!(
                "{reason}; it was started again and has not come to the next ledger yet"
            ))),
        }
    }
}

fn purpose<'a>(
    settings: &'a CoreSettings,
    own: &'a Table,
    protocol: u32,
    start: OnlineStart,
) -> config::Purpose<'a> {
    let CoreSettings { network, mode, http_port, .. } = settings;
    config::Purpose { network, mode, own, http_port: *http_port, protocol, start }
}

impl LedgerSource for CoreSource {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        // Core is configured with it and cannot follow another network.
        std::future::ready(Ok(Some(self.settings.network.passphrase().to_owned()))).boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        async {
            let first = match self.first {
                Some(first) => first,
                None => *self.first.insert(self.oldest().await?),
            };
            let streamed = self.session.as_ref().and_then(|session| session.queue().newest());
            self.newest = self.newest.max(streamed);
            // An empty range when nothing has come: what follows is on offer.
            let last = self.newest.or(first.previous()).unwrap_or(first);
            Ok(Some(LedgerRange { first, last }))
        }
        .boxed()
    }

    fn replays(&self) -> bool {
        true
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        self.fetch_from(from).boxed()
    }
}
