//! How events change the rows of the passkey wallet index.

use std::ops::ControlFlow;

use stellar_xdr::{AccountId, PublicKey, ScAddress, Uint256};

use super::event::{self, Change, Event, Generation, Key, Kind};
use super::fold::Wallet;
use super::tables::{
    CREDENTIALS, FAMILIES, KEYS, LOG, ORDER, SIGNERS, Signer, Stored, Value, WALLETS,
};
use crate::{AccountIndex, Emitted, Position, Stats, Tag};
use orrery_ledger::domain::ContractId;
use orrery_store::{RowCodec, Rows, RowsMut, StoreError, Table};

/// Properties of a wallet that a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Generation of the wallet's last event.
    pub generation: Generation,
    /// Number of signers that were not removed, including expired ones.
    pub signers: u32,
    /// Ledger of the wallet's first event.
    pub first_seen: u32,
    /// Ledger of the wallet's last event.
    pub last_seen: u32,
}

impl From<Stored> for Summary {
    fn from(Stored { wallet, active, .. }: Stored) -> Self {
        Self {
            generation: wallet.generation,
            signers: active,
            first_seen: wallet.first.ledger,
            last_seen: wallet.last.ledger,
        }
    }
}

/// Returns the tag under which a signer is looked up: that of its credential id, or that of its
/// address. An Ed25519 public key counts as an account address.
fn tag(key: &Key) -> Tag {
    match key {
        Key::Secp256r1(credential) => Tag::of_credential(credential),
        Key::Policy(address) => Tag::of_address(address),
        Key::Ed25519(key) => {
            let key = PublicKey::PublicKeyTypeEd25519(Uint256(*key));
            Tag::of_address(&ScAddress::Account(AccountId(key)))
        }
    }
}

/// Returns the key of an active signer in [`KEYS`]; `None` for another one.
fn keys_key(key: &Key, signer: &Signer) -> Option<(Tag, Position)> {
    let put = signer.put.as_ref().filter(|_| signer.is_active())?;
    Some((tag(key), put.first))
}

/// Returns the key of a signer in [`ORDER`]; `None` for one that is not known.
fn order_key(contract: &ContractId, signer: &Signer) -> Option<(ContractId, Position)> {
    Some((*contract, signer.put.as_ref()?.first))
}

/// Index of passkey wallets.
#[derive(Debug, Clone, Copy, Default)]
pub struct PasskeyWallets;

impl AccountIndex for PasskeyWallets {
    type Event = Event;
    type Summary = Summary;

    const CONSUMER: &'static str = "passkey_wallets";
    const FAMILIES: &'static [&'static str] = FAMILIES;
    const ACTIVE_SIGNERS: Table<(Tag, Position), ContractId> = KEYS;
    const COUNTS_SIGNERS: bool = true;

    fn kinds() -> impl ExactSizeIterator<Item = (Option<&'static str>, &'static str)> {
        Kind::ALL.into_iter().map(|kind| (Some(kind.generation().name()), kind.name()))
    }

    fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Event> {
        event::recognise(topics, data)
    }

    fn apply_events(rows: &mut dyn RowsMut, events: &[Emitted<Event>]) -> Result<(), StoreError> {
        let mut stats = Stats::read::<Self>(rows)?;
        let before = stats.clone();
        for emitted in events {
            let Emitted { contract, position, event } = emitted;
            if !LOG.put_new(rows, &(*contract, *position), &event.kind)? {
                continue;
            }
            match &event.change {
                Change::Upgraded => mark_upgraded(rows, contract, *position, &mut stats)?,
                Change::Put(key, _, _) | Change::Removed(key) => {
                    put_signer(rows, key, emitted, &mut stats)?
                }
            }
        }
        if stats == before { Ok(()) } else { stats.write::<Self>(rows) }
    }

    /// `None` when the contract never had a signer.
    fn summary(rows: &dyn Rows, contract: &ContractId) -> Result<Option<Summary>, StoreError> {
        let stored = WALLETS.get(rows, contract)?;
        Ok(stored.filter(|stored| stored.signers > 0).map(Summary::from))
    }

    fn missing(contract: &ContractId) -> StoreError {
        WALLETS.damaged(contract)
    }
}

/// Records an upgrade, if it counts.
fn mark_upgraded(
    rows: &mut dyn RowsMut,
    contract: &ContractId,
    position: Position,
    stats: &mut Stats,
) -> Result<(), StoreError> {
    let Some(mut stored) = WALLETS.get(rows, contract)? else { return Ok(()) };
    if stored.wallet.counts_upgrade(position) {
        stored.wallet.apply_upgrade(position);
        stats.count(Kind::Upgraded as usize, position.ledger);
        WALLETS.put(rows, contract, &stored)?;
    }
    Ok(())
}

/// Applies an event that puts or removes a signer.
fn put_signer(
    rows: &mut dyn RowsMut,
    key: &Key,
    Emitted { contract, position, event }: &Emitted<Event>,
    stats: &mut Stats,
) -> Result<(), StoreError> {
    let generation = event.kind.generation();
    let known = WALLETS.get(rows, contract)?;
    let new = || Stored { wallet: Wallet::begin(*position, generation), signers: 0, active: 0 };
    let mut stored = known.unwrap_or_else(new);
    stored.wallet.apply_signer_event(*position, generation);
    stats.count(event.kind as usize, position.ledger);
    // When the wallet now begins earlier, logged upgrades between its new and its old beginning
    // start to count.
    let begins_later = known.map(|known| known.wallet.first);
    if begins_later.is_none_or(|later| *position < later) {
        for at in upgrades(rows, contract, *position, begins_later)? {
            stored.wallet.apply_upgrade(at);
            stats.count(Kind::Upgraded as usize, at.ledger);
        }
    }

    let row_key = (*contract, key.clone());
    let before = SIGNERS.get(rows, &row_key)?.unwrap_or_default();
    let mut entry = before.clone();
    match &event.change {
        Change::Put(_, signer, encoded) => {
            let storage = signer.storage;
            entry.put(*position, Value { generation, storage, encoded: encoded.clone() });
        }
        Change::Removed(_) | Change::Upgraded => entry.remove(*position),
    }
    if entry.is_known() && !before.is_known() {
        stats.accounts += u64::from(stored.signers == 0);
        stored.signers += 1;
        stats.signers += 1;
        if let Key::Secp256r1(_) = key {
            stats.credentials += u64::from(CREDENTIALS.put_new(rows, &tag(key), &())?);
        }
    }
    let (active, is_active) = (before.is_active(), entry.is_active());
    stored.active = stored.active + u32::from(is_active) - u32::from(active);
    stats.active = stats.active + u64::from(is_active) - u64::from(active);
    // The event that first put the signer changes when an older one arrives.
    replace(rows, &KEYS, keys_key(key, &before), keys_key(key, &entry), contract)?;
    let (old, new) = (order_key(contract, &before), order_key(contract, &entry));
    replace(rows, &ORDER, old, new, key)?;
    SIGNERS.put(rows, &row_key, &entry)?;
    WALLETS.put(rows, contract, &stored)
}

/// Returns the positions of the upgrades in a contract's log after `after` and, if given, before
/// `before`.
fn upgrades(
    rows: &dyn Rows,
    contract: &ContractId,
    after: Position,
    before: Option<Position>,
) -> Result<Vec<Position>, StoreError> {
    let mut found = Vec::new();
    LOG.scan(rows, contract, Some(&(*contract, after)), |(_, at), kind| {
        if before.is_some_and(|before| at >= before) {
            return Ok(ControlFlow::Break(()));
        }
        if kind == Kind::Upgraded {
            found.push(at);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Moves a row to another key; `None` stands for no row.
fn replace<K: RowCodec + PartialEq, V: RowCodec>(
    rows: &mut dyn RowsMut,
    table: &Table<K, V>,
    old: Option<K>,
    new: Option<K>,
    value: &V,
) -> Result<(), StoreError> {
    if old == new {
        return Ok(());
    }
    old.map_or(Ok(()), |old| table.delete(rows, &old))?;
    new.map_or(Ok(()), |new| table.put(rows, &new, value))
}
