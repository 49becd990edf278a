//! Finds the oldest ledger that a server actually serves. Some servers report an older one, because
//! the component that answers `getHealth` and the one that keeps ledgers are not the same.

use orrery_ledger::domain::{LedgerSeq, SourceError};

use super::RpcSource;
use super::answers::window_of;
use super::call::{CallError, INTERNAL, REFUSED_PARAMETERS};

impl RpcSource {
    /// Returns the first ledger that the server serves, where `reported` is the oldest that it reports.
    /// Assumes that missing ledgers are the oldest of its window. Takes one request when the report
    /// is right; when it is wrong, a binary search takes one request for each halving of the
    /// window.
    pub(super) async fn first_served(
        &mut self,
        reported: LedgerSeq,
    ) -> Result<LedgerSeq, SourceError> {
        let Some(mut has) = self.window.latest else { return Ok(reported) };
        let found = match self.first_from(reported).await? {
            Some(found) => found,
            // When the newest ledger is not served either, there is nothing to search for.
            None if self.first_from(has).await?.is_none() => return Ok(reported),
            None => {
                let mut lacks = reported;
                while has.0.saturating_sub(lacks.0) > 1 {
                    let middle = LedgerSeq(lacks.0 + (has.0 - lacks.0) / 2);
                    match self.first_from(middle).await? {
                        Some(found) if found > middle => {
                            has = found;
                            break;
                        }
                        Some(_) => has = middle,
                        None => lacks = middle,
                    }
                }
                has
            }
        };
        if found > reported {
            tracing::warn!(
                "{} says that it begins at ledger {reported}, but the first ledger that it has is {found}: \
                 following begins there",
                self.server.name()
            );
        }
        Ok(found)
    }

    /// Returns the first ledger in the response to a request for ledgers from `from` on; `None`
    /// when the server rejects the request or returns no ledger.
    async fn first_from(&mut self, from: LedgerSeq) -> Result<Option<LedgerSeq>, SourceError> {
        match self.request_page(from, 1).await {
            Ok(page) if page.ledgers.is_empty() && page.fault.is_some() => Ok(Some(from)),
            Ok(page) => {
                let found = page.ledgers.iter().map(|ledger| ledger.sequence);
                Ok(found.filter(|found| *found >= from).min())
            }
            Err(CallError::Refused { code, message, .. })
                if code == INTERNAL || REFUSED_PARAMETERS.contains(&code) =>
            {
                // Some servers name their oldest ledger in the error message.
                Ok(window_of(&message).map(|(oldest, _)| oldest).filter(|oldest| *oldest > from))
            }
            Err(error) => Err(error.into()),
        }
    }
}
