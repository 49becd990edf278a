//! Rows of a consumer: as they were at one moment, and as its work leaves them.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::super::columns::Family;
use super::super::database::{Batch, Snapshot, corrupt};
use super::super::{Store, StoreError};
use super::rebuild;
use super::state::Consumer;

/// What a consumer has written, as it was at one moment.
pub struct ConsumerView<'a> {
    snapshot: Snapshot<'a>,
    name: String,
    generation: u32,
}

/// What a consumer's work leaves, before it is written; reads see it already.
pub struct ConsumerEffects<'a> {
    view: ConsumerView<'a>,
    families: &'static [&'static str],
    batch: Batch<'a>,
    /// What is settled, and what may still be taken back.
    settled: Layer,
    open: Layer,
    /// Bytes of keys and values that were put and deleted.
    bytes: usize,
    is_unfinished: bool,
}

/// Changes of rows. What is put was put after the ranges were deleted.
#[derive(Default)]
struct Layer {
    /// By family and key; none deletes.
    rows: BTreeMap<(&'static str, Vec<u8>), Option<Vec<u8>>>,
    /// Family, first key, and the key before which the range ends.
    deleted: Vec<(&'static str, Vec<u8>, Vec<u8>)>,
}

/// The name of a consumer's family in the database.
pub(in super::super) fn family(consumer: &str, family: &str) -> String {
    format!("{consumer}.{family}")
}

impl ConsumerView<'_> {
    /// The value under a key.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and what the database says.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.snapshot.get_foreign(&self.family(family), &self.key(key))?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// Visits rows from a key on, in the order of keys, until `visit` says false.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and what the database says.
    pub fn scan(
        &self,
        family: &str,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let generation = self.generation.to_be_bytes();
        let mut rows = self.snapshot.foreign_rows(&self.family(family))?;
        rows.seek(self.key(from));
        while let Some((key, value)) = rows.item() {
            let Some(key) = key.strip_prefix(&generation) else { break };
            if !visit(key, value) {
                return Ok(());
            }
            rows.next();
        }
        Ok(rows.status()?)
    }

    /// Visits rows up to a key, which may be one of them, from the last to the first, until `visit` says
    /// false.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and what the database says.
    pub fn scan_back(
        &self,
        family: &str,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let generation = self.generation.to_be_bytes();
        let mut rows = self.snapshot.foreign_rows(&self.family(family))?;
        rows.seek_for_prev(self.key(from));
        while let Some((key, value)) = rows.item() {
            let Some(key) = key.strip_prefix(&generation) else { break };
            if !visit(key, value) {
                return Ok(());
            }
            rows.prev();
        }
        Ok(rows.status()?)
    }

    /// The generation to which the rows belong.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    fn family(&self, name: &str) -> String {
        family(rebuild::first(&self.name), name)
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.generation.to_be_bytes(), key].concat()
    }
}

impl Layer {
    /// What it says of a row; nothing when it does not concern it.
    fn get(&self, family: &'static str, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(changed) = self.rows.get(&(family, key.to_vec())) {
            return Some(changed.clone());
        }
        let holds = |(of, from, to): &(&'static str, Vec<u8>, Vec<u8>)| {
            *of == family && from.as_slice() <= key && key < to.as_slice()
        };
        self.deleted.iter().any(holds).then_some(None)
    }

    /// Keys from one on that are changed one by one.
    fn keys(&self, family: &'static str, from: &[u8]) -> impl Iterator<Item = &[u8]> {
        let rows = self.rows.range((family, from.to_vec())..);
        rows.take_while(move |((of, _), _)| *of == family).map(|((_, key), _)| key.as_slice())
    }

    fn delete_range(&mut self, family: &'static str, from: &[u8], to: &[u8]) {
        if from >= to {
            return;
        }
        let bounds =
            (Bound::Included((family, from.to_vec())), Bound::Excluded((family, to.to_vec())));
        let inside: Vec<_> = self.rows.range(bounds).map(|(key, _)| key.clone()).collect();
        for key in inside {
            self.rows.remove(&key);
        }
        self.deleted.push((family, from.to_vec(), to.to_vec()));
    }

    /// Lays another one over it.
    fn append(&mut self, mut later: Self) {
        for (family, from, to) in later.deleted.drain(..) {
            self.delete_range(family, &from, &to);
        }
        self.rows.append(&mut later.rows);
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.deleted.is_empty()
    }
}

impl<'a> ConsumerEffects<'a> {
    /// The value under a key, with what was put and deleted here.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and what the database says.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let own = self.own(family)?;
        match self.open.get(own, key).or_else(|| self.settled.get(own, key)) {
            Some(changed) => Ok(changed),
            None => self.view.get(family, key),
        }
    }

    /// Visits rows from a key on, in the order of keys, until `visit` says false, with what was put and deleted
    /// here.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and what the database says.
    pub fn scan(
        &self,
        family: &str,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let own = self.own(family)?;
        let generation = self.view.generation.to_be_bytes();
        let mut stored = self.view.snapshot.foreign_rows(&self.view.family(own))?;
        stored.seek(self.view.key(from));
        let (mut open, mut settled) =
            (self.open.keys(own, from).peekable(), self.settled.keys(own, from).peekable());
        loop {
            let here = stored
                .item()
                .and_then(|(key, value)| Some((key.strip_prefix(&generation)?, value)));
            let candidates =
                [here.map(|(key, _)| key), open.peek().copied(), settled.peek().copied()];
            let Some(next) = candidates.into_iter().flatten().min() else { break };
            let is_stored = candidates[0] == Some(next);
            let changed = self.open.get(own, next).or_else(|| self.settled.get(own, next));
            let goes_on = match (&changed, here) {
                (Some(Some(value)), _) => visit(next, value),
                (None, Some((key, value))) => visit(key, value),
                (Some(None), _) | (None, None) => true,
            };
            if !goes_on {
                return Ok(());
            }
            open.next_if_eq(&next);
            settled.next_if_eq(&next);
            if is_stored {
                stored.next();
            }
        }
        Ok(stored.status()?)
    }

    /// The rows as they were before anything was put or deleted here.
    pub fn before(&self) -> &ConsumerView<'a> {
        &self.view
    }

    /// Puts a value under a key.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`]
    pub fn put(
        &mut self,
        family: &str,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let (own, key, value) = (self.own(family)?, key.into(), value.into());
        self.bytes += key.len() + value.len();
        self.open.rows.insert((own, key), Some(value));
        Ok(())
    }

    /// Deletes what is under a key.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`]
    pub fn delete(&mut self, family: &str, key: impl Into<Vec<u8>>) -> Result<(), StoreError> {
        let (own, key) = (self.own(family)?, key.into());
        self.bytes += key.len();
        self.open.rows.insert((own, key), None);
        Ok(())
    }

    /// Deletes what is under the keys from `from` up to but without `to`, however much that is.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`]
    pub fn delete_range(&mut self, family: &str, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        let own = self.own(family)?;
        self.open.delete_range(own, from, to);
        Ok(())
    }

    /// Bytes of keys and values that were put and deleted here.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// There is more to do with the ledger than is to be written at once: what was left of it so far is
    /// written, and the ledger is handed over again. How far its work has got is the consumer's to note, in
    /// a row of its own.
    pub fn go_on_later(&mut self) {
        self.is_unfinished = true;
    }

    /// Whether the ledger is to be handed over again.
    pub(super) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// What was put and deleted is not taken back any more.
    pub(super) fn settle(&mut self) {
        self.settled.append(std::mem::take(&mut self.open));
    }

    /// Takes back what was put and deleted since [`Self::settle`].
    pub(super) fn take_back(&mut self) {
        self.open = Layer::default();
    }

    /// The generation to which the rows belong.
    pub(super) fn generation(&self) -> u32 {
        self.view.generation()
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.open.is_empty()
    }

    /// The batch that makes the changes.
    pub(super) fn into_batch(mut self) -> Result<Batch<'a>, StoreError> {
        self.settle();
        let Self { view, settled, mut batch, .. } = self;
        for (family, from, to) in settled.deleted {
            batch.delete_foreign_range(&view.family(family), &view.key(&from), &view.key(&to))?;
        }
        for ((family, key), value) in settled.rows {
            batch.change_foreign(&view.family(family), &view.key(&key), value.as_deref())?;
        }
        Ok(batch)
    }

    fn own(&self, family: &str) -> Result<&'static str, StoreError> {
        let own = self.families.iter().copied().find(|own| *own == family);
        own.ok_or_else(|| StoreError::UnknownFamily(self.view.family(family)))
    }
}

impl Store {
    /// What a consumer has written up to now.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`], and what the database says.
    pub fn consumer_view(&self, name: &str) -> Result<ConsumerView<'_>, StoreError> {
        let snapshot = self.database.snapshot();
        let row = snapshot.get(Family::Consumers, name)?.map(|row| Consumer::decode(&row));
        let row = row.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?;
        let generation = row.map_err(corrupt(Family::Consumers, name))?.generation;
        Ok(ConsumerView { snapshot, name: name.to_owned(), generation })
    }

    /// Nothing yet, over what a consumer has written up to now.
    pub(super) fn effects(&self, name: &str) -> Result<ConsumerEffects<'_>, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let families = self.consumers.lock().spec(name).ok_or_else(unknown)?.families;
        Ok(ConsumerEffects {
            view: self.consumer_view(name)?,
            families,
            batch: self.database.batch(),
            settled: Layer::default(),
            open: Layer::default(),
            bytes: 0,
            is_unfinished: false,
        })
    }
}
