//! What the result of a successful transaction says about its operations.

use sha2::{Digest, Sha256};

use crate::decode::xdr::{
    Cursor, Depth, InvokeHostFunctionResultCode, OperationResult, OperationResultCode,
    OperationType, TransactionResultCode as Code, Xdr, XdrError,
};

/// The operations of a successful transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// Their number.
    pub operations: u32,
    /// The operation that invokes the host, and the hash in its result; `None` for other
    /// transactions.
    pub invocation: Option<(u32, &'a [u8; 32])>,
}

impl<'a> Outcome<'a> {
    /// Reads an XDR `TransactionResult` of a transaction of any kind; `None` unless it is successful.
    ///
    /// # Errors
    /// When the bytes are not a result.
    pub fn of_successful(result: &'a [u8]) -> Result<Option<Self>, XdrError> {
        let cursor = &mut Cursor::new(result);
        cursor.i64()?;
        match cursor.i32()? {
            Code::SUCCESS | Code::FEE_BUMP_INNER_SUCCESS => Self::of_result(result, true).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads an XDR `TransactionResult` of a successful transaction; of a fee bump, the inner
    /// result. Looks for an invocation only if `smart_contract` is set.
    ///
    /// # Errors
    /// When the bytes are not such a result.
    pub fn of_result(result: &'a [u8], smart_contract: bool) -> Result<Self, XdrError> {
        let cursor = &mut Cursor::new(result);
        cursor.i64()?;
        if cursor.i32()? == Code::FEE_BUMP_INNER_SUCCESS {
            // The hash of the inner transaction and its fee.
            cursor.take(32 + 8)?;
            if cursor.i32()? != Code::SUCCESS {
                return Err(XdrError::UnknownValue);
            }
        }
        let operations = cursor.u32()?;
        let mut invocation = None;
        if smart_contract {
            for operation in 0..operations {
                if let Some(hash) = invoked(*cursor) {
                    invocation = Some((operation, hash));
                }
                OperationResult::skip(cursor, Depth::LIMIT)?;
            }
        }
        Ok(Self { operations, invocation })
    }
}

/// Returns the hash in an `OperationResult`, if it is that of a successful `InvokeHostFunction`.
fn invoked<'a>(mut result: Cursor<'a>) -> Option<&'a [u8; 32]> {
    let is = |found: Result<i32, XdrError>, wanted: i32| found == Ok(wanted);
    (is(result.i32(), OperationResultCode::INNER)
        && is(result.i32(), OperationType::INVOKE_HOST_FUNCTION)
        && is(result.i32(), InvokeHostFunctionResultCode::SUCCESS))
    .then(|| result.array().ok())
    .flatten()
}

/// Returns the hash of an `InvokeHostFunctionSuccessPreImage`.
pub(crate) fn hash_invocation<'a>(
    return_value: &[u8],
    events: impl ExactSizeIterator<Item = &'a [u8]>,
) -> [u8; 32] {
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let mut hasher = Sha256::new_with_prefix(return_value);
    hasher.update(count.to_be_bytes());
    events.for_each(|event| hasher.update(event));
    hasher.finalize().into()
}
