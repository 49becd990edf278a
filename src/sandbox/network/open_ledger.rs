//! The ledger that is being made, as everything in it sees it.

use orrery_ledger::domain::NetworkId;

use super::assets::Assets;

/// Values that everything in one ledger shares.
pub(super) struct OpenLedger<'a> {
    pub(super) network: &'a NetworkId,
    pub(super) assets: &'a Assets,
    pub(super) sequence: u32,
    /// Unix time in seconds.
    pub(super) close_time: u64,
    /// The close time in UNIX milliseconds; `None` when the header states whole seconds (CAP-88).
    pub(super) close_time_ms: Option<u64>,
    /// Whether the validators drop the proposed transaction set (CAP-83).
    pub(super) dropped: bool,
}
