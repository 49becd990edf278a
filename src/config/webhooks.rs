//! Settings of webhooks.

use std::num::NonZeroU32;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::values;

/// `[webhooks]`: where deliveries may go, and how many there may be. All limits are inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhooks {
    /// Subnets to which deliveries may go although they are not public.
    #[serde(with = "values::as_text")]
    pub allow_subnets: Vec<IpNet>,
    /// Subscriptions of one owner.
    pub owner_subscriptions: NonZeroU32,
    /// Deliveries of one subscription that may wait; one that has more is disabled.
    pub backlog: NonZeroU32,
    /// Attempts to one server at a time.
    pub attempts_per_server: NonZeroU32,
    /// Days that deliveries are listed after they have arrived.
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
    /// What cannot be, in a sentence. What was sent is kept for 45 days.
    pub(super) fn contradiction(&self) -> Option<String> {
        (self.delivered_days.get() > 30).then(|| {
            format!(
                "webhooks.delivered_days is {}: give a number from 1 to 30",
                self.delivered_days
            )
        })
    }
}

/// What a key takes, to be read after "give".
pub(super) fn expectation(key: &str) -> &'static str {
    match key {
        "webhooks.allow_subnets" => "a list of subnets, such as [\"10.0.0.0/8\", \"fd00::/8\"]",
        "webhooks.delivered_days" => "a number of days from 1 to 30",
        _ => "a whole number from 1 to 4294967295",
    }
}
