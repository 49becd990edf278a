//! Decodes bytes to a [`LedgerView`], a borrowed view of a closed ledger that all consumers share.
//! Pure; does no I/O and does not depend on where the bytes come from.
//!
//! [`decode`] walks the bytes and borrows from them. Tests compare it with a second implementation,
//! which decodes everything with `stellar-xdr`.
//!
//! The walk goes through the types of the schema (`xdr`) and tells a visitor about the parts it
//! finds. A new version of a ledger's data changes the schema; a new part changes it and `Part`.
//! `ledger` is the visitor that [`decode`] uses. It passes parts on to `header`, `envelope` with
//! `contracts`, and `events`; `matching` then builds the view from what they have collected. The
//! visitors of `changes`, `conditions` and `meta_events` answer narrower questions; `parts` reads one transaction alone. `bucket` reads the records of the
//! state that a network publishes at its checkpoints, with the same schema.

mod bucket;
mod changes;
mod conditions;
mod contracts;
mod entry;
mod envelope;
mod error;
mod events;
mod header;
mod ledger;
mod matching;
mod meta_events;
mod parts;
mod view;
mod walk;
pub(crate) mod xdr;

use crate::domain::NetworkId;
use walk::walk;
use xdr::Xdr;

pub use bucket::{BucketList, BucketRecord, StateKey, last_modified, live_until};
pub use changes::{
    ChangeKind, EntryChange, LedgerChanges, TransactionChanges, changed_entries, ledger_changes,
    transaction_changes,
};
pub use conditions::{Conditions, SettingBefore, SettingChange, ledger_conditions};
pub use entry::{ChangedEntry, EntryKey, EntryKind};
pub use envelope::{footprint_keys, named_contracts};
pub use error::DecodeError;
pub use header::{MAX_PROTOCOL, protocol_warning};
pub use meta_events::MetaEvents;
pub use parts::{LoneTransaction, TransactionParts};
pub use view::{
    EventType, EventView, HeaderView, LedgerView, MuxedAccountView, Placement, TransactionView,
};
pub use xdr::{DEEPEST, XdrError};

/// Decodes the bytes of one `LedgerCloseMeta` into a view of everything that consumers need.
///
/// # Errors
///
/// When the bytes are not exactly one `LedgerCloseMeta`, or when its envelopes and results do not
/// match on this network.
pub fn decode<'a>(raw: &'a [u8], network: &NetworkId) -> Result<LedgerView<'a>, DecodeError> {
    let mut ledger = ledger::Ledger::new(network);
    walk::<xdr::LedgerCloseMeta>(raw, &mut ledger)?;
    matching::ledger_view(raw, ledger)
}

/// Decodes the header of a `LedgerCloseMeta`, without reading what follows it.
///
/// # Errors
///
/// When the bytes do not start with the beginning of a `LedgerCloseMeta`.
pub fn header(raw: &[u8]) -> Result<HeaderView<'_>, DecodeError> {
    let mut cursor = xdr::Cursor::new(raw);
    header::close_meta_header(&mut cursor)
        .map_err(|reason| DecodeError::undecodable(raw, reason, cursor.position()))
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
