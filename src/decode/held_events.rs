//! Walks a `TransactionMeta` for all events that it holds, as they stand in it, diagnostic ones among them. What of them
//! counts as an event of the ledger is the business of [`super::decode`].

use super::DecodeError;
use super::xdr::{self, Cursor, Depth, Xdr, XdrError, each};

/// XDR of the events in a transaction's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldEvents<'a> {
    /// `TransactionEvent`: of the transaction as a whole, since protocol 23.
    pub of_transaction: Vec<&'a [u8]>,
    /// `ContractEvent`: a list for each operation; before protocol 23 one in all, of smart-contract transactions.
    pub of_operations: Vec<Vec<&'a [u8]>>,
    /// `DiagnosticEvent`.
    pub diagnostic: Vec<&'a [u8]>,
}

impl<'a> HeldEvents<'a> {
    /// Those of a `TransactionMeta`.
    ///
    /// # Errors
    /// When these are not the bytes of one.
    pub fn of(meta: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(meta);
        let mut held = Self::default();
        let walked = held.walk(&mut cursor, Depth::LIMIT).and_then(|()| cursor.finish());
        match walked {
            Ok(()) => Ok(held),
            Err(reason) => Err(DecodeError::undecodable(meta, reason, cursor.position())),
        }
    }

    fn walk(&mut self, cursor: &mut Cursor<'a>, depth: Depth) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        match cursor.u32()? {
            0 => xdr::VarArray::<xdr::OperationMeta>::skip(cursor, depth),
            1 => xdr::TransactionMetaV1::skip(cursor, depth),
            2 => xdr::TransactionMetaV2::skip(cursor, depth),
            3 => self.version_3(cursor, depth),
            4 => self.version_4(cursor, depth),
            _ => Err(XdrError::UnknownValue),
        }
    }

    /// `TransactionMetaV3`
    fn version_3(&mut self, cursor: &mut Cursor<'a>, depth: Depth) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        xdr::ExtensionPoint::skip(cursor, depth)?;
        xdr::LedgerEntryChanges::skip(cursor, depth)?;
        xdr::VarArray::<xdr::OperationMeta>::skip(cursor, depth)?;
        xdr::LedgerEntryChanges::skip(cursor, depth)?;
        if !cursor.flag()? {
            return Ok(());
        }
        // SorobanTransactionMeta
        let depth = depth.enter()?.enter()?;
        xdr::SorobanTransactionMetaExt::skip(cursor, depth)?;
        self.of_operations.push(list::<xdr::ContractEvent>(cursor, depth)?);
        // returnValue
        xdr::ScVal::skip(cursor, depth)?;
        self.diagnostic = list::<xdr::DiagnosticEvent>(cursor, depth)?;
        Ok(())
    }

    /// `TransactionMetaV4`
    fn version_4(&mut self, cursor: &mut Cursor<'a>, depth: Depth) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        xdr::ExtensionPoint::skip(cursor, depth)?;
        xdr::LedgerEntryChanges::skip(cursor, depth)?;
        each(cursor, depth, |cursor, depth| {
            // OperationMetaV2
            let depth = depth.enter()?;
            xdr::ExtensionPoint::skip(cursor, depth)?;
            xdr::LedgerEntryChanges::skip(cursor, depth)?;
            self.of_operations.push(list::<xdr::ContractEvent>(cursor, depth)?);
            Ok(())
        })?;
        xdr::LedgerEntryChanges::skip(cursor, depth)?;
        xdr::Optional::<xdr::SorobanTransactionMetaV2>::skip(cursor, depth)?;
        self.of_transaction = list::<xdr::TransactionEvent>(cursor, depth)?;
        self.diagnostic = list::<xdr::DiagnosticEvent>(cursor, depth)?;
        Ok(())
    }
}

/// The bytes of each element of a list.
fn list<'a, T: Xdr>(cursor: &mut Cursor<'a>, depth: Depth) -> Result<Vec<&'a [u8]>, XdrError> {
    let mut elements = Vec::new();
    each(cursor, depth, |cursor, depth| {
        elements.push(cursor.value::<T>(depth)?);
        Ok(())
    })?;
    Ok(elements)
}
