//! Pushes events to HTTP endpoints: which events ([`filter`]), where to and under which safety
//! rules ([`target`]), and how a receiver verifies the sender ([`signature`]). Does not depend on
//! API routes.
//!
//! A *subscription* says which events go where. The [`consumer`] of the store's feed finds the
//! subscriptions that match an event ([`registry`]) and writes a *delivery* for each, with the body
//! to send ([`payload`]), in the same batch as its cursor. [`delivery`] sends deliveries, retries
//! them ([`schedule`]), and writes the outcome of each attempt. Operations that users request are
//! in [`manage`]. Everything is stored in rows of the consumer ([`rows`]).

mod bodies;
pub mod consumer;
pub mod delivery;
mod error;
pub mod filter;
pub mod manage;
mod naming;
pub mod payload;
pub mod registry;
pub mod replay;
pub mod rows;
pub mod schedule;
mod secret;
pub mod signature;
pub mod subscription;
mod sweep;
pub mod target;
pub mod time;

pub use consumer::WebhookConsumer;
pub use error::WebhookError;
pub use secret::{Sealer, Secret};

/// Name of the webhook consumer in the store's feed.
pub const CONSUMER: &str = "webhooks";

/// Returns the current UNIX time in milliseconds.
pub type Clock = crate::steady::Milliseconds;

/// Settings that the operator can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of subscriptions per owner.
    pub owner_subscriptions: usize,
    /// Maximum number of waiting deliveries of one subscription; above it, the subscription is
    /// disabled.
    pub backlog: u64,
    /// As `backlog`, of all subscriptions of one owner together.
    pub owner_backlog: u64,
    /// Maximum number of deliveries that one ledger creates for one owner; above it, the subscription
    /// is disabled.
    pub owner_ledger_deliveries: u64,
    /// Maximum number of concurrent attempts per server.
    pub per_server: usize,
    /// Days for which a delivery is kept after it was delivered.
    pub delivered_days: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            owner_subscriptions: 100,
            backlog: 1_000_000,
            owner_backlog: 2_000_000,
            owner_ledger_deliveries: 50_000,
            per_server: 8,
            delivered_days: 7,
        }
    }
}
