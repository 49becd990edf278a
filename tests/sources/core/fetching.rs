//! A source that is polled as a follower polls it.

use std::time::Instant;

use orrery::domain::{Fetched, LedgerSeq, LedgerSource, SourceError};
use orrery::source::captive_core::{CoreSettings, CoreSource};

use super::stand_in::CHAIN;
use orrery_testkit::wait::LIMIT;

/// A source, and the ledger that is requested from it next.
pub struct Fetching {
    pub source: CoreSource,
    pub next: u32,
    /// Reasons of all errors that the source returned.
    pub errors: Vec<String>,
    pub ended: bool,
}

impl Fetching {
    pub async fn open(settings: CoreSettings) -> Self {
        let next = settings.first.unwrap().0;
        let source = CoreSource::open(settings).await.unwrap();
        Self { source, next, errors: Vec::new(), ended: false }
    }

    /// Polls once. Ledgers must be those of the chain and consecutive. Returns whether there were
    /// any.
    pub async fn poll(&mut self) -> bool {
        match self.source.fetch(LedgerSeq(self.next)).await {
            Ok(Fetched::Ledgers(ledgers)) => {
                for ledger in ledgers {
                    assert_eq!(ledger.sequence.0, self.next, "contiguous");
                    assert!(ledger.xdr == CHAIN.ledger(self.next), "the ledger as it was closed");
                    self.next += 1;
                }
                return true;
            }
            Ok(Fetched::NotYet) => {}
            Ok(Fetched::Ended) => self.ended = true,
            Err(SourceError::Retryable(reason) | SourceError::RetryAfter { reason, .. }) => {
                self.errors.push(reason);
            }
            Err(SourceError::Gone(reason) | SourceError::Fatal(reason)) => {
                self.errors.push(reason);
                self.ended = true;
            }
        }
        false
    }

    /// Polls until ledger `last` was fetched or the source has ended.
    pub async fn poll_until(&mut self, last: u32) -> &mut Self {
        let start = Instant::now();
        while self.next <= last && !self.ended {
            self.poll().await;
            assert!(start.elapsed() < LIMIT, "at ledger {}: {:?}", self.next, self.errors);
        }
        self
    }

    /// The only error that occurred.
    #[track_caller]
    pub fn only_error(&self) -> &str {
        assert_eq!(self.errors.len(), 1, "{:#?}", self.errors);
        &self.errors[0]
    }
}
