//! How XDR is spelled in answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use stellar_xdr::{Limits, ReadXdr};

use super::RpcError;
use super::json::Writer;
use super::params::XdrFormat;
use crate::decode::DEEPEST;

/// Stack on which whatever the network agreed on is read and spelled, however deeply it nests.
const STACK: usize = 64 << 20;

/// In standard base64.
pub(super) fn base64(xdr: &[u8]) -> String {
    STANDARD.encode(xdr)
}

/// As the XDR crate's serde implementation spells the type (SEP-51).
///
/// # Errors
/// When it is not XDR of this type, which what was stored always is.
pub(super) fn json<T: ReadXdr + Serialize>(xdr: &[u8]) -> Result<Box<RawValue>, RpcError> {
    read(xdr, |value: &T| Ok(to_raw_value(value)?))
}

/// Writes a value in the form that is asked for.
///
/// # Errors
/// As [`json`].
pub(super) fn write<T: ReadXdr + Serialize>(
    xdr: &[u8],
    format: XdrFormat,
    to: &mut Writer,
) -> Result<(), RpcError> {
    match format {
        XdrFormat::Base64 => to.base64(xdr),
        XdrFormat::Json => to.written(json::<T>(xdr)?.get()),
    }
    Ok(())
}

/// Reads stored XDR, and has `work` do something with it.
///
/// # Errors
/// As [`json`], and those of `work`.
pub(super) fn read<T: ReadXdr, R>(
    xdr: &[u8],
    work: impl FnOnce(&T) -> Result<R, RpcError>,
) -> Result<R, RpcError> {
    with_stack(|| {
        let limits = Limits { depth: DEEPEST, len: xdr.len() };
        let value = T::from_xdr(xdr, limits).map_err(|error| {
            tracing::error!(%error, "stored XDR cannot be read");
            RpcError::internal("stored XDR cannot be read: run orrery verify")
        })?;
        work(&value)
    })
}

/// Works on a stack that is deep enough; on the one at hand, if it is.
pub(super) fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK / 2, STACK, work)
}

/// The same for work that reads values only where they are not shown as they are stored: another stack has its price.
pub(super) fn with_stack_for<T>(format: XdrFormat, work: impl FnOnce() -> T) -> T {
    match format {
        XdrFormat::Base64 => work(),
        XdrFormat::Json => with_stack(work),
    }
}
