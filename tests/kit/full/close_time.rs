//! The close time in milliseconds (CAP-88).

use stellar_xdr as x;

use orrery_ledger::decode::DecodeError;
use orrery_ledger::domain::LedgerSeq;

/// Close time in milliseconds that the validators agreed on; `None` when they agreed on seconds
/// only.
pub(super) fn milliseconds(
    ledger: LedgerSeq,
    agreed: &x::StellarValue,
) -> Result<Option<u64>, DecodeError> {
    let milliseconds = match &agreed.ext {
        x::StellarValueExt::SignedMs(value) => value.close_time_ms.0,
        x::StellarValueExt::EmptyTxSetMs(value) => value.close_time_ms.0,
        _ => return Ok(None),
    };
    let seconds = agreed.close_time.0;
    match milliseconds / 1000 == seconds {
        true => Ok(Some(milliseconds)),
        false => Err(DecodeError::CloseTimes { ledger, seconds, milliseconds }),
    }
}
