//! A lake as a source to follow: reads ahead, and tells a file that is not finished from a damaged one.

use std::pin::pin;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};

use super::{Lake, LakeError, PARALLEL_FILES};
use crate::domain::{LedgerRange, LedgerSeq};
use crate::source::follow::{Fetched, LedgerSource, SourceError};

/// Follows a lake to its end and waits there for new files.
pub struct LakeSource {
    lake: Lake,
    /// Ends of the lake when it was last looked at.
    range: Option<LedgerRange>,
}

impl LakeSource {
    /// Follows `lake`.
    pub fn new(lake: Lake) -> Self {
        Self { lake, range: None }
    }

    async fn survey(&mut self) -> Result<Option<LedgerRange>, LakeError> {
        let known = self.range.map_or(LedgerSeq::FIRST, |range| range.last);
        let Some(newest) = self.lake.newest(known).await? else { return Ok(None) };
        let oldest = match self.range {
            Some(range) if self.lake.has(range.first).await? => range.first,
            _ => self.lake.oldest(newest).await?,
        };
        self.range = Some(LedgerRange { first: oldest, last: newest });
        Ok(self.range)
    }

    async fn read_from(&mut self, from: LedgerSeq) -> Result<Fetched, LakeError> {
        let batch = self.lake.layout.batch_of(from);
        let ahead = self.lake.layout.ledgers_per_batch().saturating_mul(PARALLEL_FILES as u32);
        let last = LedgerSeq(batch.first.0.saturating_add(ahead - 1));
        let mut ledgers = Vec::new();
        let mut stream = pin!(self.lake.read(LedgerRange { first: from, last }));
        while let Some(item) = stream.next().await {
            match item {
                Ok(ledger) => ledgers.push(ledger),
                // What came before it is good; the fault is met again, as the first, next time.
                Err(_) if !ledgers.is_empty() => break,
                Err(LakeError::Gap { .. }) => return Ok(Fetched::NotYet),
                Err(error @ (LakeError::Content { .. } | LakeError::OtherLedgers { .. })) => {
                    return self.judge(batch, error).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Fetched::Ledgers(ledgers))
    }

    /// The newest file may still be on its way; any other must be whole.
    async fn judge(&self, batch: LedgerRange, error: LakeError) -> Result<Fetched, LakeError> {
        let Some(following) = batch.last.next() else { return Err(error) };
        if self.lake.has(following).await? {
            return Err(error);
        }
        tracing::debug!(%error, "the newest file of the lake is not finished");
        Ok(Fetched::NotYet)
    }
}

impl LedgerSource for LakeSource {
    fn name(&self) -> String {
        format!("the lake {}", self.lake.store.place(""))
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        std::future::ready(Ok(self.lake.passphrase.clone())).boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        async { Ok(self.survey().await?) }.boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        async move { Ok(self.read_from(from).await?) }.boxed()
    }
}

impl From<LakeError> for SourceError {
    fn from(error: LakeError) -> Self {
        match error {
            LakeError::WrongNetwork { .. } | LakeError::Manifest { .. } => {
                Self::Fatal(error.to_string())
            }
            _ => Self::Retryable(error.to_string()),
        }
    }
}
