//! Parses events of passkey wallets of both generations: v1, and of the legacy generation the
//! layouts with wrapped values (from December 2024), with bare values (from October 2024) and
//! without expiration (from September 2024). Older layouts lack the storage or have other keys;
//! they are not parsed.
//!
//! An event counts only when its complete shape matches: a name such as `signer_added` is not
//! enough, because other contracts emit it too.

use stellar_xdr::{ScAddress, ScMapEntry, ScVal};

use crate::value;
use orrery_store::{RowCodec, row_codec};

/// Maximum length of a credential id, in bytes (Web Authentication, level 2, section 4: "at most
/// 1023 bytes").
pub const LONGEST_CREDENTIAL: usize = 1023;

/// Bytes of an uncompressed secp256r1 public key (SEC 1, section 2.3.3).
const PUBLIC_KEY: usize = 65;

/// Generation of the contract that emitted an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// Contracts whose events have the symbol `sw_v1` as their first topic.
    Legacy,
    /// Contracts from binver 1.0.0 on.
    V1,
}

row_codec!(enum Generation);

impl Generation {
    /// All generations; the index of each equals its discriminant.
    pub const ALL: [Self; 2] = [Self::Legacy, Self::V1];

    /// Returns the name used in API responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::V1 => "v1",
        }
    }
}

/// Event names, in ascending order of generation and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `sw_v1`, `add`
    Add,
    /// `sw_v1`, `remove`
    Remove,
    /// `sw_v1`, `update`
    Update,
    /// `signer_added`
    SignerAdded,
    /// `signer_removed`
    SignerRemoved,
    /// `signer_updated`
    SignerUpdated,
    /// `upgraded`
    Upgraded,
}

row_codec!(enum Kind);

impl Kind {
    /// All kinds; the index of each equals its discriminant.
    pub const ALL: [Self; 7] = [
        Self::Add,
        Self::Remove,
        Self::Update,
        Self::SignerAdded,
        Self::SignerRemoved,
        Self::SignerUpdated,
        Self::Upgraded,
    ];

    /// Returns the generation whose contracts emit this event.
    pub fn generation(self) -> Generation {
        match self {
            Self::Add | Self::Remove | Self::Update => Generation::Legacy,
            _ => Generation::V1,
        }
    }

    /// Returns the symbol that names the event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Update => "update",
            Self::SignerAdded => "signer_added",
            Self::SignerRemoved => "signer_removed",
            Self::SignerUpdated => "signer_updated",
            Self::Upgraded => "upgraded",
        }
    }
}

/// Key that identifies a signer. Its encoding is the same in both generations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Secp256r1 signer, identified by its credential id.
    Secp256r1(Vec<u8>),
    /// Ed25519 signer, identified by its public key.
    Ed25519([u8; 32]),
    /// Policy contract that the wallet calls. The contract's type also allows an account address.
    Policy(ScAddress),
}

impl Key {
    /// Returns the `ScVal` under which a wallet stores the signer; `None` when the key is too long
    /// for an `ScVal`.
    pub fn to_value(&self) -> Option<ScVal> {
        let (kind, payload) = match self {
            Self::Secp256r1(credential) => {
                ("Secp256r1", ScVal::Bytes(credential.clone().try_into().ok()?))
            }
            Self::Ed25519(key) => ("Ed25519", ScVal::Bytes(key.to_vec().try_into().ok()?)),
            Self::Policy(address) => ("Policy", ScVal::Address(address.clone())),
        };
        let kind = ScVal::Symbol(kind.try_into().ok()?);
        Some(ScVal::Vec(Some(vec![kind, payload].try_into().ok()?)))
    }
}

/// Durability of the entry in which a wallet stores a signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Storage {
    /// The entry is archived when its time to live is over.
    Persistent,
    /// The entry is deleted when its time to live is over.
    Temporary,
}

row_codec!(enum Storage);

impl Storage {
    /// All durabilities; the index of each equals its discriminant.
    pub const ALL: [Self; 2] = [Self::Persistent, Self::Temporary];

    /// Returns the name used in API responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::Temporary => "temporary",
        }
    }
}

/// Last moment at which a signer is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expiration {
    /// Ledger sequence, used by legacy contracts.
    Ledger(u32),
    /// UNIX seconds, used by v1 contracts.
    Unix(u64),
}

/// Contracts for which a signer may sign. Each has the keys of the signers that must sign too, or
/// `None` when the signer may sign alone.
pub type Limits = Vec<(ScAddress, Option<Vec<Key>>)>;

/// Properties of a signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Public key of a secp256r1 signer, uncompressed; `None` for other kinds.
    pub public_key: Option<Vec<u8>>,
    /// `None` when the signer never expires.
    pub expiration: Option<Expiration>,
    /// `None` when the signer is unrestricted. An empty list means the same to legacy contracts,
    /// but forbids everything to v1 contracts.
    pub limits: Option<Limits>,
    /// Durability of the signer's entry.
    pub storage: Storage,
}

/// Change that an event reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A signer was added or updated and has these properties from now on.
    Put(Key, Signer, Encoded),
    /// A signer was removed.
    Removed(Key),
    /// The wallet's code was replaced.
    Upgraded,
}

/// XDR of a signer's properties, as the wallet encodes them.
pub type Encoded = Vec<u8>;

/// An event of a passkey wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Name of the event.
    pub kind: Kind,
    /// Change that the event reports.
    pub change: Change,
}

/// Parses an event of type `contract` with these topics and data, each the XDR of an `ScVal`.
/// Returns `None` when it is not an event of a passkey wallet.
pub fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Event> {
    let (name, rest) = topics.split_first()?;
    let (kind, key) = match (value::symbol_of(name)?, rest) {
        (b"sw_v1", [action, key]) => {
            let kind = match value::symbol_of(action)? {
                b"add" => Kind::Add,
                b"update" => Kind::Update,
                b"remove" => Kind::Remove,
                _ => return None,
            };
            (kind, key)
        }
        (b"signer_added", [key]) => (Kind::SignerAdded, key),
        (b"signer_updated", [key]) => (Kind::SignerUpdated, key),
        (b"signer_removed", [key]) => (Kind::SignerRemoved, key),
        (b"upgraded", []) => {
            is_upgrade(&value::parse(data)?)?;
            return Some(Event { kind: Kind::Upgraded, change: Change::Upgraded });
        }
        _ => return None,
    };
    let key = self::key(&value::parse(key)?)?;
    Some(Event { kind, change: change(kind, key, &value::parse(data)?)? })
}

fn change(kind: Kind, key: Key, data: &ScVal) -> Option<Change> {
    let (val, storage, generation) = match kind {
        Kind::Add | Kind::Update => match value::list(data)? {
            [val, storage] => (val, storage, Generation::Legacy),
            _ => return None,
        },
        Kind::Remove => return (*data == ScVal::Void).then_some(Change::Removed(key)),
        Kind::SignerAdded => {
            let [storage, val] = fields(data, ["storage", "val"])?;
            (val, storage, Generation::V1)
        }
        Kind::SignerUpdated => {
            let [old, storage, val] = fields(data, ["old_storage", "storage", "val"])?;
            self::storage(old)?;
            (val, storage, Generation::V1)
        }
        Kind::SignerRemoved => {
            let [storage] = fields(data, ["storage"])?;
            self::storage(storage)?;
            return Some(Change::Removed(key));
        }
        Kind::Upgraded => return Some(Change::Upgraded),
    };
    let signer = signer(&key, val, self::storage(storage)?, generation)?;
    Some(Change::Put(key, signer, value::xdr(val)))
}

/// Returns the values of a map that has exactly these keys.
fn fields<'a, const N: usize>(data: &'a ScVal, names: [&str; N]) -> Option<[&'a ScVal; N]> {
    let map = value::map(data).filter(|map| map.len() == N)?;
    let found: Vec<&ScVal> = names.iter().filter_map(|name| value::field(map, name)).collect();
    found.try_into().ok()
}

fn is_upgrade(data: &ScVal) -> Option<()> {
    let [new, old] = fields(data, ["new_hash", "old_hash"])?;
    let is_hash = |value: &ScVal| value::bytes(value).is_some_and(|bytes| bytes.len() == 32);
    (is_hash(new) && (is_hash(old) || *old == ScVal::Void)).then_some(())
}

/// Parses a signer's key as a wallet encodes it.
pub fn key(value: &ScVal) -> Option<Key> {
    let [kind, payload] = value::list(value)? else { return None };
    match value::symbol(kind)? {
        b"Policy" => value::address(payload).filter(|it| is_owner(it)).cloned().map(Key::Policy),
        b"Ed25519" => value::bytes(payload)?.try_into().ok().map(Key::Ed25519),
        b"Secp256r1" => {
            let credential = value::bytes(payload)?;
            let fits = (1..=LONGEST_CREDENTIAL).contains(&credential.len());
            fits.then(|| Key::Secp256r1(credential.to_vec()))
        }
        _ => None,
    }
}

/// Whether an address is an account or a contract, the only addresses that a contract can be given.
fn is_owner(address: &ScAddress) -> bool {
    matches!(address, ScAddress::Account(_) | ScAddress::Contract(_))
}

fn storage(value: &ScVal) -> Option<Storage> {
    let [variant] = value::list(value)? else { return None };
    match value::symbol(variant)? {
        b"Persistent" => Some(Storage::Persistent),
        b"Temporary" => Some(Storage::Temporary),
        _ => None,
    }
}

/// Parses the properties of a signer with this key.
pub(super) fn signer(
    key: &Key,
    val: &ScVal,
    storage: Storage,
    generation: Generation,
) -> Option<Signer> {
    let (kind, rest) = value::list(val)?.split_first()?;
    let (public_key, rest) = match (value::symbol(kind)?, key) {
        (b"Policy", Key::Policy(_)) | (b"Ed25519", Key::Ed25519(_)) => (None, rest),
        (b"Secp256r1", Key::Secp256r1(_)) => {
            let (public_key, rest) = rest.split_first()?;
            let public_key = value::bytes(public_key).filter(|key| key.len() == PUBLIC_KEY)?;
            (Some(public_key.to_vec()), rest)
        }
        _ => return None,
    };
    let (expiration, limits) = match (rest, generation) {
        ([expiration, limits], Generation::V1) => {
            let expiration = optional(wrapped(expiration)?, |value| match value {
                ScVal::U64(seconds) => Some(Expiration::Unix(*seconds)),
                _ => None,
            })?;
            (expiration, optional(wrapped(limits)?, self::limits)?)
        }
        ([expiration, limits], Generation::Legacy) => {
            let limits = wrapped(limits)?;
            // In the layout with a bare expiration, limits are always present.
            let (expiration, limits) = match wrapped(expiration) {
                Some(expiration) => (expiration, optional(limits, self::limits)?),
                None => (expiration, Some(self::limits(limits)?)),
            };
            let ledger = |value: &ScVal| value::number(value).map(Expiration::Ledger);
            (optional(expiration, ledger)?, limits)
        }
        ([limits], Generation::Legacy) => (None, Some(self::limits(wrapped(limits)?)?)),
        _ => return None,
    };
    Some(Signer { public_key, expiration, limits, storage })
}

/// Returns the element of a one-element tuple.
fn wrapped(value: &ScVal) -> Option<&ScVal> {
    match value::list(value)? {
        [value] => Some(value),
        _ => None,
    }
}

/// Parses an optional value: `Void` is `Some(None)`, anything else is parsed by `read`.
fn optional<T>(value: &ScVal, read: impl Fn(&ScVal) -> Option<T>) -> Option<Option<T>> {
    match value {
        ScVal::Void => Some(None),
        value => read(value).map(Some),
    }
}

fn limits(value: &ScVal) -> Option<Limits> {
    let limit = |entry: &ScMapEntry| {
        let address = value::address(&entry.key).filter(|it| is_owner(it))?;
        let keys = |value: &ScVal| value::list(value)?.iter().map(key).collect();
        Some((address.clone(), optional(&entry.val, keys)?))
    };
    value::map(value)?.iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_in_numeric_order() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert_eq!(Generation::ALL.map(|generation| generation as usize), [0, 1]);
        assert_eq!(Storage::ALL.map(|storage| storage as usize), [0, 1]);
        assert!(Kind::ALL.map(|kind| (kind.generation(), kind.name())).is_sorted());
    }
}
