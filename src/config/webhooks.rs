//! Settings of webhooks.

use std::num::NonZeroU32;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::values;

/// Section `[webhooks]`: where deliveries may go, and limits on their number. All limits are
/// inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhooks {
    /// Subnets to which deliveries may go although their addresses are not public.
    #[serde(with = "values::as_text")]
    pub allow_subnets: Vec<IpNet>,
    /// Maximum number of subscriptions of one owner.
    pub owner_subscriptions: NonZeroU32,
    /// Maximum number of pending deliveries of one subscription. A subscription that exceeds it is
    /// disabled.
    pub backlog: NonZeroU32,
    /// Maximum number of concurrent attempts to one server.
    pub attempts_per_server: NonZeroU32,
    /// Number of days for which completed deliveries stay listed.
    pub delivered_days: NonZeroU32,
}

const fn count(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            allow_subnets: Vec::new(),
            owner_subscriptions: count(1000),
            backlog: count(1_000_000),
            attempts_per_server: count(8),
            delivered_days: count(7),
        }
    }
}

impl Webhooks {
    /// Returns a sentence about a setting that is out of range. `delivered_days` is at most 30,
    /// because payloads are kept for 45 days and a delivery may be retried for more than ten.
    pub(super) fn validation_error(&self) -> Option<String> {
        (self.delivered_days.get() > 30).then(|| {
            format!(
                "webhooks.delivered_days is {}: give a number from 1 to 30",
                self.delivered_days
            )
        })
    }
}

/// Returns what the setting `key` accepts, phrased to follow the word "give".
pub(super) fn expected_value(key: &str) -> &'static str {
    match key {
        "webhooks.allow_subnets" => "a list of subnets, such as [\"10.0.0.0/8\", \"fd00::/8\"]",
        "webhooks.delivered_days" => "a number of days from 1 to 30",
        _ => "a whole number from 1 to 4294967295",
    }
}
