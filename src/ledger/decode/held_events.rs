//! Walks a `TransactionMeta` and collects all events that it contains, in its order, including
//! diagnostic events. [`super::decode`] decides which of them are events of the ledger.

use super::DecodeError;
use super::xdr::{self, Cursor, Depth, Xdr, XdrError, each};

/// XDR of the events in a transaction's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaEvents<'a> {
    /// Each a `TransactionEvent`: events of the transaction as a whole, since protocol 23.
    pub of_transaction: Vec<&'a [u8]>,
    /// Each a `ContractEvent`: one list per operation; before protocol 23, a single list and only
    /// for smart-contract transactions.
    pub of_operations: Vec<Vec<&'a [u8]>>,
    /// Each a `DiagnosticEvent`.
    pub diagnostic: Vec<&'a [u8]>,
}

impl<'a> MetaEvents<'a> {
    /// Returns the events of a `TransactionMeta`.
    ///
    /// # Errors
    /// When `meta` is not an XDR `TransactionMeta`.
    pub fn of(meta: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(meta);
        let mut events = Self::default();
        let walked = events.walk(&mut cursor, Depth::LIMIT).and_then(|()| cursor.finish());
        match walked {
            Ok(()) => Ok(events),
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

    /// Walks a `TransactionMetaV3`.
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

    /// Walks a `TransactionMetaV4`.
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

/// Returns the bytes of each element of a list.
fn list<'a, T: Xdr>(cursor: &mut Cursor<'a>, depth: Depth) -> Result<Vec<&'a [u8]>, XdrError> {
    let mut elements = Vec::new();
    each(cursor, depth, |cursor, depth| {
        elements.push(cursor.value::<T>(depth)?);
        Ok(())
    })?;
    Ok(elements)
}
