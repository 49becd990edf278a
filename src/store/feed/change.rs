//! Changes to a consumer's rows outside of its steps: changes that its users request, and later
//! results of its work. Concurrent changes are written together.

use std::sync::mpsc::sync_channel;

use crate::encoding::error::StoreError;
use crate::state::consumers::rows::ConsumerEffects;
use crate::state::consumers::states::{Change, OutcomeCallback};
use crate::state::store::Store;

impl Store {
    /// Changes rows of a consumer outside of its steps; the changes are durable when this returns.
    /// `work` sees everything written before, and no step or other change runs in between. If it
    /// succeeds, its changes are written; if it fails, none of them is. Changes that arrive while
    /// another one is being written are written together, so `work` must not wait for other
    /// changes.
    ///
    /// A build that is being rebuilt ([`Self::begin_rebuild`]) does not receive these changes.
    ///
    /// # Errors
    /// Errors of `work`; [`StoreError::UnknownConsumer`] when no consumer of this name is
    /// registered; errors of the database, after which it is unknown whether the changes were
    /// written.
    pub fn change_consumer_rows<T, E>(
        &self,
        name: &str,
        work: impl FnOnce(&mut ConsumerEffects<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let lock = self.consumers.lock_of(name);
        let lock = lock.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?;
        let (sender, receiver) = sync_channel(1);
        let change: Change = Box::new(move |effects| {
            let done = work(effects);
            match &done {
                Ok(_) => effects.set_save_point(),
                Err(_) => effects.rollback_to_save_point(),
            }
            Box::new(move |written: Result<(), StoreError>| {
                let outcome = done.and_then(|value| Ok(written.map(|()| value)?));
                // The receiver still exists: the caller waits until it receives the outcome.
                drop(sender.send(outcome));
            })
        });
        lock.waiting.lock().push(change);
        {
            let _guard = lock.acquire();
            // Empty when the previous holder of the lock has made this change as well.
            let changes = std::mem::take(&mut *lock.waiting.lock());
            if !changes.is_empty() {
                self.change_together(name, changes);
            }
        }
        let ended = || StoreError::Database("a change was not completed".to_owned());
        receiver.recv().map_err(|_| ended())?
    }

    /// Makes changes with one write. The caller must hold the lock.
    fn change_together(&self, name: &str, changes: Vec<Change>) {
        let mut effects = match self.effects(name) {
            Ok(effects) => effects,
            Err(error) => {
                tracing::error!(consumer = name, "rows cannot be changed: {error}");
                // The callbacks are dropped without an outcome, so every waiting caller gets an
                // error.
                return;
            }
        };
        let callbacks: Vec<OutcomeCallback> =
            changes.into_iter().map(|change| change(&mut effects)).collect();
        let failure = self.write_change(name, effects).err().map(|error| match error {
            StoreError::Database(reason) => reason,
            other => other.to_string(),
        });
        for callback in callbacks {
            callback(match &failure {
                None => Ok(()),
                Some(reason) => Err(StoreError::Database(reason.clone())),
            });
        }
    }

    fn write_change(&self, name: &str, effects: ConsumerEffects<'_>) -> Result<(), StoreError> {
        if effects.is_empty() {
            return Ok(());
        }
        let (name, build) = (name.to_owned(), effects.build());
        let written = self.change_consumers(effects.into_batch()?, move |known, _| {
            let consumer = known.get(&name);
            let is_same = consumer.is_some_and(|now| now.build == build);
            Ok(is_same.then(Vec::new))
        })?;
        match written {
            true => Ok(()),
            // A build is replaced only by a holder of the lock, so this is not expected.
            false => Err(StoreError::Database("the rows were rebuilt meanwhile".to_owned())),
        }
    }
}
