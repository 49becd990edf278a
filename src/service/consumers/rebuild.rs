//! Rebuilds a consumer's rows or the recorded signatures, in a running service or without one.

use std::time::Duration;

use crate::control::{RebuildReport, RebuildRequest};
use crate::export;
use crate::service::Node;
use crate::service::signatures::SIGNATURES;
use crate::store::{Losses, StoreError};

/// Why the export cannot be rebuilt, as text that follows its name.
const EXPORT_NOT_REBUILDABLE: &str =
    "its output is outside this store: set export.to to another destination";

/// Longest time that a step waits for another thread.
const STEP: Duration = Duration::from_millis(200);

impl Node {
    /// Begins to rebuild a consumer's rows, or the recorded signatures, if that is requested and no
    /// rebuild is under way. Returns the progress; when no rebuild runs and none was requested,
    /// with the digest of a built-in consumer's rows.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when no consumer of this name is registered;
    /// [`StoreError::NotRebuilt`] when the consumer cannot be rebuilt;
    /// [`StoreError::RebuildLoses`] when the request does not allow what would be lost; errors of
    /// the database.
    pub fn rebuild(&self, request: &RebuildRequest) -> Result<RebuildReport, StoreError> {
        let &RebuildRequest { ref name, begin, allow_loss } = request;
        if name == SIGNATURES {
            if begin {
                self.signatures().begin(self.store(), self.trust())?;
            }
            return self.signatures().report();
        }
        if name == export::CONSUMER {
            return Err(StoreError::NotRebuilt(name.clone(), EXPORT_NOT_REBUILDABLE));
        }
        let known = self.consumers().iter().find(|it| it.spec().name == name);
        if let Some(reason) = known.and_then(|it| it.cannot_be_rebuilt()) {
            return Err(StoreError::NotRebuilt(name.clone(), reason));
        }
        if begin {
            let losses = if allow_loss { Losses::Accepted } else { Losses::Refused };
            self.store().begin_rebuild(name, losses)?;
        }
        let consumer = self.store().consumer(name);
        let consumer = consumer.ok_or_else(|| StoreError::UnknownConsumer(name.clone()))?;
        let running = consumer.rebuild.is_some();
        let digest = if known.is_some() && !begin && !running {
            Some(self.store().consumer_digest(name)?)
        } else {
            None
        };
        Ok(RebuildReport {
            running,
            digest,
            done: consumer.rebuild.map_or(consumer.place, |progress| progress.done),
            of: consumer.rebuild.map_or(consumer.place, |progress| progress.target),
            lost: consumer.lost,
        })
    }

    /// Runs one step of what is being rebuilt, for use without a running service.
    /// Returns whether the rebuild is still under way.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when it is not one of the built-in consumers; errors of the
    /// database.
    pub fn rebuild_step(&self, name: &str) -> Result<bool, StoreError> {
        if name == SIGNATURES {
            return Ok(self.signatures().wait(STEP));
        }
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let consumer = self.consumers().iter().find(|it| it.spec().name == name);
        self.store().step(&**consumer.ok_or_else(unknown)?)?;
        Ok(self.store().consumer(name).is_some_and(|it| it.rebuild.is_some()))
    }
}
