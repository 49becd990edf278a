//! Tables of the passkey wallet index, and what is stored in them.

use stellar_xdr::{Limits, ReadXdr, ScAddress};

use super::event::{self, Generation, Key, Kind, Storage};
use super::fold::{Entry, Put, Wallet};
use crate::stats::STATS;
use crate::{Position, Tag, value};
use orrery_ledger::domain::ContractId;
use orrery_store::{RowCodec, Table, row_codec};

pub(super) const LOG: Table<(ContractId, Position), Kind> = Table::new("log");
pub(super) const WALLETS: Table<ContractId, Stored> = Table::new("wallets");
pub(super) const SIGNERS: Table<(ContractId, Key), Signer> = Table::new("signers");
/// Keys of signers in the order of the events that first put them.
pub(super) const ORDER: Table<(ContractId, Position), Key> = Table::new("order");
/// The wallet of each active signer, by tag and by the event that first put the signer.
pub(super) const KEYS: Table<(Tag, Position), ContractId> = Table::new("keys");
/// Credential ids that a wallet has or had.
pub(super) const CREDENTIALS: Table<Tag, ()> = Table::new("credentials");

pub(super) const FAMILIES: &[&str] = &[
    LOG.family,
    WALLETS.family,
    SIGNERS.family,
    ORDER.family,
    KEYS.family,
    CREDENTIALS.family,
    STATS.family,
];

/// Stored value of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub wallet: Wallet,
    /// Number of signers that the wallet has or had.
    pub signers: u32,
    /// Number of signers that were not removed.
    pub active: u32,
}

impl RowCodec for Stored {
    fn write(&self, to: &mut Vec<u8>) {
        let Self { wallet: Wallet { first, last, generation }, signers, active } = *self;
        (first, last).write(to);
        (generation as u32, (signers, active)).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (first, last) = RowCodec::read(bytes)?;
        let (generation, (signers, active)) = <(u32, _)>::read(bytes)?;
        let generation = *Generation::ALL.get(usize::try_from(generation).ok()?)?;
        Some(Self { wallet: Wallet { first, last, generation }, signers, active })
    }
}

/// Properties of a signer as XDR, and what is needed to parse them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub generation: Generation,
    pub storage: Storage,
    pub encoded: Vec<u8>,
}

row_codec!(Value { generation, storage, encoded });
row_codec!(Put<Value> { first, last, value });

/// Stored state of one signer.
pub(super) type Signer = Entry<Value>;

impl RowCodec for Signer {
    fn write(&self, to: &mut Vec<u8>) {
        self.removed.unwrap_or(Position::NONE).write(to);
        if let Some(put) = &self.put {
            put.write(to);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let removed = Position::read(bytes)?.known();
        let put = if bytes.is_empty() { None } else { Some(Put::read(bytes)?) };
        Some(Self { put, removed })
    }
}

impl Signer {
    /// Returns the signer's last properties; `None` when it was never put, or when the stored bytes
    /// do not parse.
    pub(super) fn properties(&self, key: &Key) -> Option<event::Signer> {
        let Value { generation, storage, encoded } = &self.put.as_ref()?.value;
        event::signer(key, &value::parse(encoded)?, *storage, *generation)
    }
}

impl RowCodec for Key {
    fn write(&self, to: &mut Vec<u8>) {
        let (kind, bytes) = match self {
            Self::Secp256r1(credential) => (0u8, credential.clone()),
            Self::Ed25519(public_key) => (1, public_key.to_vec()),
            Self::Policy(address) => (2, value::xdr(address)),
        };
        (kind, bytes).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (kind, bytes) = <(u8, Vec<u8>)>::read(bytes)?;
        match kind {
            0 => Some(Self::Secp256r1(bytes)),
            1 => bytes.try_into().ok().map(Self::Ed25519),
            2 => ScAddress::from_xdr(bytes, Limits { depth: 8, len: 64 }).ok().map(Self::Policy),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_bytes_are_as_ever() {
        let contract = ContractId([1; 32]);
        let at = |ledger| Position { ledger, application_order: 3, event_index: 4 };
        let position = |ledger: u32| format!("{ledger:08x}0000000300000004");
        let keys = [
            (Key::Secp256r1(vec![7, 8, 9]), "00070809".to_owned()),
            (Key::Ed25519([6; 32]), format!("01{}", "06".repeat(32))),
            (
                Key::Policy(ScAddress::Contract(stellar_xdr::ContractId([5; 32].into()))),
                format!("0200000001{}", "05".repeat(32)),
            ),
        ];
        for (key, bytes) in keys {
            let row_key = (contract, key);
            let expected = format!("{}{bytes}", "01".repeat(32));
            assert_eq!(hex::encode(row_key.encode()), expected);
            assert_eq!(<(ContractId, Key)>::decode(&row_key.encode()), Some(row_key));
        }
        for damaged in [&[][..], &[1, 2], &[2, 0, 0], &[3]] {
            assert_eq!(Key::decode(damaged), None);
        }

        let wallet = Wallet { first: at(1), last: at(258), generation: Generation::V1 };
        let stored = Stored { wallet, signers: 9, active: 8 };
        let expected = format!("{}{}000000010000000900000008", position(1), position(258));
        assert_eq!(hex::encode(stored.encode()), expected);
        assert_eq!(Stored::decode(&stored.encode()), Some(stored));

        let value = Value {
            generation: Generation::V1,
            storage: Storage::Temporary,
            encoded: vec![0xaa, 0xbb],
        };
        let put = Put { first: at(1), last: at(258), value };
        let put_bytes = format!("{}{}0101aabb", position(1), position(258));
        let none = "0".repeat(24);
        for (signer, expected) in [
            (Signer { put: Some(put.clone()), removed: Some(at(2)) }, position(2) + &put_bytes),
            (Signer { put: Some(put), removed: None }, none.clone() + &put_bytes),
            (Signer { put: None, removed: Some(at(2)) }, position(2)),
            (Signer::default(), none),
        ] {
            assert_eq!(hex::encode(signer.encode()), expected);
            assert_eq!(Signer::decode(&signer.encode()), Some(signer));
        }
    }
}
