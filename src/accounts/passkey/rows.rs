//! Rows of the passkey wallet index, and how events change them.
//!
//! | Family | Key → value |
//! |---|---|
//! | `log` | contract, position → number of the event's kind |
//! | `wallets` | contract → [`Stored`] |
//! | `signers` | contract, [`key_bytes`] → [`Signer`] |
//! | `order` | contract, position of the event that first put a signer → [`key_bytes`] |
//! | `keys` | tag, position of the event that first put the signer → contract, per active signer |
//! | `credentials` | tag → empty; credential ids that a wallet has or had |
//! | `stats` | empty → [`Stats`] |

use std::ops::ControlFlow;

use stellar_xdr::{AccountId, Limits, PublicKey, ReadXdr, ScAddress, Uint256};

use super::event::{self, Change, Event, Generation, Key, Kind, Storage};
use super::fold::{Entry, Put, Wallet};
use crate::accounts::rows::{Rows, RowsMut, Tag, numbers, put_new, put_numbers, read, scan_under};
use crate::accounts::stats::STATS;
use crate::accounts::{AccountIndex, Emitted, Position, Stats, value};
use crate::domain::ContractId;
use crate::store::StoreError;

const LOG: &str = "log";
const WALLETS: &str = "wallets";
pub(super) const SIGNERS: &str = "signers";
pub(super) const ORDER: &str = "order";
const KEYS: &str = "keys";
const CREDENTIALS: &str = "credentials";

/// Stored value of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    wallet: Wallet,
    /// Number of signers that the wallet has or had.
    signers: u32,
    /// Number of signers that were not removed.
    active: u32,
}

impl Stored {
    fn encode(&self) -> Vec<u8> {
        let Self { wallet: Wallet { first, last, generation }, signers, active } = *self;
        let rest = put_numbers([generation as u32, signers, active]);
        [&first.encode()[..], &last.encode(), &rest].concat()
    }

    fn decode(row: &[u8]) -> Option<Self> {
        let (first, row) = row.split_at_checked(Position::LEN)?;
        let (last, row) = row.split_at_checked(Position::LEN)?;
        let [generation, signers, active] = numbers(row)?[..] else { return None };
        let generation = *Generation::ALL.get(usize::try_from(generation).ok()?)?;
        let (first, last) = (Position::decode(first)?, Position::decode(last)?);
        Some(Self { wallet: Wallet { first, last, generation }, signers, active })
    }
}

/// Returns the stored wallet of a contract; `None` when no signer event was processed.
fn stored(rows: &dyn Rows, contract: &ContractId) -> Result<Option<Stored>, StoreError> {
    read(rows, WALLETS, &contract.0, Stored::decode)
}

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

/// Properties of a signer as XDR, and what is needed to parse them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub generation: Generation,
    pub storage: Storage,
    pub encoded: Vec<u8>,
}

/// Stored state of one signer.
pub(super) type Signer = Entry<Value>;

impl Signer {
    fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        // All zeros stand for `None`: no event has ledger sequence 0.
        row.extend_from_slice(&self.removed.map_or([0; Position::LEN], Position::encode));
        if let Some(Put { first, last, value }) = &self.put {
            row.extend_from_slice(&first.encode());
            row.extend_from_slice(&last.encode());
            row.extend_from_slice(&[value.generation as u8, value.storage as u8]);
            row.extend_from_slice(&value.encoded);
        }
        row
    }

    pub(super) fn decode(row: &[u8]) -> Option<Self> {
        let (removed, row) = row.split_at_checked(Position::LEN)?;
        let removed = Position::decode(removed).filter(|at| at.ledger > 0);
        if row.is_empty() {
            return Some(Self { put: None, removed });
        }
        let (first, row) = row.split_at_checked(Position::LEN)?;
        let (last, row) = row.split_at_checked(Position::LEN)?;
        let [generation, storage, encoded @ ..] = row else { return None };
        let generation = *Generation::ALL.get(usize::from(*generation))?;
        let storage = *Storage::ALL.get(usize::from(*storage))?;
        let value = Value { generation, storage, encoded: encoded.to_vec() };
        let (first, last) = (Position::decode(first)?, Position::decode(last)?);
        Some(Self { put: Some(Put { first, last, value }), removed })
    }

    /// Returns the signer's last properties; `None` when it was never put, or when the stored bytes
    /// do not parse.
    pub(super) fn read(&self, key: &Key) -> Option<event::Signer> {
        let Value { generation, storage, encoded } = &self.put.as_ref()?.value;
        event::signer(key, &value::parse(encoded)?, *storage, *generation)
    }
}

/// Returns the encoding of a signer's key that is used in row keys.
fn key_bytes(key: &Key) -> Vec<u8> {
    let (kind, bytes) = match key {
        Key::Secp256r1(credential) => (0, credential.clone()),
        Key::Ed25519(public_key) => (1, public_key.to_vec()),
        Key::Policy(address) => (2, value::xdr(address)),
    };
    [&[kind], bytes.as_slice()].concat()
}

pub(super) fn key_of(bytes: &[u8]) -> Option<Key> {
    let (kind, bytes) = bytes.split_first()?;
    match kind {
        0 => Some(Key::Secp256r1(bytes.to_vec())),
        1 => bytes.try_into().ok().map(Key::Ed25519),
        2 => ScAddress::from_xdr(bytes, Limits { depth: 8, len: 64 }).ok().map(Key::Policy),
        _ => None,
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
fn keys_key(key: &Key, signer: &Signer) -> Option<Vec<u8>> {
    let put = signer.put.as_ref().filter(|_| signer.is_active())?;
    Some([&tag(key).0[..], &put.first.encode()].concat())
}

/// Returns the key of a signer in [`ORDER`]; `None` for one that is not known.
fn order_key(contract: &ContractId, signer: &Signer) -> Option<Vec<u8>> {
    Some([&contract.0[..], &signer.put.as_ref()?.first.encode()].concat())
}

/// Index of passkey wallets.
#[derive(Debug, Clone, Copy, Default)]
pub struct PasskeyWallets;

impl AccountIndex for PasskeyWallets {
    type Event = Event;
    type Summary = Summary;

    const CONSUMER: &'static str = "passkey_wallets";
    const FAMILIES: &'static [&'static str] =
        &[LOG, WALLETS, SIGNERS, ORDER, KEYS, CREDENTIALS, STATS];
    const ACCOUNTS: &'static str = WALLETS;
    const ACTIVE_SIGNERS: &'static str = KEYS;
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
            let key = [&contract.0[..], &position.encode()].concat();
            if !put_new(rows, LOG, key, vec![event.kind as u8])? {
                continue;
            }
            match &event.change {
                Change::Upgraded => upgrade(rows, contract, *position, &mut stats)?,
                Change::Put(key, _, _) | Change::Removed(key) => {
                    signer(rows, key, emitted, &mut stats)?
                }
            }
        }
        if stats == before { Ok(()) } else { stats.write::<Self>(rows) }
    }

    /// `None` when the contract never had a signer.
    fn summary(rows: &dyn Rows, contract: &ContractId) -> Result<Option<Summary>, StoreError> {
        let stored = stored(rows, contract)?;
        Ok(stored.filter(|stored| stored.signers > 0).map(Summary::from))
    }
}

fn upgrade(
    rows: &mut dyn RowsMut,
    contract: &ContractId,
    position: Position,
    stats: &mut Stats,
) -> Result<(), StoreError> {
    let Some(mut stored) = stored(rows, contract)? else { return Ok(()) };
    if stored.wallet.counts_upgrade(position) {
        stored.wallet.upgraded(position);
        stats.count(Kind::Upgraded as usize, position.ledger);
        rows.put(WALLETS, contract.0.to_vec(), stored.encode())?;
    }
    Ok(())
}

fn signer(
    rows: &mut dyn RowsMut,
    key: &Key,
    Emitted { contract, position, event }: &Emitted<Event>,
    stats: &mut Stats,
) -> Result<(), StoreError> {
    let generation = event.kind.generation();
    let known = stored(rows, contract)?;
    let new = || Stored { wallet: Wallet::begin(*position, generation), signers: 0, active: 0 };
    let mut stored = known.unwrap_or_else(new);
    stored.wallet.signer_event(*position, generation);
    stats.count(event.kind as usize, position.ledger);
    // When the wallet now begins earlier, logged upgrades between its new and its old beginning
    // start to count.
    let begins_later = known.map(|known| known.wallet.first);
    if begins_later.is_none_or(|later| *position < later) {
        for at in upgrades(rows, contract, *position, begins_later)? {
            stored.wallet.upgraded(at);
            stats.count(Kind::Upgraded as usize, at.ledger);
        }
    }

    let row_key = [&contract.0[..], &key_bytes(key)].concat();
    let before = read(rows, SIGNERS, &row_key, Signer::decode)?.unwrap_or_default();
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
            stats.credentials +=
                u64::from(put_new(rows, CREDENTIALS, tag(key).0.to_vec(), Vec::new())?);
        }
    }
    let (active, is_active) = (before.is_active(), entry.is_active());
    stored.active = stored.active + u32::from(is_active) - u32::from(active);
    stats.active = stats.active + u64::from(is_active) - u64::from(active);
    // The event that first put the signer changes when an older one arrives.
    replace(rows, KEYS, keys_key(key, &before), keys_key(key, &entry), &contract.0)?;
    let (old, new) = (order_key(contract, &before), order_key(contract, &entry));
    replace(rows, ORDER, old, new, &row_key[contract.0.len()..])?;
    rows.put(SIGNERS, row_key, entry.encode())?;
    rows.put(WALLETS, contract.0.to_vec(), stored.encode())
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
    scan_under(rows, LOG, &contract.0, &after.encode(), |at, kind| {
        let at = Position::decode(at)?;
        if before.is_some_and(|before| at >= before) {
            return Some(ControlFlow::Break(Ok(())));
        }
        if *kind == [Kind::Upgraded as u8] {
            found.push(at);
        }
        Some(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Moves a row to another key; `None` stands for no row.
fn replace(
    rows: &mut dyn RowsMut,
    family: &str,
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
    value: &[u8],
) -> Result<(), StoreError> {
    if old == new {
        return Ok(());
    }
    old.map_or(Ok(()), |old| rows.delete(family, old))?;
    new.map_or(Ok(()), |new| rows.put(family, new, value.to_vec()))
}
