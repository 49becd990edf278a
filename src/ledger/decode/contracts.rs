//! Collects the contracts that a transaction touches, as far as its envelope names them: those
//! whose instance is in the footprint, the contract that is invoked or created, the contracts in
//! authorization trees, and those that authorize.

use sha2::{Digest, Sha256};

use crate::domain::{ContractId, NetworkId};

use super::xdr::{
    Cursor, Depth, EnvelopeType, LedgerEntryType, Part, ScAddress, ScAddressType, ScValType, Visit,
    Xdr, XdrError,
};

/// Contracts found so far in the current envelope.
pub struct TouchedContracts<'n> {
    pub network: &'n NetworkId,
    /// Unordered, with repeats.
    pub found: Vec<ContractId>,
}

impl<'a> Visit<'a> for TouchedContracts<'_> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        match part {
            Part::FootprintKey => self.found.extend(instance(&mut Cursor::new(xdr))?),
            Part::Address => self.found.extend(contract(&mut Cursor::new(xdr))?),
            Part::Preimage => self.found.push(created(self.network, xdr)),
            _ => {}
        }
        Ok(())
    }
}

/// Returns the contract of a `LedgerKey` if it is the key of a contract's instance.
fn instance(key: &mut Cursor<'_>) -> Result<Option<ContractId>, XdrError> {
    if key.i32()? != LedgerEntryType::CONTRACT_DATA {
        return Ok(None);
    }
    let mut address = *key;
    ScAddress::skip(key, Depth::LIMIT)?;
    match key.i32()? {
        ScValType::LEDGER_KEY_CONTRACT_INSTANCE => contract(&mut address),
        _ => Ok(None),
    }
}

/// Returns the contract of an `SCAddress`, with or without a multiplexing id; `None` for other
/// addresses.
fn contract(address: &mut Cursor<'_>) -> Result<Option<ContractId>, XdrError> {
    match address.i32()? {
        ScAddressType::CONTRACT => {}
        ScAddressType::MUXED_CONTRACT => {
            address.u64()?;
        }
        _ => return Ok(None),
    }
    Ok(Some(ContractId(*address.array()?)))
}

/// Returns the contract that a `ContractIDPreimage` determines, whose id is the hash
/// `SHA-256(ENVELOPE_TYPE_CONTRACT_ID || network id || preimage)`.
fn created(network: &NetworkId, preimage: &[u8]) -> ContractId {
    let id = Sha256::new_with_prefix(EnvelopeType::CONTRACT_ID.to_be_bytes())
        .chain_update(network.as_bytes())
        .chain_update(preimage)
        .finalize();
    ContractId(id.into())
}
