//! Tables: rows of consumers by the types of their keys and values.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use super::rows::ConsumerView;
use super::rows::{RowFlow, Rows, RowsMut};
use crate::encoding::error::{StoreError, damaged_row};
use crate::encoding::row_codec::{KeyPrefix, RowCodec};

/// A family of a consumer's rows, or the rows of a family whose keys have one form, with the types of
/// their keys and values. Its methods fail when the database fails, and when a row that they decode
/// is damaged.
pub struct Table<K, V> {
    /// Name of the family.
    pub family: &'static str,
    skips_damaged: bool,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Table<K, V> {
    /// Returns a table whose damaged rows are errors, [`StoreError::Corrupt`].
    pub const fn new(family: &'static str) -> Self {
        Self { family, skips_damaged: false, types: PhantomData }
    }

    /// Returns the table with damaged rows read as if they were absent, for work that must go on
    /// with the others.
    pub const fn skip_damaged(self) -> Self {
        Self { skips_damaged: true, ..self }
    }
}

impl<K: RowCodec, V: RowCodec> Table<K, V> {
    /// Returns the value under a key.
    pub fn get(&self, rows: &dyn Rows, key: &K) -> Result<Option<V>, StoreError> {
        let Some(row) = rows.get(self.family, &key.encode())? else { return Ok(None) };
        let value = V::decode(&row);
        if value.is_none() && !self.skips_damaged { Err(self.damaged(key)) } else { Ok(value) }
    }

    /// Returns whether there is a row under a key.
    pub fn has(&self, rows: &dyn Rows, key: &K) -> Result<bool, StoreError> {
        Ok(rows.get(self.family, &key.encode())?.is_some())
    }

    /// Stores a value under a key.
    pub fn put(&self, rows: &mut dyn RowsMut, key: &K, value: &V) -> Result<(), StoreError> {
        rows.put(self.family, key.encode(), value.encode())
    }

    /// Stores a value unless there is a row under its key. Returns whether it was stored.
    pub fn put_new(&self, rows: &mut dyn RowsMut, key: &K, value: &V) -> Result<bool, StoreError> {
        let is_new = !self.has(rows, key)?;
        if is_new {
            self.put(rows, key, value)?;
        }
        Ok(is_new)
    }

    /// Deletes the row under a key.
    pub fn delete(&self, rows: &mut dyn RowsMut, key: &K) -> Result<(), StoreError> {
        rows.delete(self.family, key.encode())
    }

    /// Returns the first row whose key is at or after `from`.
    pub fn first(&self, rows: &dyn Rows, from: Option<&K>) -> Result<Option<(K, V)>, StoreError> {
        let mut first = None;
        self.scan_all(rows, from, |key, value| {
            first = Some((key, value));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    /// Returns the last row whose key is at or before `up_to`.
    pub fn last(&self, view: &ConsumerView<'_>, up_to: &K) -> Result<Option<(K, V)>, StoreError> {
        let mut last = None;
        view.scan_back(self.family, &up_to.encode(), |key, value| {
            self.visit_row(key, value, &mut |key, value| {
                last = Some((key, value));
                Ok::<_, StoreError>(ControlFlow::Break(()))
            })
        })?;
        Ok(last)
    }

    /// Visits the rows under a prefix in key order, beginning at the key `from`, until `visit`
    /// breaks. Returns whether it broke.
    pub fn scan(
        &self,
        rows: &dyn Rows,
        prefix: &impl KeyPrefix<K>,
        from: Option<&K>,
        visit: impl FnMut(K, V) -> RowFlow,
    ) -> Result<bool, StoreError> {
        self.walk(rows, &prefix.encode(), from, visit)
    }

    /// Visits all rows in key order, beginning at the key `from`, until `visit` breaks. Returns
    /// whether it broke.
    pub fn scan_all(
        &self,
        rows: &dyn Rows,
        from: Option<&K>,
        visit: impl FnMut(K, V) -> RowFlow,
    ) -> Result<bool, StoreError> {
        self.walk(rows, &[], from, visit)
    }

    fn walk(
        &self,
        rows: &dyn Rows,
        prefix: &[u8],
        from: Option<&K>,
        mut visit: impl FnMut(K, V) -> RowFlow,
    ) -> Result<bool, StoreError> {
        let from = from.map(RowCodec::encode).unwrap_or_default();
        let (mut key, from) = (prefix.to_vec(), from.get(prefix.len()..).unwrap_or_default());
        let flow = rows.scan_prefix(self.family, prefix, from, &mut |rest, value| {
            key.truncate(prefix.len());
            key.extend_from_slice(rest);
            self.visit_row(&key, value, &mut visit)
        });
        Ok(flow?.is_break())
    }

    /// Visits the rows under a prefix in reverse key order, beginning at the key `from`, until `visit`
    /// breaks.
    pub fn scan_back<E: From<StoreError>>(
        &self,
        view: &ConsumerView<'_>,
        prefix: &impl KeyPrefix<K>,
        from: &K,
        mut visit: impl FnMut(K, V) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let prefix = prefix.encode();
        view.scan_back(self.family, &from.encode(), |key, value| match key.starts_with(&prefix) {
            true => self.visit_row(key, value, &mut visit),
            false => Ok(ControlFlow::Break(())),
        })
    }

    fn visit_row<E: From<StoreError>>(
        &self,
        key: &[u8],
        value: &[u8],
        visit: &mut impl FnMut(K, V) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<()>, E> {
        match K::decode(key).zip(V::decode(value)) {
            Some((key, value)) => visit(key, value),
            None if self.skips_damaged => Ok(ControlFlow::Continue(())),
            None => Err(damaged_row(self.family, key).into()),
        }
    }

    /// Returns the error for the row under a key that is damaged, or that lacks what another row
    /// says of it.
    pub fn damaged(&self, key: &K) -> StoreError {
        damaged_row(self.family, &key.encode())
    }
}
