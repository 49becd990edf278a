//! One step of a consumer: the next ledgers, what its work leaves of them, and one write with its cursor.

use std::collections::BTreeMap;

use super::super::columns::Family;
use super::super::database::{Snapshot, corrupt};
use super::super::{Store, StoreError};
use super::FedLedger;
use super::state::Consumer;
use crate::domain::{LedgerRange, LedgerSeq, LedgerSet};

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumed {
    /// There is no ledger after the consumer's cursor.
    Nothing,
    /// Its cursor was moved past so many ledgers, those that are lost to it among them.
    Ledgers(u64),
    /// Some of them were lost to it meanwhile, or it has moved: nothing was written. To be tried again.
    Again,
}

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
    /// By family and key; none deletes.
    rows: BTreeMap<(&'static str, Vec<u8>), Option<Vec<u8>>>,
    lost: LedgerSet,
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

    fn family(&self, name: &str) -> String {
        family(super::rebuild::first(&self.name), name)
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.generation.to_be_bytes(), key].concat()
    }
}

impl ConsumerEffects<'_> {
    /// The value under a key, with what was put and deleted here.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`], and what the database says.
    pub fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.rows.get(&(self.own(family)?, key.to_vec())) {
            Some(changed) => Ok(changed.clone()),
            None => self.view.get(family, key),
        }
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
        self.rows.insert((self.own(family)?, key.into()), Some(value.into()));
        Ok(())
    }

    /// Deletes what is under a key.
    ///
    /// # Errors
    /// [`StoreError::UnknownFamily`]
    pub fn delete(&mut self, family: &str, key: impl Into<Vec<u8>>) -> Result<(), StoreError> {
        self.rows.insert((self.own(family)?, key.into()), None);
        Ok(())
    }

    /// A ledger cannot be worked with: something that the consumer needs of it was never stored.
    pub fn lose(&mut self, ledger: LedgerSeq) {
        self.lost.insert(LedgerRange { first: ledger, last: ledger });
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

    /// Hands a consumer the ledgers after its cursor, `most` places at a time, and writes what `work` leaves
    /// together with the cursor: all of it or nothing. Ledgers that are lost to it are passed over.
    ///
    /// # Errors
    /// What `work` says; [`StoreError::UnknownConsumer`] when none of this name is registered; what the
    /// database says. Then nothing was written, or nobody knows, and the next call begins where the cursor
    /// is.
    pub fn consume<E: From<StoreError>>(
        &self,
        name: &str,
        most: usize,
        mut work: impl FnMut(&FedLedger, &mut ConsumerEffects<'_>) -> Result<(), E>,
    ) -> Result<Consumed, E> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        // A failed write is settled: what is known of consumers decides about what is read for them.
        self.cursor(name)?;
        let (begun, families) = {
            let consumers = self.consumers.lock();
            let spec = consumers.spec(name).ok_or_else(unknown)?;
            (consumers.get(name).ok_or_else(unknown)?.clone(), spec.families)
        };
        let from = begun.place;
        let fed = self.fed_after(from, most);
        let Some(last) = fed.last() else { return Ok(Consumed::Nothing) };
        let handed = || fed.iter().filter(|it| !begun.lost.contains(it.ledger));
        let view = self.consumer_view(name)?;
        let (rows, lost) = (BTreeMap::new(), LedgerSet::default());
        let mut effects = ConsumerEffects { view, families, rows, lost };
        for ledger in handed() {
            work(ledger, &mut effects)?;
        }
        let ConsumerEffects { view, rows, lost, .. } = effects;
        let mut batch = self.database.batch();
        for ((family, key), value) in rows {
            batch.change_foreign(&view.family(family), &view.key(&key), value.as_deref())?;
        }
        let handed: Vec<LedgerSeq> = handed().map(|it| it.ledger).collect();
        let (name, place) = (name.to_owned(), last.place);
        let written = self.change_consumers(batch, move |known, _| {
            let unknown = || StoreError::UnknownConsumer(name.clone());
            let now = known.get(&name).ok_or_else(unknown)?.clone();
            let is_same = now.place == begun.place && now.generation == begun.generation;
            if !is_same || handed.iter().any(|ledger| now.lost.contains(*ledger)) {
                return Ok(None);
            }
            let mut moved = Consumer { place, ..now };
            moved.lost.insert_all(&lost);
            Ok(Some(vec![(name, Some(moved))]))
        })?;
        Ok(match written {
            true => Consumed::Ledgers(place - from),
            false => Consumed::Again,
        })
    }
}
