//! Events of passkey wallets, of both generations and in the layouts that are read: v1, and of the legacy generation
//! the wrapped layout (from December 2024), the bare one (from October 2024), and the one without expiration (from
//! September 2024). Older layouts lack the storage or have other keys; they are not read.
//!
//! Names alone are worthless: other contracts emit `signer_added`, too. An event counts when all of its shape is
//! right.

use stellar_xdr::{ScAddress, ScMapEntry, ScVal};

use crate::accounts::value;

/// Longest id of a credential (Web Authentication, level 2, section 4: "at most 1023 bytes").
pub const LONGEST_CREDENTIAL: usize = 1023;

/// Bytes of an uncompressed secp256r1 public key (SEC 1, section 2.3.3).
const PUBLIC_KEY: usize = 65;

/// Of which generation the contract was that emitted an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// Events begin with the symbol `sw_v1`.
    Legacy,
    /// Contracts from binver 1.0.0 on.
    V1,
}

impl Generation {
    /// As answers spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::V1 => "v1",
        }
    }
}

/// What an event is called, in ascending order of generation and name.
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

impl Kind {
    /// All of them; each stands at the place of its number.
    pub const ALL: [Self; 7] = [
        Self::Add,
        Self::Remove,
        Self::Update,
        Self::SignerAdded,
        Self::SignerRemoved,
        Self::SignerUpdated,
        Self::Upgraded,
    ];

    /// Its generation.
    pub fn generation(self) -> Generation {
        match self {
            Self::Add | Self::Remove | Self::Update => Generation::Legacy,
            _ => Generation::V1,
        }
    }

    /// The symbol that names it.
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

/// What a signer is known by. Its encoding is the same in both generations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The id of a credential.
    Secp256r1(Vec<u8>),
    /// A public key.
    Ed25519([u8; 32]),
    /// A contract that is asked, or an account: its type allows either.
    Policy(ScAddress),
}

impl Key {
    /// The value as a wallet encodes it, under which it keeps the signer; none when it is longer than a value can
    /// be.
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

/// Where a wallet keeps a signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Storage {
    /// It is archived when its time to live is over.
    Persistent,
    /// It is gone when its time to live is over.
    Temporary,
}

impl Storage {
    /// As answers spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::Temporary => "temporary",
        }
    }
}

/// The last moment at which a signer is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expiration {
    /// A ledger: what legacy contracts say.
    Ledger(u32),
    /// UNIX seconds: what contracts of v1 say.
    Unix(u64),
}

/// For which contracts a signer may sign, and with which other signers for each, if it may not do so alone.
pub type Limits = Vec<(ScAddress, Option<Vec<Key>>)>;

/// How a signer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Of a credential: its key.
    pub public_key: Option<Vec<u8>>,
    /// None for one that is valid for ever.
    pub expiration: Option<Expiration>,
    /// None where there are none; empty is something else, see [`super::lookup`].
    pub limits: Option<Limits>,
    /// Where it is kept.
    pub storage: Storage,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A signer is there, and is like this from now on.
    Put(Key, Signer, Encoded),
    /// A signer is not there any more.
    Removed(Key),
    /// The wallet's code was replaced.
    Upgraded,
}

/// XDR of how a signer is, as the wallet encodes it.
pub type Encoded = Vec<u8>;

/// An event of a passkey wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is called.
    pub kind: Kind,
    /// What it says.
    pub change: Change,
}

/// Reads an event of type `contract` with these topics and data, each the XDR of an `ScVal`; none when it is not
/// an event of a passkey wallet.
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

/// The values of a map that has these keys and no others.
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

/// Reads a key as a wallet encodes it.
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

/// Whether an address is an account's or a contract's; contracts are not given others.
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

/// Reads how a signer with this key is.
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
            // Where the expiration is bare, there are always limits.
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

/// The one element of a tuple.
fn wrapped(value: &ScVal) -> Option<&ScVal> {
    match value::list(value)? {
        [value] => Some(value),
        _ => None,
    }
}

/// An option, whose value is read by `read`.
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
    fn kinds_stand_at_the_place_of_their_numbers_in_order() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert!(Kind::ALL.map(|kind| (kind.generation(), kind.name())).is_sorted());
    }
}
