//! Decodes base64-encoded XDR in the answers of servers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stellar_xdr::{Limits, ReadXdr, VecM};

/// Maximum XDR nesting depth of a decoded value.
const DEPTH: u32 = 500;

/// Decodes a value from base64-encoded XDR; returns `None` when the base64 or the XDR is invalid.
pub(crate) fn from_base64<T: ReadXdr>(base64: &str) -> Option<T> {
    let xdr = STANDARD.decode(base64).ok()?;
    T::from_xdr(&xdr, Limits { depth: DEPTH, len: xdr.len() }).ok()
}

/// Decodes an XDR array from base64; returns `None` when the base64 or the XDR is invalid.
pub(crate) fn all_from_base64<T>(base64: &str) -> Option<Vec<T>>
where
    VecM<T>: ReadXdr,
{
    from_base64::<VecM<T>>(base64).map(Into::into)
}
