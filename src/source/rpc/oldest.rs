//! Where a server really begins. Some name an oldest ledger that they do not yield, because the part that
//! answers `getHealth` and the part that keeps ledgers are not the same.

use super::RpcSource;
use super::answers::window_of;
use super::call::{CallError, INTERNAL, REFUSED_PARAMETERS};
use crate::domain::LedgerSeq;
use crate::source::follow::SourceError;

impl RpcSource {
    /// The first ledger that the server yields, where it says that it begins at `said`: what it lacks is
    /// assumed to lie at the old end. Takes one question when the server is right, and one for each time
    /// that its window can be halved when it is wrong.
    pub(super) async fn first_yielded(
        &mut self,
        said: LedgerSeq,
    ) -> Result<LedgerSeq, SourceError> {
        let Some(mut has) = self.window.latest else { return Ok(said) };
        let found = match self.first_from(said).await? {
            Some(found) => found,
            // Nothing can be learnt from a server that does not yield its newest ledger either.
            None if self.first_from(has).await?.is_none() => return Ok(said),
            None => {
                let mut lacks = said;
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
        if found > said {
            tracing::warn!(
                "{} says that it begins at ledger {said}, but the first ledger that it has is {found}: \
                 following begins there",
                self.server.name()
            );
        }
        Ok(found)
    }

    /// The first ledger of an answer to a question for ledgers from `from` on; none when the server
    /// refuses or yields none.
    async fn first_from(&mut self, from: LedgerSeq) -> Result<Option<LedgerSeq>, SourceError> {
        match self.ask_for(from, 1).await {
            Ok(page) if page.ledgers.is_empty() && page.fault.is_some() => Ok(Some(from)),
            Ok(page) => {
                let found = page.ledgers.iter().map(|ledger| ledger.sequence);
                Ok(found.filter(|found| *found >= from).min())
            }
            Err(CallError::Refused { code, message, .. })
                if code == INTERNAL || REFUSED_PARAMETERS.contains(&code) =>
            {
                // Some say here where they begin.
                Ok(window_of(&message).map(|(oldest, _)| oldest).filter(|oldest| *oldest > from))
            }
            Err(error) => Err(error.into()),
        }
    }
}
