//! The sandbox's accounts: derives their keys from the seed and signs with them.

use ed25519_dalek::{Signer, SigningKey};
use orrery_ledger::domain::NetworkId;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, DecoratedSignature, MuxedAccount, NodeId, PublicKey, ScAddress, Signature,
    SignatureHint, Uint256,
};

use super::error::Result;

/// A key pair and the account that its public key identifies.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    key: SigningKey,
}

impl Actor {
    /// Returns the network's first account, which holds all coins at genesis. As on every Stellar
    /// network its secret seed is the network id.
    pub(super) fn root(network: &NetworkId) -> Self {
        Self { key: SigningKey::from_bytes(network.as_bytes()) }
    }

    /// Derives the actor with this `role` and `number` from the seed.
    pub(super) fn derive(seed: u64, role: &str, number: u32) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"orrery sandbox actor");
        digest.update(seed.to_be_bytes());
        digest.update(number.to_be_bytes());
        digest.update(role.as_bytes());
        Self { key: SigningKey::from_bytes(&digest.finalize().into()) }
    }

    pub(super) fn public_key(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    pub(super) fn account(&self) -> AccountId {
        AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(self.public_key())))
    }

    pub(super) fn node(&self) -> NodeId {
        NodeId(PublicKey::PublicKeyTypeEd25519(Uint256(self.public_key())))
    }

    pub(super) fn muxed(&self) -> MuxedAccount {
        MuxedAccount::Ed25519(Uint256(self.public_key()))
    }

    pub(super) fn address(&self) -> ScAddress {
        ScAddress::Account(self.account())
    }

    pub(super) fn sign(&self, payload: &[u8]) -> [u8; 64] {
        self.key.sign(payload).to_bytes()
    }

    /// Returns the signature in the form that an envelope carries: with the last four bytes of the
    /// key as a hint.
    pub(super) fn decorated(&self, payload: &[u8]) -> Result<DecoratedSignature> {
        let [.., a, b, c, d] = self.public_key();
        Ok(DecoratedSignature {
            hint: SignatureHint([a, b, c, d]),
            signature: Signature(self.sign(payload).try_into()?),
        })
    }
}

/// The permanent accounts of the network.
#[derive(Debug, Clone)]
pub(super) struct PermanentAccounts {
    /// Account that holds all coins at genesis, creates accounts and pays for fee bumps.
    pub(super) root: Actor,
    /// Issuer of the sandbox's assets and administrator of their contracts.
    pub(super) issuer: Actor,
    /// Accounts that trade with one another.
    pub(super) traders: Vec<Actor>,
    /// Signer of the value that closes a ledger.
    pub(super) validator: Actor,
}

impl PermanentAccounts {
    pub(super) fn new(network: &NetworkId, seed: u64, traders: usize) -> Self {
        Self {
            root: Actor::root(network),
            issuer: Actor::derive(seed, "issuer", 0),
            traders: (0u32..).take(traders).map(|n| Actor::derive(seed, "trader", n)).collect(),
            validator: Self::validator(seed),
        }
    }

    pub(super) fn validator(seed: u64) -> Actor {
        Actor::derive(seed, "validator", 0)
    }
}
