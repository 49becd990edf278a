//! Events of accounts as contracts make them, written from the tables of the reference.

use orrery_ledger::domain::ContractId;
use stellar_xdr::{
    AccountId, ContractId as XdrContract, Hash, Limits, PublicKey, ScAddress, ScVal, Uint256,
    WriteXdr,
};

use super::values::{bytes, fields, list, string, symbol};

/// An event as its contract emits it.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    pub topics: Vec<ScVal>,
    pub data: ScVal,
}

impl Made {
    pub fn new(topics: impl Into<Vec<ScVal>>, data: ScVal) -> Self {
        Self { topics: topics.into(), data }
    }

    pub fn topics_xdr(&self) -> Vec<Vec<u8>> {
        self.topics.iter().map(xdr).collect()
    }

    pub fn data_xdr(&self) -> Vec<u8> {
        xdr(&self.data)
    }
}

pub fn xdr(value: &ScVal) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}

pub fn number(value: u32) -> ScVal {
    ScVal::U32(value)
}

pub fn contract(number: u8) -> ScAddress {
    ScAddress::Contract(XdrContract(Hash([number; 32])))
}

pub fn account(number: u8) -> ScAddress {
    ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([number; 32]))))
}

pub fn address(address: &ScAddress) -> ScVal {
    ScVal::Address(address.clone())
}

/// Returns bytes with the length and the first byte of an uncompressed public key.
pub fn public_key(number: u8) -> Vec<u8> {
    let mut key = vec![number; 65];
    key[0] = 4;
    key
}

/// Returns a contract id whose first and last two bytes depend on `number`.
pub fn contract_id(number: u16) -> ContractId {
    let mut id = [0x5a; 32];
    // Spreads the first bytes, so that the order of the strkeys differs from that of the bytes.
    id[..2].copy_from_slice(&number.wrapping_mul(40_503).to_be_bytes());
    id[30..].copy_from_slice(&number.to_be_bytes());
    ContractId(id)
}

/// Events of smart accounts.
pub mod smart {
    use super::*;

    pub fn event(name: &str, id: u32, data: ScVal) -> Made {
        Made::new([symbol(name), number(id)], data)
    }

    pub fn empty() -> ScVal {
        fields([])
    }

    pub fn ids(ids: &[u32]) -> ScVal {
        list(ids.iter().copied().map(number))
    }

    pub fn default_context() -> ScVal {
        list([symbol("Default")])
    }

    pub fn delegated(who: &ScAddress) -> ScVal {
        list([symbol("Delegated"), address(who)])
    }

    pub fn native(who: &ScAddress) -> ScVal {
        list([symbol("Native"), address(who)])
    }

    pub fn external(verifier: &ScAddress, key: &[u8]) -> ScVal {
        list([symbol("External"), address(verifier), bytes(key)])
    }

    /// Returns the key of a passkey signer: a public key followed by the credential id.
    pub fn passkey(credential: &[u8]) -> Vec<u8> {
        [&public_key(7), credential].concat()
    }

    pub fn rule_by_ids(id: u32, signers: &[u32], policies: &[u32]) -> Made {
        let data = fields([
            ("context_type", default_context()),
            ("name", string("rule")),
            ("policy_ids", ids(policies)),
            ("signer_ids", ids(signers)),
            ("valid_until", ScVal::Void),
        ]);
        event("context_rule_added", id, data)
    }

    pub fn rule_inline(id: u32, signers: &[ScVal], policies: &[ScAddress]) -> Made {
        let data = fields([
            ("context_type", default_context()),
            ("name", string("rule")),
            ("policies", list(policies.iter().map(address))),
            ("signers", list(signers.iter().cloned())),
            ("valid_until", number(99)),
        ]);
        event("context_rule_added", id, data)
    }
}

/// Events of passkey wallets.
pub mod passkey {
    use super::*;

    pub fn secp256r1(credential: &[u8]) -> ScVal {
        list([symbol("Secp256r1"), bytes(credential)])
    }

    pub fn ed25519(number: u8) -> ScVal {
        list([symbol("Ed25519"), bytes(&[number; 32])])
    }

    pub fn policy(who: &ScAddress) -> ScVal {
        list([symbol("Policy"), address(who)])
    }

    pub fn storage(name: &str) -> ScVal {
        list([symbol(name)])
    }

    pub fn wrapped(value: ScVal) -> ScVal {
        list([value])
    }

    /// Returns the value of a signer: its kind, its public key if it has one, and `rest`.
    pub fn val(key: &ScVal, rest: impl IntoIterator<Item = ScVal>) -> ScVal {
        let ScVal::Vec(Some(parts)) = key else { panic!("a key is a list") };
        let kind = parts[0].clone();
        let public_key = (kind == symbol("Secp256r1")).then(|| bytes(&public_key(9)));
        list([kind].into_iter().chain(public_key).chain(rest))
    }

    /// Returns the value of a signer without expiration and limits, in the layout of v1, which is
    /// also the wrapped layout of legacy contracts.
    pub fn unlimited(key: &ScVal) -> ScVal {
        val(key, [wrapped(ScVal::Void), wrapped(ScVal::Void)])
    }

    pub fn added(key: &ScVal, val: ScVal, storage: ScVal) -> Made {
        let data = fields([("storage", storage), ("val", val)]);
        Made::new([symbol("signer_added"), key.clone()], data)
    }

    pub fn updated(key: &ScVal, val: ScVal, old: ScVal, storage: ScVal) -> Made {
        let data = fields([("old_storage", old), ("storage", storage), ("val", val)]);
        Made::new([symbol("signer_updated"), key.clone()], data)
    }

    pub fn removed(key: &ScVal, storage: ScVal) -> Made {
        Made::new([symbol("signer_removed"), key.clone()], fields([("storage", storage)]))
    }

    pub fn upgraded(old: Option<[u8; 32]>) -> Made {
        let old = old.map_or(ScVal::Void, |hash| bytes(&hash));
        let data = fields([("new_hash", bytes(&[1; 32])), ("old_hash", old)]);
        Made::new([symbol("upgraded")], data)
    }

    pub fn legacy(action: &str, key: &ScVal, data: ScVal) -> Made {
        Made::new([symbol("sw_v1"), symbol(action), key.clone()], data)
    }
}
