//! What a source of ledgers is, and what it answers. Does not depend on any source.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{LedgerRange, LedgerSeq, RawLedger};

/// A source of the ledgers of one network.
pub trait LedgerSource: Send {
    /// Returns the name of the source for messages, with its path or address.
    fn name(&self) -> String;

    /// Returns the passphrase of the source's network; `None` when the source does not report one.
    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>>;

    /// Returns the oldest and the newest ledger that the source has; `None` when it has none.
    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>>;

    /// Returns the first ledger that the source yields, when its reported range begins at `reported`.
    /// Called only to determine the start of a task that begins at the oldest ledger.
    fn first_available(
        &mut self,
        reported: LedgerSeq,
    ) -> BoxFuture<'_, Result<LedgerSeq, SourceError>> {
        async move { Ok(reported) }.boxed()
    }

    /// Returns whether the source may yield ledgers before its reported range, so that the follower
    /// asks for them anyway.
    fn may_reach_back(&self) -> bool {
        false
    }

    /// Returns whether the source replays old ledgers on request, so that a ledger it does not have
    /// yet may still come.
    fn replays(&self) -> bool {
        false
    }

    /// Returns the interval between polls at the tip, where that of the follower would be too
    /// frequent; `None` uses that.
    fn poll(&self) -> Option<Duration> {
        None
    }

    /// Returns some ledgers from `from` on. The follower sorts them, drops repeats and asks again
    /// for missing ones. Dropping the future must not lose ledgers.
    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>>;
}

/// Answer to [`LedgerSource::fetch`].
#[derive(Debug)]
pub enum Fetched {
    /// Some ledgers, in any order.
    Ledgers(Vec<RawLedger>),
    /// The network has not closed that ledger yet, or the source does not have it yet.
    NotYet,
    /// The source will never have more.
    Ended,
}

/// Error of a source. Each message is a whole sentence.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Temporary failure; a retry may succeed.
    #[error("{0}")]
    Retryable(String),
    /// Temporary failure with a minimum delay that the source asks for.
    #[error("{reason}")]
    RetryAfter {
        /// Message, a whole sentence.
        reason: String,
        /// Minimum delay before the next request.
        delay: Duration,
    },
    /// The source no longer has the requested ledger; another source may have it.
    #[error("{0}")]
    Gone(String),
    /// The source will never answer.
    #[error("{0}")]
    Fatal(String),
}
