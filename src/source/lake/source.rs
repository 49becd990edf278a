//! A lake as a source to follow: opens it once it can be reached, reads ahead, and distinguishes an
//! unfinished file from a damaged one.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{Fetched, LedgerRange, LedgerSeq, LedgerSource, Network, SourceError};

use super::batches::Lake;
use super::error::LakeError;
use super::files::LakeFiles;
use super::layout::GivenLayout;
use super::prefetch::ReadAhead;
use super::range::Ends;
use super::settings::LakeSettings;

/// Follows a lake to its end and waits there for new files.
pub struct LakeSource {
    name: String,
    lake: Option<Lake>,
    params: OpenParams,
    /// The next ledger wanted, once it is known.
    wanted: Option<LedgerSeq>,
    ends: Ends,
    ahead: ReadAhead,
    /// Ledgers of the newest file, when it exists and cannot be read yet.
    unfinished: Option<LedgerRange>,
}

/// Parameters for opening a lake.
struct OpenParams {
    store: Arc<dyn LakeFiles>,
    network: Network,
    given: GivenLayout,
}

impl LakeSource {
    /// Creates a source of the lake that `settings` describe. `near` is the next ledger wanted,
    /// when it is known; it is needed where a store cannot list and does not hold the network's
    /// first ledgers. Sends no request: a lake that cannot be reached is a failure of the source,
    /// which may be temporary.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn connect(
        settings: &LakeSettings,
        network: &Network,
        near: Option<LedgerSeq>,
    ) -> Result<Self, LakeError> {
        let (store, given) = (settings.files()?, settings.layout.clone());
        Ok(Self::from(OpenParams { store, network: network.clone(), given }, None, near))
    }

    /// Creates a source of an open lake that holds ledgers of `network`.
    pub fn new(lake: Lake, network: &Network) -> Self {
        let (store, given) = (Arc::clone(&lake.store), GivenLayout::default());
        Self::from(OpenParams { store, network: network.clone(), given }, Some(lake), None)
    }

    fn from(params: OpenParams, lake: Option<Lake>, wanted: Option<LedgerSeq>) -> Self {
        let name = name_of(&params.store.place(""));
        let (ends, ahead) = (Ends::default(), ReadAhead::default());
        Self { name, lake, params, wanted, ends, ahead, unfinished: None }
    }

    /// Returns the newest ledger of the lake, to start there; `None` when the lake is empty. Needs
    /// fewer requests than the range, which includes the oldest ledger.
    pub async fn newest(&mut self) -> Result<Option<LedgerSeq>, SourceError> {
        let lake = self.open().await?;
        Ok(self.ends.find_newest(&lake, self.wanted).await?)
    }

    async fn open(&mut self) -> Result<Lake, LakeError> {
        if let Some(lake) = &self.lake {
            return Ok(lake.clone());
        }
        let OpenParams { store, network, given } = &self.params;
        let lake = Lake::open_as(Arc::clone(store), network, given, self.wanted).await?;
        self.name = name_of(&lake.place());
        self.lake = Some(lake.clone());
        Ok(lake)
    }

    async fn survey(&mut self) -> Result<Option<LedgerRange>, LakeError> {
        let lake = self.open().await?;
        let range = self.ends.survey(&lake, self.wanted).await;
        if let Err(LakeError::OtherFiles { .. }) = range {
            // The manifest may have been corrected, or replaced together with the sizes, by then.
            self.lake = None;
            self.ends.forget();
            return range;
        }
        let nothing = matches!(range, Ok(None) | Err(LakeError::NothingNear(_)));
        if nothing && lake.layout.is_guessed() {
            // The first file will show the extension.
            self.lake = None;
        }
        let Some(mut range) = range? else { return Ok(None) };
        if let Some(unfinished) = self.unfinished.filter(|file| file.contains(range.last))
            && let Some(before) = unfinished.first.previous()
        {
            range.last = before;
        }
        Ok(Some(range))
    }

    async fn read_from(&mut self, from: LedgerSeq) -> Result<Fetched, LakeError> {
        self.wanted = Some(from);
        let lake = self.open().await?;
        let newest = self.ends.newest().unwrap_or(from);
        match self.ahead.file(&lake, from, newest).await {
            Ok(Some(ledgers)) => {
                self.unfinished = None;
                if let Some(last) = ledgers.last() {
                    self.ends.record_present(last.sequence);
                }
                Ok(Fetched::Ledgers(ledgers))
            }
            Ok(None) => match self.ends.record_missing(from) {
                Some(oldest) => {
                    let place = lake.place();
                    Err(LakeError::Gone(format!(
                        "the lake {place} begins at ledger {oldest} and does not have ledger {from}"
                    )))
                }
                None => match self.ends.other_files(&lake, from).await {
                    Some(error) => Err(error),
                    None => Ok(Fetched::NotYet),
                },
            },
            Err(error @ LakeError::Content(_)) => {
                self.classify_invalid_file(&lake, from, error).await
            }
            Err(error) => Err(error),
        }
    }

    /// Decides what a file with invalid content means: the newest file may be unfinished; any other
    /// must be complete.
    async fn classify_invalid_file(
        &mut self,
        lake: &Lake,
        from: LedgerSeq,
        error: LakeError,
    ) -> Result<Fetched, LakeError> {
        self.unfinished = None;
        let batch = lake.layout.batch_of(from);
        let Some(following) = batch.last.next() else { return Err(error) };
        if lake.has(following).await? {
            return Err(error);
        }
        tracing::debug!(%error, "the newest file of the lake is not finished");
        self.unfinished = Some(batch);
        Ok(Fetched::NotYet)
    }
}

fn name_of(place: &str) -> String {
    format!("the lake {place}")
}

impl LedgerSource for LakeSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        async { Ok(self.open().await?.passphrase) }.boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        async { Ok(self.survey().await?) }.boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        async move { Ok(self.read_from(from).await?) }.boxed()
    }
}
