//! Collects the envelopes of the transaction set, each with its hash and its accounts. Does not
//! depend on transaction results.

use std::mem;

use sha2::{Digest, Sha256};

use crate::domain::{ContractId, Hash32, NetworkId, TxHash};

use super::contracts::TouchedContracts;
use super::error::DecodeError;
use super::view::MuxedAccountView;
use super::walk::walk;
use super::xdr::{CryptoKeyType, EnvelopeType, Part, TransactionEnvelope, Visit, XdrError};

/// A transaction as it was submitted.
pub struct Envelope<'a> {
    /// XDR `TransactionEnvelope`.
    pub xdr: &'a [u8],
    /// Hash of the transaction; of the outer transaction for a fee bump.
    pub hash: TxHash,
    /// Hash of the inner transaction of a fee bump; `None` for other transactions.
    pub inner_hash: Option<TxHash>,
    /// Source of the (inner) transaction.
    pub source_account: MuxedAccountView<'a>,
    /// Fee source of a fee bump; otherwise the source account.
    pub fee_account: MuxedAccountView<'a>,
    /// Contracts that a smart-contract transaction names, unordered and with repeats; `None` for a
    /// classic transaction.
    pub contracts: Option<Vec<ContractId>>,
}

/// Envelopes found so far, in the order of the transaction set, and the parts of the current one.
pub struct Envelopes<'a, 'n> {
    pub complete: Vec<Envelope<'a>>,
    hash: TxHash,
    inner_hash: Option<TxHash>,
    source: MuxedAccountView<'a>,
    fee_source: Option<MuxedAccountView<'a>>,
    is_smart_contract: bool,
    contracts: TouchedContracts<'n>,
}

impl<'a, 'n> Envelopes<'a, 'n> {
    /// Creates an empty collection.
    pub fn new(network: &'n NetworkId) -> Self {
        Self {
            complete: Vec::new(),
            hash: TxHash::default(),
            inner_hash: None,
            source: MuxedAccountView { ed25519: &[0; 32], id: None },
            fee_source: None,
            is_smart_contract: false,
            contracts: TouchedContracts { network, found: Vec::new() },
        }
    }

    /// Adds the envelope that consists of the parts found.
    fn add(&mut self, xdr: &'a [u8]) {
        let contracts = mem::take(&mut self.contracts.found);
        self.complete.push(Envelope {
            xdr,
            hash: self.hash,
            inner_hash: self.inner_hash.take(),
            source_account: self.source,
            fee_account: self.fee_source.take().unwrap_or(self.source),
            contracts: mem::take(&mut self.is_smart_contract).then_some(contracts),
        });
    }

    /// Returns `SHA-256(network id || types || transaction)`, the hash of a
    /// `TransactionSignaturePayload`.
    fn hash(&self, types: &[i32], transaction: &[u8]) -> TxHash {
        let mut hasher = Sha256::new_with_prefix(self.contracts.network.as_bytes());
        for value in types {
            hasher.update(value.to_be_bytes());
        }
        hasher.update(transaction);
        Hash32(hasher.finalize().into())
    }
}

impl<'a> Visit<'a> for Envelopes<'a, '_> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        self.contracts.visit(part, xdr)?;
        match part {
            Part::Source | Part::SourceV0 => self.source = account(xdr)?,
            Part::FeeSource => self.fee_source = Some(account(xdr)?),
            Part::SorobanData => self.is_smart_contract = true,
            Part::SignedTransaction => self.hash = self.hash(&[EnvelopeType::TX], xdr),
            // Differs from a `Transaction` in the type of its source, and is hashed as the
            // equivalent `Transaction`.
            Part::SignedTransactionV0 => {
                self.hash = self.hash(&[EnvelopeType::TX, CryptoKeyType::ED25519], xdr);
            }
            Part::SignedFeeBump => {
                self.inner_hash = Some(self.hash);
                self.hash = self.hash(&[EnvelopeType::TX_FEE_BUMP], xdr);
            }
            Part::Envelope => self.add(xdr),
            _ => {}
        }
        Ok(())
    }
}

/// Returns the contracts that an XDR `TransactionEnvelope` names: instances in the footprint, the
/// invoked or created contract, contracts in authorization trees. Unordered, with repeats.
///
/// # Errors
/// When the bytes are not an envelope.
pub fn named_contracts(
    envelope: &[u8],
    network: &NetworkId,
) -> Result<Vec<ContractId>, DecodeError> {
    let mut contracts = TouchedContracts { network, found: Vec::new() };
    walk::<TransactionEnvelope>(envelope, &mut contracts)?;
    Ok(contracts.found)
}

/// Returns the keys in the footprint of an XDR `TransactionEnvelope`, each an XDR `LedgerKey`: those
/// that are only read, then those that may be written.
///
/// # Errors
/// When the bytes are not an envelope.
pub fn footprint_keys(envelope: &[u8]) -> Result<Vec<&[u8]>, DecodeError> {
    let mut keys = FootprintKeys(Vec::new());
    walk::<TransactionEnvelope>(envelope, &mut keys)?;
    Ok(keys.0)
}

struct FootprintKeys<'a>(Vec<&'a [u8]>);

impl<'a> Visit<'a> for FootprintKeys<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        if part == Part::FootprintKey {
            self.0.push(xdr);
        }
        Ok(())
    }
}

/// Reads a `MuxedAccount`, or the bare key of a transaction of version 0. All of them end with the
/// key; the id of a muxed account is between its kind and its key.
fn account(xdr: &[u8]) -> Result<MuxedAccountView<'_>, XdrError> {
    let (before, ed25519) = xdr.split_last_chunk().ok_or(XdrError::UnexpectedEnd)?;
    Ok(MuxedAccountView { ed25519, id: before.last_chunk().copied().map(u64::from_be_bytes) })
}
