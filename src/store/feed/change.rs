//! Rows of a consumer that are written outside of its steps: what its users change, and what comes of its
//! work later. Those that come at once are written together.

use std::sync::mpsc::sync_channel;

use parking_lot::{Mutex, MutexGuard};

use super::super::{Store, StoreError};
use super::rows::ConsumerEffects;

/// Makes one change, and returns who is to be told whether it was written.
type Change = Box<dyn FnOnce(&mut ConsumerEffects<'_>) -> Told + Send>;
type Told = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Whose turn it is to change rows of one consumer: a step, or changes from outside.
#[derive(Default)]
pub(in super::super) struct Turn {
    /// Held from the first look at the rows until what follows from it is on disk.
    changing: Mutex<()>,
    /// Changes that wait for the turn.
    waiting: Mutex<Vec<Change>>,
}

impl Turn {
    /// Waits for the turn, and keeps it until what is returned is dropped.
    pub(super) fn take(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }
}

impl Store {
    /// Changes rows of a consumer outside of its steps, on disk when this returns. `work` sees all that was
    /// written before, and no step and no other change comes in between; what it leaves is written, or, when
    /// it fails, nothing of it is. Changes that come while another one is being written are written
    /// together, so it must not wait for others.
    ///
    /// A generation that is being built anew ([`Self::begin_rebuild`]) does not get these changes.
    ///
    /// # Errors
    /// What `work` says; [`StoreError::UnknownConsumer`] when none of this name is registered; what the
    /// database says, and then nobody knows whether it was written.
    pub fn change_consumer_rows<T, E>(
        &self,
        name: &str,
        work: impl FnOnce(&mut ConsumerEffects<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let turn = self.consumers.turn(name);
        let turn = turn.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?;
        let (tell, told) = sync_channel(1);
        let change: Change = Box::new(move |effects| {
            let done = work(effects);
            match &done {
                Ok(_) => effects.settle(),
                Err(_) => effects.take_back(),
            }
            Box::new(move |written: Result<(), StoreError>| {
                let outcome = done.and_then(|value| Ok(written.map(|()| value)?));
                // Whoever waits for it does so until it is told.
                drop(tell.send(outcome));
            })
        });
        turn.waiting.lock().push(change);
        {
            let _turn = turn.take();
            // Empty when whoever had the turn before has made this change, too.
            let changes = std::mem::take(&mut *turn.waiting.lock());
            if !changes.is_empty() {
                self.change_together(name, changes);
            }
        }
        let ended = || StoreError::Database("a change was given up half way".to_owned());
        told.recv().map_err(|_| ended())?
    }

    /// Makes changes with one write. To be called by whoever has the turn.
    fn change_together(&self, name: &str, changes: Vec<Change>) {
        let mut effects = match self.effects(name) {
            Ok(effects) => effects,
            Err(error) => {
                tracing::error!(consumer = name, "rows cannot be changed: {error}");
                // Nobody is told, and so everybody that the changes are given up.
                return;
            }
        };
        let told: Vec<Told> = changes.into_iter().map(|change| change(&mut effects)).collect();
        let failure = self.write_change(name, effects).err().map(|error| match error {
            StoreError::Database(reason) => reason,
            other => other.to_string(),
        });
        for tell in told {
            tell(match &failure {
                None => Ok(()),
                Some(reason) => Err(StoreError::Database(reason.clone())),
            });
        }
    }

    fn write_change(&self, name: &str, effects: ConsumerEffects<'_>) -> Result<(), StoreError> {
        if effects.is_empty() {
            return Ok(());
        }
        let (name, generation) = (name.to_owned(), effects.generation());
        let written = self.change_consumers(effects.into_batch()?, move |known, _| {
            let consumer = known.get(&name);
            let is_same = consumer.is_some_and(|now| now.generation == generation);
            Ok(is_same.then(Vec::new))
        })?;
        match written {
            true => Ok(()),
            // Generations change with the turn alone.
            false => Err(StoreError::Database("the rows were built anew meanwhile".to_owned())),
        }
    }
}
