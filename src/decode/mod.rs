//! Bytes to [`LedgerView`]: one borrowed view of a closed ledger for every consumer. Pure; does no I/O.
//!
//! [`decode`] walks the bytes and borrows from them. Tests have a second implementation, which decodes
//! everything with `stellar-xdr`, and compare the two.
//!
//! The walk goes through the files in this order: `ledger` from the first byte to the last, with
//! `envelope` for the transaction set and `meta` and `events` for what happened; `xdr` passes
//! over everything else; `matching`, `contracts` and `changes` make the view of what was found.

mod changes;
mod contracts;
mod envelope;
mod error;
mod events;
mod held_events;
mod ledger;
mod matching;
mod meta;
mod view;
mod xdr;

use crate::domain::NetworkId;
use xdr::Xdr;

pub use changes::{
    ChangeKind, EntryChange, EntryKey, EntryKind, LedgerChanges, TransactionChanges,
    changed_entries, ledger_changes, transaction_changes,
};
pub use error::DecodeError;
pub use held_events::HeldEvents;
pub use view::{
    EventType, EventView, HeaderView, LedgerView, MuxedAccountView, Placement, TransactionView,
};
pub use xdr::{DEEPEST, XdrError};

/// The newest protocol whose ledgers this version is made for: that of `stellar-xdr`'s definitions.
/// A newer ledger that still decodes is not refused, but is worth a warning to upgrade.
pub const MAX_PROTOCOL: u32 = 30;

/// A sentence for the operator about a ledger that decodes, but is of a protocol that this version
/// does not know: its numbers may have come to mean something else.
pub fn protocol_warning(header: &HeaderView<'_>) -> Option<String> {
    let HeaderView { sequence, protocol, .. } = header;
    (*protocol > MAX_PROTOCOL).then(|| {
        format!(
            "ledger {sequence} is of protocol {protocol}, and this version of Orrery is made for \
             protocols up to {MAX_PROTOCOL}: upgrade Orrery before a ledger comes that it cannot \
             decode"
        )
    })
}

/// Finds everything that consumers ask for in the bytes of one `LedgerCloseMeta`.
///
/// # Errors
///
/// When the bytes are not exactly one `LedgerCloseMeta`, or when its envelopes and results do not
/// belong together on this network.
pub fn decode<'a>(raw: &'a [u8], network: &NetworkId) -> Result<LedgerView<'a>, DecodeError> {
    let mut cursor = xdr::Cursor::new(raw);
    let walked = ledger::close_meta(&mut cursor, network)
        .map_err(|reason| DecodeError::undecodable(raw, reason, cursor.position()))?;
    matching::ledger_view(raw, walked, network)
}

/// Finds the header of a `LedgerCloseMeta`, and does not look at what follows it.
///
/// # Errors
///
/// When the bytes do not begin as a `LedgerCloseMeta` does.
pub fn header(raw: &[u8]) -> Result<HeaderView<'_>, DecodeError> {
    let mut cursor = xdr::Cursor::new(raw);
    match ledger::close_meta_header(&mut cursor) {
        Ok((_, header, _)) => Ok(header),
        Err(reason) => Err(DecodeError::undecodable(raw, reason, cursor.position())),
    }
}

/// Where the first `LedgerCloseMeta` of `bytes` ends, in bytes from the start: for a batch, in which
/// ledgers stand one after the other without their lengths. Several times as fast as [`decode`],
/// and accepts what it accepts, except that it does not hold envelopes and results together.
///
/// # Errors
///
/// Why there is no whole ledger, and at which byte. [`XdrError::UnexpectedEnd`] means that more
/// bytes may make it whole; every other reason is final.
pub fn ledger_length(bytes: &[u8]) -> Result<usize, (XdrError, usize)> {
    let mut cursor = xdr::Cursor::new(bytes);
    let walked = xdr::LedgerCloseMeta::skip(&mut cursor, xdr::Depth::LIMIT);
    walked.map(|()| cursor.position()).map_err(|reason| (reason, cursor.position()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_protocol_is_that_of_the_libraries() {
        assert_eq!(soroban_env_host::meta::INTERFACE_VERSION.protocol, MAX_PROTOCOL);
    }
}
