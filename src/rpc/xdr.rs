//! Representation of XDR values in JSON-RPC responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use stellar_xdr::{Limits, ReadXdr};

use super::RpcError;
use super::json::Writer;
use super::params::XdrFormat;
use orrery_ledger::decode::DEEPEST;

/// Stack size in bytes: enough to decode and serialise any value that the network accepts, at any
/// nesting depth.
const STACK_BYTES: usize = 64 << 20;

/// Encodes XDR in standard base64.
pub(super) fn base64(xdr: &[u8]) -> String {
    STANDARD.encode(xdr)
}

/// Converts XDR to JSON with the XDR crate's serde implementation of the type (SEP-51).
///
/// # Errors
/// When the bytes are not XDR of this type, which means that a stored record is damaged.
pub(super) fn json<T: ReadXdr + Serialize>(xdr: &[u8]) -> Result<Box<RawValue>, RpcError> {
    read(xdr, |value: &T| Ok(to_raw_value(value)?))
}

/// Writes a value in the requested format.
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

/// Decodes stored XDR and passes the value to `work`.
///
/// # Errors
/// As [`json`], and the errors of `work`.
pub(super) fn read<T: ReadXdr, R>(
    xdr: &[u8],
    work: impl FnOnce(&T) -> Result<R, RpcError>,
) -> Result<R, RpcError> {
    with_stack(|| work(&decode(xdr)?))
}

/// Decodes stored XDR on the current stack, which has to be a deep one ([`with_stack`]).
///
/// # Errors
/// As [`json`].
pub(super) fn decode<T: ReadXdr>(xdr: &[u8]) -> Result<T, RpcError> {
    let limits = Limits { depth: DEEPEST, len: xdr.len() };
    T::from_xdr(xdr, limits).map_err(|error| {
        tracing::error!(%error, "stored XDR cannot be read");
        RpcError::internal("stored XDR cannot be read: run orrery verify")
    })
}

/// Runs `work` on a deep stack: the current one if at least half of [`STACK_BYTES`] is left, else a new
/// one.
pub(super) fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, work)
}

/// Runs `work` as [`with_stack`] does when the format is JSON. With base64, values are passed on as
/// they are stored and not decoded, so `work` runs on the current stack and the cost of another one
/// is saved.
pub(super) fn with_stack_for<T>(format: XdrFormat, work: impl FnOnce() -> T) -> T {
    match format {
        XdrFormat::Base64 => work(),
        XdrFormat::Json => with_stack(work),
    }
}
