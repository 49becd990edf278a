//! `getHealth`, `getNetwork` and `getVersionInfo`.

use serde::Serialize;

use super::range::Needed;
use super::{CallLimits, Outcome, Params, Rpc, RpcError, ledger_entries, result, simulation};
use orrery_contract_data::CONSUMER;
use orrery_store::StoreError;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    status: &'static str,
    latest_ledger: u32,
    latest_ledger_close_time: String,
    oldest_ledger: u32,
    oldest_ledger_close_time: String,
    /// Number of ledgers that retention keeps; 0 when all are kept.
    ledger_retention_window: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Network<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    friendbot_url: Option<&'a str>,
    passphrase: &'a str,
    protocol_version: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionInfo {
    version: &'static str,
    commit_hash: &'static str,
    build_timestamp: &'static str,
    captive_core_version: &'static str,
    protocol_version: u32,
    /// Which events `getEvents` returns besides those of smart-contract transactions; the reference
    /// always has all of them.
    events: IndexedEvents,
    /// Methods that answer for the end of any stored ledger, given as `ledger`; the reference has none.
    at_ledger: &'static [&'static str],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IndexedEvents {
    classic: bool,
    fees: bool,
    all_contracts: bool,
}

impl Rpc {
    pub(super) fn get_health(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        params.none()?;
        // Clients start reading at the oldest ledger reported here, so its events have to be
        // stored.
        let range = self.range(Needed::Events)?;
        let age = (self.clock)().saturating_sub(range.latest_closed_at);
        let most = self.settings.max_ledger_latency;
        if age > most {
            return Err(RpcError::internal(format!(
                "latency ({}) since last known ledger closed is too high (>{})",
                duration(age),
                duration(most)
            )));
        }
        result(&Health {
            status: "healthy",
            latest_ledger: range.latest.0,
            latest_ledger_close_time: range.latest_closed_at.to_string(),
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_time: range.oldest_closed_at.to_string(),
            ledger_retention_window: self.settings.retention_window,
        })
    }

    pub(super) fn get_network(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        params.none()?;
        result(&Network {
            friendbot_url: self.settings.friendbot_url.as_deref(),
            passphrase: self.store.network().passphrase(),
            protocol_version: self.protocol()?,
        })
    }

    pub(super) fn get_version_info(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        params.none()?;
        // Clients ask for the version before anything is stored.
        let is_empty = self.stored_range(Needed::Header)?.is_none();
        let indexed = self.settings.indexed_as;
        result(&VersionInfo {
            version: env!("CARGO_PKG_VERSION"),
            commit_hash: "",
            build_timestamp: "",
            captive_core_version: "",
            protocol_version: if is_empty { 0 } else { self.protocol()? },
            events: IndexedEvents {
                classic: indexed.classic_events,
                fees: indexed.fee_events,
                all_contracts: !indexed.listed_contracts,
            },
            at_ledger: match self.store.consumer(CONSUMER) {
                Some(_) if self.simulates_past() => &[ledger_entries::METHOD, simulation::METHOD],
                Some(_) => &[ledger_entries::METHOD],
                None => &[],
            },
        })
    }

    /// Returns the protocol version of the newest ledger.
    fn protocol(&self) -> Result<u32, RpcError> {
        let latest = self.range(Needed::Header)?.latest;
        Ok(self.store.ledger(latest)?.ok_or(StoreError::Missing(latest))?.protocol)
    }
}

/// Formats seconds like a Go duration: `1h2m3s`.
fn duration(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}
