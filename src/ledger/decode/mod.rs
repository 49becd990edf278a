//! Decodes bytes to a [`LedgerView`], a borrowed view of a closed ledger that all consumers share.
//! Pure; does no I/O and does not depend on where the bytes come from.
//!
//! [`decode`] walks the bytes and borrows from them. Tests compare it with a second implementation,
//! which decodes everything with `stellar-xdr`.
//!
//! The walk uses the files in this order: `ledger` from the first byte to the last, with `envelope`
//! for the transaction set and `meta` and `events` for what the transactions did; `xdr` skips
//! everything else; `matching`, `contracts` and `changes` build the view from the parts.

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
pub use held_events::MetaEvents;
pub use view::{
    EventType, EventView, HeaderView, LedgerView, MuxedAccountView, Placement, TransactionView,
};
pub use xdr::{DEEPEST, XdrError};

/// Newest protocol that this version supports: that of `stellar-xdr`'s definitions. A newer ledger
/// that still decodes is not refused, but causes a warning to upgrade.
pub const MAX_PROTOCOL: u32 = 30;

/// Returns a warning for the operator if a decoded ledger has a protocol that this version does not
/// support: its fields may have changed their meaning. `None` otherwise.
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

/// Decodes the bytes of one `LedgerCloseMeta` into a view of everything that consumers need.
///
/// # Errors
///
/// When the bytes are not exactly one `LedgerCloseMeta`, or when its envelopes and results do not
/// match on this network.
pub fn decode<'a>(raw: &'a [u8], network: &NetworkId) -> Result<LedgerView<'a>, DecodeError> {
    let mut cursor = xdr::Cursor::new(raw);
    let walked = ledger::close_meta(&mut cursor, network)
        .map_err(|reason| DecodeError::undecodable(raw, reason, cursor.position()))?;
    matching::ledger_view(raw, walked, network)
}

/// Decodes the header of a `LedgerCloseMeta`, without reading what follows it.
///
/// # Errors
///
/// When the bytes do not start with the beginning of a `LedgerCloseMeta`.
pub fn header(raw: &[u8]) -> Result<HeaderView<'_>, DecodeError> {
    let mut cursor = xdr::Cursor::new(raw);
    match ledger::close_meta_header(&mut cursor) {
        Ok((_, header, _)) => Ok(header),
        Err(reason) => Err(DecodeError::undecodable(raw, reason, cursor.position())),
    }
}

/// Returns the length in bytes of the first `LedgerCloseMeta` in `bytes`: for a batch, in which
/// ledgers are concatenated without their lengths. Several times as fast as [`decode`], and accepts
/// the same bytes, except that it does not match envelopes with results.
///
/// # Errors
///
/// The reason why there is no complete ledger, and the byte at which it fails. After
/// [`XdrError::UnexpectedEnd`], more bytes may complete the ledger; every other reason is final.
pub fn ledger_length(bytes: &[u8]) -> Result<usize, (XdrError, usize)> {
    let mut cursor = xdr::Cursor::new(bytes);
    let walked = xdr::LedgerCloseMeta::skip(&mut cursor, xdr::Depth::LIMIT);
    walked.map(|()| cursor.position()).map_err(|reason| (reason, cursor.position()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_protocol_equals_that_of_the_host_library() {
        assert_eq!(soroban_env_host::meta::INTERFACE_VERSION.protocol, MAX_PROTOCOL);
    }
}
