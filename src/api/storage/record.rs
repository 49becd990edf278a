//! Entries and changes as answers list them.

use std::cell::RefCell;
use std::collections::HashMap;

use serde::Serialize;
use stellar_xdr::{ScMapEntry, ScVal};

use super::super::ApiError;
use super::shown::{self, Form, Shown, ShownKey};
use orrery_contract_data::{Entry, Event, Kind, Past, held};
use orrery_interfaces::{PlainExecutable, instance_map};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::Store;

/// An entry, or an item in the map of an instance.
#[derive(Debug, Serialize)]
pub(super) struct EntryRecord {
    key_hash: Hash32,
    key: Shown,
    name: Option<String>,
    args: Option<Vec<Shown>>,
    durability: &'static str,
    value: Shown,
    #[serde(flatten)]
    life: Life,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    names_pending: bool,
}

/// Until when an entry lives, and when it was written.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Life {
    live_until_ledger: Option<LedgerSeq>,
    archived: Option<bool>,
    /// `disputed` where the network has archived another value (CAP-76).
    #[serde(skip_serializing_if = "Option::is_none")]
    archived_value: Option<&'static str>,
    /// The ledger of the last change; of an entry without a known one, that which wrote it last.
    updated_ledger: LedgerSeq,
    updated_at: Option<String>,
    modified_ledger: LedgerSeq,
    tx: Option<Hash32>,
}

/// The instance of a contract, with its own map.
#[derive(Debug, Serialize)]
pub(super) struct InstanceRecord {
    key_hash: Hash32,
    executable: PlainExecutable,
    storage: Vec<EntryRecord>,
    #[serde(flatten)]
    life: Life,
}

/// A change of an entry, or of an item in the map of an instance.
#[derive(Debug, Serialize)]
pub(super) struct ChangeRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    contract_id: Option<ContractId>,
    kind: &'static str,
    key_hash: Option<Hash32>,
    key: Option<Shown>,
    name: Option<String>,
    args: Option<Vec<Shown>>,
    durability: Option<&'static str>,
    value: Option<Shown>,
    previous: Option<Shown>,
    live_until_ledger: Option<LedgerSeq>,
    ledger: LedgerSeq,
    ledger_closed_at: Option<String>,
    tx: Option<Hash32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    names_pending: bool,
}

/// Durability of the items in the map of an instance.
pub(super) const INSTANCE: &str = "instance";

/// Close times of ledgers, each of which is read once.
pub(super) struct Times<'s> {
    store: &'s Store,
    known: RefCell<HashMap<LedgerSeq, Option<String>>>,
}

impl<'s> Times<'s> {
    pub fn new(store: &'s Store) -> Self {
        Self { store, known: RefCell::default() }
    }

    /// Returns when a ledger closed; `None` when it is not stored.
    fn of(&self, ledger: LedgerSeq) -> Result<Option<String>, ApiError> {
        if let Some(known) = self.known.borrow().get(&ledger) {
            return Ok(known.clone());
        }
        let time = self.store.ledger(ledger)?.map(|row| row.close_time.to_string());
        self.known.borrow_mut().insert(ledger, time.clone());
        Ok(time)
    }
}

impl Life {
    fn of(entry: &Entry, times: &Times<'_>) -> Result<Self, ApiError> {
        let updated_ledger = entry.updated_ledger;
        Ok(Self {
            live_until_ledger: entry.live_until,
            archived: entry.archived,
            archived_value: entry.disputed.then_some("disputed"),
            updated_ledger,
            updated_at: times.of(updated_ledger)?,
            modified_ledger: entry.modified,
            tx: entry.updated.map(|it| it.tx),
        })
    }
}

impl EntryRecord {
    /// Writes an entry.
    pub fn of(
        key_hash: Hash32,
        entry: &Entry,
        form: &Form,
        times: &Times<'_>,
    ) -> Result<Self, ApiError> {
        let scval = entry.key.scval();
        let ShownKey { key, name, args } = form.key(scval)?;
        Ok(Self {
            key_hash,
            key,
            name,
            args,
            durability: entry.key.durability().name(),
            value: form.value(scval, held(&entry.entry, &entry.key).unwrap_or_default())?,
            life: Life::of(entry, times)?,
            names_pending: form.is_pending(),
        })
    }

    fn of_item(
        key_hash: Hash32,
        (key, value): (&ScVal, &ScVal),
        life: &Life,
        form: &Form,
    ) -> Result<Self, ApiError> {
        let ShownKey { key: shown, name, args } = form.key_of(key)?;
        Ok(Self {
            key_hash,
            key: shown,
            name,
            args,
            durability: INSTANCE,
            value: form.value_of(key, value)?,
            life: life.clone(),
            names_pending: form.is_pending(),
        })
    }
}

impl InstanceRecord {
    /// Writes the instance of a contract with those items of its map that are wanted; `None` when its
    /// value is none.
    pub fn of(
        key_hash: Hash32,
        entry: &Entry,
        is_wanted: impl Fn(&ScVal) -> bool,
        form: &Form,
        times: &Times<'_>,
    ) -> Result<Option<Self>, ApiError> {
        let value = held(&entry.entry, &entry.key).and_then(shown::decoded_instance);
        let Some(instance) = value else { return Ok(None) };
        let life = Life::of(entry, times)?;
        let mut storage = Vec::new();
        for ScMapEntry { key, val } in instance_map(&instance) {
            if is_wanted(key) {
                storage.push(EntryRecord::of_item(key_hash, (key, val), &life, form)?);
            }
        }
        let executable = PlainExecutable::from(&instance.executable);
        Ok(Some(Self { key_hash, executable, storage, life }))
    }
}

impl ChangeRecord {
    /// Writes a change of an entry. `key_hash` is that of the key, if it is known.
    pub fn of(
        past: &Past,
        key_hash: Option<Hash32>,
        form: &Form,
        times: &Times<'_>,
    ) -> Result<Self, ApiError> {
        let scval = past.key.as_ref().map(|key| key.scval());
        let shown_key = scval.map(|scval| form.key(scval)).transpose()?;
        let (key, name, args) = match shown_key {
            Some(ShownKey { key, name, args }) => (Some(key), name, args),
            None => (None, None, None),
        };
        let shown = |entry: &Option<Vec<u8>>| -> Result<Option<Shown>, ApiError> {
            let (Some(key), Some(entry)) = (&past.key, entry) else { return Ok(None) };
            held(entry, key).map(|value| form.value(key.scval(), value)).transpose()
        };
        Ok(Self {
            key,
            name,
            args,
            value: shown(&past.after)?,
            previous: shown(&past.before)?,
            names_pending: form.is_pending(),
            ..Self::without_values(past, key_hash, times)?
        })
    }

    /// Writes the changes of those items in the map of an instance that are wanted.
    pub fn of_items(
        past: &Past,
        key_hash: Option<Hash32>,
        is_wanted: impl Fn(&ScVal) -> bool,
        form: &Form,
        times: &Times<'_>,
    ) -> Result<Vec<Self>, ApiError> {
        let is_new_instance = past.event == Event::Changed(Kind::Created);
        let is_told = past.before.is_some() || is_new_instance;
        let Some(key) = past.key.as_ref().filter(|key| is_told && key.is_instance()) else {
            return Ok(Vec::new());
        };
        let items = |entry: &Option<Vec<u8>>| {
            let value = entry.as_ref().and_then(|entry| held(entry, key));
            let instance = value.and_then(shown::decoded_instance);
            instance.and_then(|it| it.storage).map(|map| map.0.to_vec()).unwrap_or_default()
        };
        let (before, after) = (items(&past.before), items(&past.after));
        let find = |items: &[ScMapEntry], key: &ScVal| {
            items.iter().find(|item| item.key == *key).map(|item| item.val.clone())
        };
        let is_new = |item: &&ScMapEntry| find(&before, &item.key).is_none();
        let mut records = Vec::new();
        let keys = before.iter().chain(after.iter().filter(is_new)).map(|item| &item.key);
        for key in keys.filter(|key| is_wanted(key)) {
            let (old, new) = (find(&before, key), find(&after, key));
            let kind = match (&old, &new) {
                (old, new) if old == new => continue,
                (None, _) => "created",
                (Some(_), None) => "removed",
                (Some(_), Some(_)) => "updated",
            };
            let ShownKey { key: shown, name, args } = form.key_of(key)?;
            let write =
                |value: Option<ScVal>| value.map(|value| form.value_of(key, &value)).transpose();
            records.push(Self {
                kind,
                key: Some(shown),
                name,
                args,
                durability: Some(INSTANCE),
                value: write(new)?,
                previous: write(old)?,
                names_pending: form.is_pending(),
                ..Self::without_values(past, key_hash, times)?
            });
        }
        Ok(records)
    }

    /// Returns the record with the contract to which the key belongs.
    pub fn with_contract(self, contract: ContractId) -> Self {
        Self { contract_id: Some(contract), ..self }
    }

    fn without_values(
        past: &Past,
        key_hash: Option<Hash32>,
        times: &Times<'_>,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            contract_id: None,
            kind: past.event.name(),
            key_hash,
            key: None,
            name: None,
            args: None,
            durability: past.key.as_ref().map(|key| key.durability().name()),
            value: None,
            previous: None,
            live_until_ledger: past.live_until,
            ledger: past.position.ledger,
            ledger_closed_at: times.of(past.position.ledger)?,
            tx: past.tx,
            names_pending: false,
        })
    }
}
