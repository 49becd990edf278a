//! Settings of webhooks.

use std::num::NonZeroU32;

use ipnet::IpNet;

use crate::{nonzero, section, values};

section! {
    /// Section `[webhooks]`: where deliveries may go, and limits on their number. All limits are
    /// inclusive.
    pub struct Webhooks {
        /// Subnets to which deliveries may go although their addresses are not public.
        #[serde(with = "values::as_text")]
        pub allow_subnets: Vec<IpNet> = Vec::new();
        /// Maximum number of subscriptions of one owner.
        pub owner_subscriptions: NonZeroU32 = nonzero!(100);
        /// Maximum number of pending deliveries of one subscription. A subscription that exceeds it
        /// is disabled.
        pub backlog: NonZeroU32 = nonzero!(1_000_000);
        /// Maximum number of pending deliveries of all subscriptions of one owner. The subscription
        /// whose delivery exceeds it is disabled.
        pub owner_backlog: NonZeroU32 = nonzero!(2_000_000);
        /// Maximum number of deliveries that one ledger creates for one owner. The subscription whose
        /// delivery exceeds it is disabled.
        pub owner_ledger_deliveries: NonZeroU32 = nonzero!(50_000);
        /// Maximum work of the conditions of one owner's subscriptions on one ledger, in steps of some ten
        /// nanoseconds. Of those that exceed it, the subscription whose condition takes the most is
        /// disabled.
        pub owner_ledger_steps: NonZeroU32 = nonzero!(20_000_000);
        /// Maximum number of concurrent attempts to one server.
        pub attempts_per_server: NonZeroU32 = nonzero!(8);
        /// Number of days for which completed deliveries stay listed.
        pub delivered_days: NonZeroU32 = nonzero!(7), "a number of days from 1 to 30";
    }
}

impl Webhooks {
    /// Returns a sentence about a setting that is out of range. `delivered_days` is at most 30,
    /// because payloads are kept for 45 days and a delivery may be retried for more than ten.
    pub fn validation_error(&self) -> Option<String> {
        (self.delivered_days.get() > 30).then(|| {
            format!(
                "webhooks.delivered_days is {}: give a number from 1 to 30",
                self.delivered_days
            )
        })
    }
}
