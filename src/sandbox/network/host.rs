//! Parameters of the Soroban host: the protocol version and the lifetimes of entries.

use soroban_env_host::{LedgerInfo, meta};

use super::fees::BASE_RESERVE;
use super::open_ledger::OpenLedger;

/// Protocol version of every ledger: the newest that the host executes.
pub(super) const PROTOCOL: u32 = meta::INTERFACE_VERSION.protocol;

/// Minimum TTL of a persistent entry, in ledgers. Small, so that the expiry and restoration of an
/// unused entry can be observed.
pub(super) const MIN_PERSISTENT_TTL: u32 = 120;

/// Minimum TTL of a persistent entry that a submitted transaction creates, in ledgers, as on the
/// public network: otherwise users would have to restore their contracts every two minutes.
const MIN_SUBMITTED_PERSISTENT_TTL: u32 = 2_073_600;

/// Minimum TTL of a temporary entry, in ledgers.
pub(super) const MIN_TEMPORARY_TTL: u32 = 16;

/// Maximum TTL of any entry, in ledgers, as on the public network.
pub(super) const MAX_TTL: u32 = 3_110_400;

/// Returns the minimum TTL, in ledgers, of a persistent entry that a transaction creates or
/// restores.
pub(super) fn min_persistent_ttl(is_submitted: bool) -> u32 {
    if is_submitted { MIN_SUBMITTED_PERSISTENT_TTL } else { MIN_PERSISTENT_TTL }
}

/// Returns the ledger parameters for the host, for a submitted transaction or one of the sandbox's
/// own.
pub(super) fn ledger_info(ledger: &OpenLedger<'_>, is_submitted: bool) -> LedgerInfo {
    LedgerInfo {
        protocol_version: PROTOCOL,
        sequence_number: ledger.sequence,
        timestamp: ledger.close_time,
        network_id: ledger.network.0,
        base_reserve: BASE_RESERVE,
        min_temp_entry_ttl: MIN_TEMPORARY_TTL,
        min_persistent_entry_ttl: min_persistent_ttl(is_submitted),
        max_entry_ttl: MAX_TTL,
    }
}
