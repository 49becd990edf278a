//! Reads a consumer's rows from a snapshot, and buffers the changes that its work makes.

use std::collections::BTreeMap;
use std::ops::Bound;

use rocksdb::DBRawIterator;

use super::super::columns::Family;
use super::super::database::{Batch, Snapshot, corrupt};
use super::super::{Store, StoreError};
use super::rebuild;
use super::state::Consumer;

/// A snapshot of a consumer's rows.
pub struct ConsumerView<'a> {
    snapshot: Snapshot<'a>,
    name: String,
    generation: u32,
}

/// Buffered changes of a consumer's rows, which are not written yet. Reads include them.
pub struct ConsumerEffects<'a> {
    view: ConsumerView<'a>,
    families: &'static [&'static str],
    batch: Batch<'a>,
    /// Changes that will be written, and below them those that can still be discarded.
    saved: Layer,
    open: Layer,
    /// Size of the keys and values put and deleted, in bytes.
    bytes: usize,
    is_unfinished: bool,
}

/// Changes of rows. Range deletions take effect before the single rows.
#[derive(Default)]
struct Layer {
    /// Changed rows by family and key; `None` deletes the row.
    rows: BTreeMap<(&'static str, Vec<u8>), Option<Vec<u8>>>,
    /// Range deletions: family, first key (included), last key (excluded).
    deleted: Vec<(&'static str, Vec<u8>, Vec<u8>)>,
}

/// Returns the name of a consumer's family in the database.
pub(in super::super) fn family(consumer: &str, family: &str) -> String {
    format!("{consumer}.{family}")
}

impl ConsumerView<'_> {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.snapshot.get_consumer_row(&self.family(family), &self.key(key))?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// Visits all rows of a family in key order, until `visit` returns false.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn scan(
        &self,
        family: &str,
        visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.scan_prefix(family, &[], &[], visit)
    }

    /// Visits the rows whose keys begin with `prefix` in key order, beginning at the one that
    /// continues with `from`, until `visit` returns false. `visit` receives the rest of each key.
    /// Files without such rows are not searched if the prefix is a hash or an address.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let prefix = self.key(prefix);
        let rows = self.snapshot.consumer_rows_under(&self.family(family), &prefix)?;
        visit_under(rows, &prefix, from, visit)
    }

    /// Visits rows in reverse key order, beginning at a key (included), until `visit` returns
    /// false.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn scan_back(
        &self,
        family: &str,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let generation = self.generation.to_be_bytes();
        let mut rows = self.snapshot.consumer_rows(&self.family(family))?;
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

    /// Generation of the rows.
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

/// Visits the rows whose keys begin with `prefix`, beginning at the one that continues with `from`,
/// each with the rest of its key, until `visit` returns false.
fn visit_under(
    mut rows: DBRawIterator<'_>,
    prefix: &[u8],
    from: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), StoreError> {
    rows.seek([prefix, from].concat());
    while let Some((key, value)) = rows.item() {
        let Some(rest) = key.strip_prefix(prefix) else { break };
        if !visit(rest, value) {
            return Ok(());
        }
        rows.next();
    }
    Ok(rows.status()?)
}

impl Layer {
    /// Returns the change to a row, where `Some(None)` means that it is deleted; `None` when the
    /// row is not changed.
    fn get(&self, family: &'static str, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(changed) = self.rows.get(&(family, key.to_vec())) {
            return Some(changed.clone());
        }
        let holds = |(of, from, to): &(&'static str, Vec<u8>, Vec<u8>)| {
            *of == family && from.as_slice() <= key && key < to.as_slice()
        };
        self.deleted.iter().any(holds).then_some(None)
    }

    /// Returns the keys of single changed rows, beginning at a key.
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

    /// Applies later changes on top of these.
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
    /// Returns the value of a key, including buffered changes.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let own = self.own(family)?;
        match self.open.get(own, key).or_else(|| self.saved.get(own, key)) {
            Some(changed) => Ok(changed),
            None => self.view.get(family, key),
        }
    }

    /// Like [`ConsumerView::scan`], including buffered changes.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn scan(
        &self,
        family: &str,
        visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.scan_prefix(family, &[], &[], visit)
    }

    /// Like [`ConsumerView::scan_prefix`], including buffered changes.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let (own, view) = (self.own(family)?, &self.view);
        let mut stored = view.snapshot.consumer_rows_under(&view.family(own), &view.key(prefix))?;
        let from = &[prefix, from].concat();
        let generation = view.generation.to_be_bytes();
        stored.seek(view.key(from));
        let (mut open, mut saved) =
            (self.open.keys(own, from).peekable(), self.saved.keys(own, from).peekable());
        loop {
            let here = stored
                .item()
                .and_then(|(key, value)| Some((key.strip_prefix(&generation)?, value)));
            let candidates =
                [here.map(|(key, _)| key), open.peek().copied(), saved.peek().copied()];
            let Some(next) = candidates.into_iter().flatten().min() else { break };
            let is_stored = candidates[0] == Some(next);
            let changed = self.open.get(own, next).or_else(|| self.saved.get(own, next));
            let Some(rest) = next.strip_prefix(prefix) else { break };
            let keep_going = match (&changed, here) {
                (Some(Some(value)), _) => visit(rest, value),
                (None, Some((_, value))) => visit(rest, value),
                (Some(None), _) | (None, None) => true,
            };
            if !keep_going {
                return Ok(());
            }
            open.next_if_eq(&next);
            saved.next_if_eq(&next);
            if is_stored {
                stored.next();
            }
        }
        Ok(stored.status()?)
    }

    /// Returns the rows without buffered changes.
    pub fn without_changes(&self) -> &ConsumerView<'a> {
        &self.view
    }

    /// Sets the value of a key.
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

    /// Deletes a key.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`]
    pub fn delete(&mut self, family: &str, key: impl Into<Vec<u8>>) -> Result<(), StoreError> {
        let (own, key) = (self.own(family)?, key.into());
        self.bytes += key.len();
        self.open.rows.insert((own, key), None);
        Ok(())
    }

    /// Deletes all keys from `from` (included) to `to` (excluded) with one range deletion.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`]
    pub fn delete_range(&mut self, family: &str, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        let own = self.own(family)?;
        self.open.delete_range(own, from, to);
        Ok(())
    }

    /// Returns the size of the keys and values put and deleted, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Marks the current ledger as unfinished, when there is more to do with it than should be
    /// written at once: the changes so far are written, and the ledger is passed to the consumer
    /// again. The consumer must record how far it has got in a row of its own.
    pub fn mark_unfinished(&mut self) {
        self.is_unfinished = true;
    }

    /// Returns whether the current ledger must be passed to the consumer again.
    pub(super) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Makes the changes so far final: [`Self::rollback_to_save_point`] no longer discards them.
    pub(super) fn set_save_point(&mut self) {
        self.saved.append(std::mem::take(&mut self.open));
    }

    /// Discards the changes since the last [`Self::set_save_point`].
    pub(super) fn rollback_to_save_point(&mut self) {
        self.open = Layer::default();
    }

    /// Generation of the rows.
    pub(super) fn generation(&self) -> u32 {
        self.view.generation()
    }

    /// Returns whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.saved.is_empty() && self.open.is_empty()
    }

    /// Converts the changes into a write batch.
    pub(super) fn into_batch(mut self) -> Result<Batch<'a>, StoreError> {
        self.set_save_point();
        let Self { view, saved, mut batch, .. } = self;
        for (family, from, to) in saved.deleted {
            batch.delete_consumer_range(&view.family(family), &view.key(&from), &view.key(&to))?;
        }
        for ((family, key), value) in saved.rows {
            batch.change_consumer_row(&view.family(family), &view.key(&key), value.as_deref())?;
        }
        Ok(batch)
    }

    fn own(&self, family: &str) -> Result<&'static str, StoreError> {
        let own = self.families.iter().copied().find(|own| *own == family);
        own.ok_or_else(|| StoreError::UnknownFamily(self.view.family(family)))
    }
}

impl Store {
    /// Takes a snapshot of a consumer's rows.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`], and errors of the database.
    pub fn consumer_view(&self, name: &str) -> Result<ConsumerView<'_>, StoreError> {
        let snapshot = self.database.snapshot();
        let row = snapshot.get(Family::Consumers, name)?.map(|row| Consumer::decode(&row));
        let row = row.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?;
        let generation = row.map_err(corrupt(Family::Consumers, name))?.generation;
        Ok(ConsumerView { snapshot, name: name.to_owned(), generation })
    }

    /// Returns empty changes on top of a snapshot of a consumer's rows.
    pub(super) fn effects(&self, name: &str) -> Result<ConsumerEffects<'_>, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let families = self.consumers.lock().spec(name).ok_or_else(unknown)?.families;
        Ok(ConsumerEffects {
            view: self.consumer_view(name)?,
            families,
            batch: self.database.batch(),
            saved: Layer::default(),
            open: Layer::default(),
            bytes: 0,
            is_unfinished: false,
        })
    }
}
