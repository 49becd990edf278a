//! The row of a ledger in `evicted`: the contract data that the ledger evicted, whose keys no record
//! has. Raw ledgers, which list them, are removed; these rows stay.

use orrery_ledger::decode::{EntryKey, EntryKind};
use orrery_ledger::domain::{ContractId, Hash32};
use sha2::{Digest, Sha256};

use super::bytes::Malformed;
use super::row_codec::RowCodec;

/// Contract data that a ledger evicted after all its other changes (CAP-62): temporary data is deleted,
/// persistent data is archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evicted {
    /// The contract.
    pub contract: ContractId,
    /// SHA-256 of the XDR `LedgerKey`.
    pub key_hash: Hash32,
    /// Whether it is temporary.
    pub temporary: bool,
}

/// Returns the row for the keys that a ledger evicted. Keys of anything but data of contracts are left
/// out, and nonces, which are never looked up.
pub(crate) fn encode(keys: &[EntryKey<'_>]) -> Vec<u8> {
    let mut row = Vec::new();
    for Evicted { contract, key_hash, temporary } in keys.iter().filter_map(evicted) {
        (contract, (key_hash, temporary)).write(&mut row);
    }
    row
}

fn evicted(key: &EntryKey<'_>) -> Option<Evicted> {
    // `TEMPORARY`, which is at the end of a key, and `SCV_LEDGER_KEY_NONCE`, which follows the contract.
    const TEMPORARY: [u8; 4] = [0; 4];
    const NONCE: [u8; 4] = [0, 0, 0, 21];
    let contract = key.contract().filter(|_| key.kind == EntryKind::ContractData)?;
    let scval = key.body.get(4 + size_of::<ContractId>()..)?;
    let hash = Sha256::new_with_prefix(key.prefix()).chain_update(key.body).finalize();
    (!scval.starts_with(&NONCE)).then(|| Evicted {
        contract,
        key_hash: Hash32(hash.into()),
        temporary: key.body.ends_with(&TEMPORARY),
    })
}

/// Decodes a row.
pub(crate) fn decode(mut row: &[u8]) -> Result<Vec<Evicted>, Malformed> {
    let mut evicted = Vec::new();
    while !row.is_empty() {
        let (contract, (key_hash, temporary)) = RowCodec::read(&mut row).ok_or(Malformed)?;
        evicted.push(Evicted { contract, key_hash, temporary });
    }
    Ok(evicted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_data_of_contracts() {
        let body = |scval: u8, durability: u8| {
            [&[0, 0, 0, 1][..], &[7; 32], &[0, 0, 0, scval], &[1; 8], &[0, 0, 0, durability]]
                .concat()
        };
        let bodies = [body(3, 0), body(21, 0), body(3, 1)];
        let keys = bodies.each_ref().map(|body| EntryKey { kind: EntryKind::ContractData, body });
        let others = [EntryKind::ContractCode, EntryKind::Ttl];
        let others = others.map(|kind| EntryKey { kind, body: &bodies[0] });
        let row = encode(&[&keys[..], &others].concat());
        let found = decode(&row).unwrap();
        let expected = [(&keys[0], true), (&keys[2], false)].map(|(key, temporary)| Evicted {
            contract: ContractId([7; 32]),
            key_hash: Hash32(Sha256::digest(key.to_ledger_key()).into()),
            temporary,
        });
        assert_eq!(found, expected);
        assert_eq!((decode(&[]), decode(&row[1..])), (Ok(Vec::new()), Err(Malformed)));
    }
}
