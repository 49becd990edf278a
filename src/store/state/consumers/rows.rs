//! Reads a consumer's rows from a snapshot, and buffers the changes that its work makes. Both give access
//! by family and bytes, so that the code that reads rows for a step and for a request is the same.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use super::consumer::Consumer;
use super::spec::{ConsumerSpec, first_build};
use crate::db::database::{Batch, Database};
use crate::db::snapshot::Snapshot;
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

/// Whether a visit of rows continues, or breaks because it has all that it needs.
pub type RowFlow = Result<ControlFlow<()>, StoreError>;

/// Read access to the rows of a feed consumer. Of a family that the consumer lacks, they are
/// [`StoreError::UnknownFamily`].
pub trait Rows {
    /// Returns the value under a key.
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the rows of a family whose keys begin with `prefix` in key order, starting at the one
    /// that continues with `from`, until `visit` breaks. `visit` receives the rest of each key.
    /// Files without such rows are not searched if the prefix is a hash or an address.
    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> RowFlow;
}

/// Write access to the rows of a feed consumer. Reads return earlier changes.
pub trait RowsMut: Rows {
    /// Stores a value under a key.
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError>;

    /// Deletes the row under a key.
    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError>;
}

/// Limits of all that is read from one [`ConsumerView`].
pub struct RowBounds<'a> {
    /// Maximum number of rows.
    pub rows: u64,
    /// Maximum size of their keys and values, in bytes.
    pub bytes: u64,
    /// Returns whether reading must end now, because its time is over or the client has gone.
    /// Called once every [`RowBounds::ROWS_BETWEEN_CHECKS`] rows.
    pub interrupted: Box<dyn Fn() -> bool + 'a>,
}

impl RowBounds<'_> {
    /// Number of rows between two calls of [`RowBounds::interrupted`].
    pub const ROWS_BETWEEN_CHECKS: u64 = 64;

    /// No limits: for reads of the service itself.
    #[must_use]
    pub fn none() -> Self {
        Self { rows: u64::MAX, bytes: u64::MAX, interrupted: Box::new(|| false) }
    }
}

/// A snapshot of a consumer's rows, from which no more is read than its bounds allow. Beyond them,
/// rows are still found by their keys, and walks end as after the last row: [`Self::is_cut`].
pub struct ConsumerView<'a> {
    snapshot: Snapshot<'a>,
    name: String,
    build: u32,
    bounds: RowBounds<'a>,
    read: ReadSoFar,
}

/// What was read from a view.
#[derive(Default)]
struct ReadSoFar {
    rows: Cell<u64>,
    bytes: Cell<u64>,
    is_cut: Cell<bool>,
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
    is_taken: bool,
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
pub(crate) fn family(consumer: &str, family: &str) -> String {
    format!("{consumer}.{family}")
}

impl<'a> ConsumerView<'a> {
    /// Takes a snapshot of a consumer's rows.
    pub(crate) fn take(
        database: &'a Database,
        name: &str,
        bounds: RowBounds<'a>,
    ) -> Result<Self, StoreError> {
        let snapshot = database.snapshot();
        let row = snapshot.get(Family::Consumers, name)?.map(|row| Consumer::decode(&row));
        let row = row.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?;
        let build = row.map_err(corrupt(Family::Consumers, name))?.build;
        Ok(Self { snapshot, name: name.to_owned(), build, bounds, read: ReadSoFar::default() })
    }

    /// Returns whether a walk has ended early, or a row was read beyond the bounds.
    pub fn is_cut(&self) -> bool {
        self.read.is_cut.get()
    }

    /// Counts a row of the view, or as much that was read elsewhere for the same answer, and returns
    /// whether the bounds allow it.
    pub fn count(&self, bytes: usize) -> bool {
        let Self { bounds, read, .. } = self;
        let rows = read.rows.get() + 1;
        read.rows.set(rows);
        read.bytes.set(read.bytes.get() + bytes as u64);
        let is_over = rows > bounds.rows
            || read.bytes.get() > bounds.bytes
            || (rows.is_multiple_of(RowBounds::ROWS_BETWEEN_CHECKS) && (bounds.interrupted)());
        read.is_cut.set(read.is_cut.get() || is_over);
        !read.is_cut.get()
    }

    /// Visits all rows of a family in key order.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and errors of the database.
    pub fn scan(
        &self,
        family: &str,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreError> {
        self.scan_prefix(family, &[], &[], &mut |key, value| {
            visit(key, value);
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)
    }

    /// Visits rows in reverse key order, beginning at a key (included), until `visit` breaks.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], errors of the database and of `visit`.
    pub fn scan_back<E: From<StoreError>>(
        &self,
        family: &str,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let build = self.build.to_be_bytes();
        let mut rows = self.snapshot.consumer_rows(&self.family(family))?;
        rows.seek_for_prev(self.key(from));
        while let Some((key, value)) = rows.item() {
            let Some(key) = key.strip_prefix(&build) else { break };
            if !self.count(key.len() + value.len()) {
                break;
            }
            if visit(key, value)?.is_break() {
                break;
            }
            rows.prev();
        }
        Ok(rows.status().map_err(StoreError::from)?)
    }

    /// Build of the rows.
    pub(crate) fn build(&self) -> u32 {
        self.build
    }

    fn family(&self, name: &str) -> String {
        family(first_build(&self.name), name)
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.build.to_be_bytes(), key].concat()
    }
}

impl Rows for ConsumerView<'_> {
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let row = self.snapshot.get_consumer_row(&self.family(family), &self.key(key))?;
        self.count(row.as_ref().map_or(0, |row| row.len()));
        Ok(row.map(|row| row.to_vec()))
    }

    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> RowFlow {
        let prefix = self.key(prefix);
        let mut rows = self.snapshot.consumer_rows_under(&self.family(family), &prefix)?;
        rows.seek([&prefix, from].concat());
        while let Some((key, value)) = rows.item() {
            let Some(rest) = key.strip_prefix(prefix.as_slice()) else { break };
            if !self.count(key.len() + value.len()) {
                break;
            }
            if visit(rest, value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            rows.next();
        }
        Ok(rows.status().map(ControlFlow::Continue)?)
    }
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

    /// Moves the changes of rows of a view to a write batch.
    fn add_to(self, view: &ConsumerView<'_>, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        for (family, from, to) in self.deleted {
            batch.delete_consumer_range(&view.family(family), &view.key(&from), &view.key(&to))?;
        }
        for ((family, key), value) in self.rows {
            batch.change_consumer_row(&view.family(family), &view.key(&key), value.as_deref())?;
        }
        Ok(())
    }
}

impl<'a> ConsumerEffects<'a> {
    /// Creates empty changes on top of `view`, to be written with `batch`.
    pub(crate) fn new(
        view: ConsumerView<'a>,
        families: &'static [&'static str],
        batch: Batch<'a>,
    ) -> Self {
        let (saved, open) = (Layer::default(), Layer::default());
        Self { view, families, batch, saved, open, bytes: 0, is_unfinished: false, is_taken: false }
    }

    /// Returns the rows without buffered changes.
    pub fn without_changes(&self) -> &ConsumerView<'a> {
        &self.view
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

    /// Like [`Self::mark_unfinished`], when the rows have all that the current ledger has, and what is
    /// left to do concerns other ledgers: [`crate::Store::has_taken`] returns true for it.
    pub fn mark_taken(&mut self) {
        self.mark_unfinished();
        self.is_taken = true;
    }

    /// Returns whether the rows have all that the current ledger has, although it is unfinished.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Returns whether the current ledger must be passed to the consumer again.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Makes the changes so far final: [`Self::rollback_to_save_point`] no longer discards them.
    pub(crate) fn set_save_point(&mut self) {
        self.saved.append(std::mem::take(&mut self.open));
    }

    /// Discards the changes since the last [`Self::set_save_point`].
    pub(crate) fn rollback_to_save_point(&mut self) {
        self.open = Layer::default();
    }

    /// Build of the rows.
    pub(crate) fn build(&self) -> u32 {
        self.view.build()
    }

    /// Returns whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.saved.is_empty() && self.open.is_empty()
    }

    /// Converts the changes into a write batch.
    pub(crate) fn into_batch(mut self) -> Result<Batch<'a>, StoreError> {
        self.set_save_point();
        let Self { view, saved, mut batch, .. } = self;
        saved.add_to(&view, &mut batch)?;
        Ok(batch)
    }

    /// Moves the changes to a write batch.
    pub(crate) fn add_to(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        self.set_save_point();
        std::mem::take(&mut self.saved).add_to(&self.view, batch)
    }

    fn own(&self, family: &str) -> Result<&'static str, StoreError> {
        let own = self.families.iter().copied().find(|own| *own == family);
        own.ok_or_else(|| StoreError::UnknownFamily(self.view.family(family)))
    }
}

/// With the buffered changes.
impl Rows for ConsumerEffects<'_> {
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let own = self.own(family)?;
        match self.open.get(own, key).or_else(|| self.saved.get(own, key)) {
            Some(changed) => Ok(changed),
            None => self.view.get(family, key),
        }
    }

    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> RowFlow {
        let (own, view) = (self.own(family)?, &self.view);
        let mut stored = view.snapshot.consumer_rows_under(&view.family(own), &view.key(prefix))?;
        let from = &[prefix, from].concat();
        let build = view.build.to_be_bytes();
        stored.seek(view.key(from));
        let (mut open, mut saved) =
            (self.open.keys(own, from).peekable(), self.saved.keys(own, from).peekable());
        loop {
            let here =
                stored.item().and_then(|(key, value)| Some((key.strip_prefix(&build)?, value)));
            let candidates =
                [here.map(|(key, _)| key), open.peek().copied(), saved.peek().copied()];
            let Some(next) = candidates.into_iter().flatten().min() else { break };
            let is_stored = candidates[0] == Some(next);
            let changed = self.open.get(own, next).or_else(|| self.saved.get(own, next));
            let Some(rest) = next.strip_prefix(prefix) else { break };
            let flow = match (&changed, here) {
                (Some(Some(value)), _) => visit(rest, value)?,
                (None, Some((_, value))) => visit(rest, value)?,
                (Some(None), _) | (None, None) => ControlFlow::Continue(()),
            };
            if flow.is_break() {
                return Ok(flow);
            }
            open.next_if_eq(&next);
            saved.next_if_eq(&next);
            if is_stored {
                stored.next();
            }
        }
        Ok(stored.status().map(ControlFlow::Continue)?)
    }
}

impl RowsMut for ConsumerEffects<'_> {
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        let own = self.own(family)?;
        self.bytes += key.len() + value.len();
        self.open.rows.insert((own, key), Some(value));
        Ok(())
    }

    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError> {
        let own = self.own(family)?;
        self.bytes += key.len();
        self.open.rows.insert((own, key), None);
        Ok(())
    }
}

/// Returns the database names of the column families of all consumers.
pub(crate) fn families(consumers: &[ConsumerSpec]) -> Vec<String> {
    let of = |spec: &ConsumerSpec| -> Vec<String> {
        spec.families.iter().map(|own| family(spec.name, own)).collect()
    };
    consumers.iter().flat_map(of).collect()
}
