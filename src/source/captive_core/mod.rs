//! A captive stellar-core as a source: a child process that follows its network, or replays a part
//! of its history, and streams the ledgers. This file contains the source; the modules below hold its
//! settings and start, read and stop the process, `session` first.
//!
//! Invariants: the stream is drained whatever the store does (`queue`); core is stopped cleanly
//! before this source is dropped (`session`); a core that an earlier process left behind is stopped
//! before another starts (`storage`).

mod archive;
mod config;
mod error;
mod frames;
mod http;
mod log;
mod process;
mod query;
mod queue;
mod session;
mod settings;
mod spill;
mod standalone;
mod storage;
mod submission;
mod version;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{Fetched, LedgerRange, LedgerSeq, LedgerSource, SourceError};
use tokio::time::{Instant, timeout_at};
use toml::Table;

pub use error::{CoreError, NAME};
pub use query::{CoreEntries, QueryPort};
pub use settings::{CoreSettings, Limits, Mode};
pub use submission::{CoreSubmission, SubmissionError};

use self::queue::{End, Taken};
use self::session::{Plan, Session};
use self::settings::OnlineStart;
use self::storage::Storage;

/// A source that runs a stellar-core and yields its ledgers.
pub struct CoreSource {
    settings: Arc<CoreSettings>,
    own: Arc<Table>,
    storage: Arc<Storage>,
    session: Option<Session>,
    /// The next ledger of the session.
    next: LedgerSeq,
    first: Option<LedgerSeq>,
    newest: Option<LedgerSeq>,
    /// Why the last session failed, until the next one yields a ledger.
    failed: Option<String>,
}

impl CoreSource {
    /// Opens the storage, and checks that the executable exists and fits. Core itself is started by
    /// the first fetch.
    ///
    /// # Errors
    /// What is missing or does not fit, in one sentence.
    pub async fn open(mut settings: CoreSettings) -> Result<Self, CoreError> {
        if settings.binary.components().count() > 1 {
            // Core runs in another working directory, where a relative path would name another
            // file.
            let found = std::path::absolute(&settings.binary).ok().filter(|path| path.is_file());
            settings.binary = found.ok_or_else(|| CoreError::not_found(&settings.binary))?;
        }
        let own = settings.own_config.as_deref();
        let own = own.map(|path| config::read_own(path, &settings.network)).transpose()?;
        let own = own.unwrap_or_default();
        let version = version::probe(&settings.binary).await?;
        let start = OnlineStart::Checkpoint;
        // Fails here, before the service starts, when no configuration can be made.
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

    /// Returns the ledger to begin with when none is configured: the oldest one that the network
    /// yields without a replay of its whole history.
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
                first.ok_or_else(|| {
                    CoreError::Other(format!(
                        "no history archive of {} answers, so the first ledger cannot be determined: \
                         give source.start, or check the connection",
                        self.settings.network
                    ))
                })
            }
        }
    }

    /// Ensures that a session is running that reaches `from`.
    fn run(&mut self, from: LedgerSeq) -> &Session {
        if from < self.next {
            // A stream cannot go back.
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
                        End::Restart => {}
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

    /// After a failure, a restarted core counts as recovered only when it yields a ledger.
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
        // Core is configured with this passphrase and cannot follow another network.
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
            // The range is empty when no ledger has come yet: ledgers from `first` on are on offer.
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
