//! The values of a logged event.

use stellar_xdr::{Limits, ReadXdr, ScBytes, ScVal};

use super::logged::LoggedEvent;

/// The nesting that the contract host allows in a value (`DEFAULT_XDR_RW_DEPTH_LIMIT`), and more bytes
/// than the events of a transaction may have.
const LIMITS: Limits = Limits { depth: 500, len: 4 << 20 };

/// Returns the values of an event. Values that are nested deeper than the network allows are bytes.
pub(super) fn values(event: &LoggedEvent<'_>) -> (Vec<ScVal>, ScVal) {
    let value = |xdr: &[u8]| {
        let raw = || ScVal::Bytes(ScBytes(xdr.to_vec().try_into().unwrap_or_default()));
        ScVal::from_xdr(xdr, LIMITS).unwrap_or_else(|_| raw())
    };
    (event.topics.iter().map(value).collect(), value(event.data))
}
