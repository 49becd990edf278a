//! Collects the contracts that a smart-contract transaction touches, as far as its envelope names
//! them.
//!
//! Reads parts that the walk has already skipped once, so classic transactions have no extra cost.

use sha2::{Digest, Sha256};

use crate::domain::{ContractId, NetworkId};

use super::envelope::SorobanParts;
use super::xdr::{
    self, Cursor, Depth, EnvelopeType, HostFunctionType, LedgerEntryType, OperationType,
    ScAddressType, ScValType, SorobanAuthorizedFunctionType, SorobanCredentialsType, Xdr, XdrError,
    each,
};

/// Collects touched contracts; see [`touched_contracts`].
struct Collector<'n> {
    network: &'n NetworkId,
    contracts: Vec<ContractId>,
}

/// Returns the contracts whose instance is in the footprint, the contract that is invoked or
/// created, the contracts in authorization trees, and those that authorize. Unordered, with
/// repeats.
pub fn touched_contracts(
    soroban: &SorobanParts<'_>,
    network: &NetworkId,
) -> Result<Vec<ContractId>, XdrError> {
    let mut collector = Collector { network, contracts: Vec::new() };
    collector.transaction_data(&mut Cursor::new(soroban.data), Depth::LIMIT)?;
    each(&mut Cursor::new(soroban.operations), Depth::LIMIT, |cursor, depth| {
        collector.operation(cursor, depth)
    })?;
    Ok(collector.contracts)
}

impl Collector<'_> {
    /// Walks `SorobanTransactionData` up to the end of its footprint.
    fn transaction_data(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        xdr::SorobanTransactionDataExt::skip(cursor, depth)?;
        for _ in ["readOnly", "readWrite"] {
            each(cursor, depth, |cursor, depth| {
                let key = *cursor;
                xdr::LedgerKey::skip(cursor, depth)?;
                self.instance_key(key, depth)
            })?;
        }
        Ok(())
    }

    /// Reads a `LedgerKey` and records its contract if it is the key of a contract's instance.
    fn instance_key(&mut self, mut key: Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        if key.i32()? != LedgerEntryType::CONTRACT_DATA {
            return Ok(());
        }
        let contract = contract_address(&mut key, depth)?;
        if key.i32()? == ScValType::LEDGER_KEY_CONTRACT_INSTANCE {
            self.contracts.extend(contract);
        }
        Ok(())
    }

    /// Walks an `Operation`.
    fn operation(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        xdr::Optional::<xdr::MuxedAccount>::skip(cursor, depth)?;
        let mut body = *cursor;
        xdr::OperationBody::skip(cursor, depth)?;
        if body.i32()? != OperationType::INVOKE_HOST_FUNCTION {
            return Ok(());
        }
        self.host_function(&mut body, depth)?;
        each(&mut body, depth, |cursor, depth| {
            // SorobanAuthorizationEntry
            self.credentials(cursor, depth)?;
            self.invocation(cursor, depth)
        })
    }

    /// Walks a `HostFunction`.
    fn host_function(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        let mut function = *cursor;
        xdr::HostFunction::skip(cursor, depth)?;
        match function.i32()? {
            HostFunctionType::INVOKE_CONTRACT => self.address(&mut function, depth),
            HostFunctionType::CREATE_CONTRACT | HostFunctionType::CREATE_CONTRACT_V2 => {
                self.created_contract(&mut function, depth)
            }
            _ => Ok(()),
        }
    }

    /// Walks a `SorobanAuthorizedInvocation`.
    fn invocation(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        let mut function = *cursor;
        xdr::SorobanAuthorizedFunction::skip(cursor, depth)?;
        match function.i32()? {
            SorobanAuthorizedFunctionType::CONTRACT_FN => self.address(&mut function, depth)?,
            _ => self.created_contract(&mut function, depth)?,
        }
        each(cursor, depth, |cursor, depth| self.invocation(cursor, depth))
    }

    /// Walks `SorobanCredentials`.
    fn credentials(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        use SorobanCredentialsType as Type;

        let kind = Type::read(cursor, depth)?;
        if kind == Type::SOURCE_ACCOUNT {
            return Ok(());
        }
        // SorobanAddressCredentials
        self.address(cursor, depth)?;
        xdr::Int64::skip(cursor, depth)?;
        xdr::Uint32::skip(cursor, depth)?;
        xdr::ScVal::skip(cursor, depth)?;
        if kind == Type::ADDRESS_WITH_DELEGATES {
            each(cursor, depth, |cursor, depth| self.delegate(cursor, depth))?;
        }
        Ok(())
    }

    /// Walks a `SorobanDelegateSignature`.
    fn delegate(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        self.address(cursor, depth)?;
        xdr::ScVal::skip(cursor, depth)?;
        each(cursor, depth, |cursor, depth| self.delegate(cursor, depth))
    }

    /// Reads an `SCAddress` and records it if it is a contract.
    fn address(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        self.contracts.extend(contract_address(cursor, depth)?);
        Ok(())
    }

    /// Reads a `ContractIDPreimage` and records the contract, whose id is the hash
    /// `SHA-256(ENVELOPE_TYPE_CONTRACT_ID || network id || preimage)`.
    fn created_contract(&mut self, cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        let preimage = cursor.value::<xdr::ContractIdPreimage>(depth)?;
        let id = Sha256::new_with_prefix(EnvelopeType::CONTRACT_ID.to_be_bytes())
            .chain_update(self.network.as_bytes())
            .chain_update(preimage)
            .finalize();
        self.contracts.push(ContractId(id.into()));
        Ok(())
    }
}

/// Returns the contract of an `SCAddress`, with or without a multiplexing id; `None` for other
/// addresses.
fn contract_address(cursor: &mut Cursor<'_>, depth: Depth) -> Result<Option<ContractId>, XdrError> {
    let mut address = *cursor;
    xdr::ScAddress::skip(cursor, depth)?;
    match address.i32()? {
        ScAddressType::CONTRACT => {}
        ScAddressType::MUXED_CONTRACT => {
            address.u64()?;
        }
        _ => return Ok(None),
    }
    Ok(Some(ContractId(*address.array()?)))
}
