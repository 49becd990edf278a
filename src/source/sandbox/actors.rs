//! The sandbox's accounts: derives their keys from the seed and signs with them.

use ed25519_dalek::{Signer, SigningKey};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, DecoratedSignature, MuxedAccount, NodeId, PublicKey, ScAddress, Signature,
    SignatureHint, Uint256,
};

use super::SandboxError;
use crate::domain::NetworkId;

/// One key pair and the account of the same name.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    key: SigningKey,
}

impl Actor {
    /// The network's first account, which holds all coins at genesis. As on every Stellar network
    /// its secret seed is the network id.
    pub(super) fn root(network: &NetworkId) -> Self {
        Self { key: SigningKey::from_bytes(network.as_bytes()) }
    }

    /// The actor that plays `role` for the `number`th time.
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

    /// The signature as an envelope carries it: with the last four bytes of the key as a hint.
    pub(super) fn decorated(&self, payload: &[u8]) -> Result<DecoratedSignature, SandboxError> {
        let [.., a, b, c, d] = self.public_key();
        Ok(DecoratedSignature {
            hint: SignatureHint([a, b, c, d]),
            signature: Signature(self.sign(payload).try_into()?),
        })
    }
}

/// Everyone who lives as long as the network does.
#[derive(Debug, Clone)]
pub(super) struct Cast {
    /// Holds all coins at genesis, creates accounts and pays for fee bumps.
    pub(super) root: Actor,
    /// Issues the sandbox's assets and administers their contracts.
    pub(super) issuer: Actor,
    /// Trade with one another.
    pub(super) traders: Vec<Actor>,
    /// Signs the value that closes a ledger.
    pub(super) validator: Actor,
}

impl Cast {
    pub(super) fn new(network: &NetworkId, seed: u64, traders: usize) -> Self {
        Self {
            root: Actor::root(network),
            issuer: Actor::derive(seed, "issuer", 0),
            traders: (0u32..).take(traders).map(|n| Actor::derive(seed, "trader", n)).collect(),
            validator: Actor::derive(seed, "validator", 0),
        }
    }
}
