//! Pushing events to those who want to hear of them: which events ([`filter`]), where to and how safely
//! ([`target`]), and how a receiver knows who sent them ([`signature`]). Knows no route.
//!
//! A *subscription* says which events go where. The [`consumer`] of the store's feed finds those that match
//! ([`registry`]) and writes a *delivery* for each, with the text that is sent ([`payload`]), in the same
//! batch as its cursor. [`delivery`] sends them, again and again if need be ([`schedule`]), and notes what
//! came of each attempt. What users ask for is in [`manage`]; all of it lies in rows of the consumer
//! ([`rows`]).

pub mod consumer;
pub mod delivery;
mod error;
pub mod filter;
pub mod manage;
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

use std::sync::Arc;

pub use consumer::WebhookConsumer;
pub use error::WebhookError;
pub use secret::{Sealer, Secret};

/// The name under which ledgers are taken from the store's feed.
pub const CONSUMER: &str = "webhooks";

/// UNIX milliseconds now.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What the operator may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Subscriptions that one owner may have.
    pub owner_subscriptions: usize,
    /// Deliveries of one subscription that may wait; one that has more is disabled.
    pub backlog: u64,
    /// Attempts to one server at a time.
    pub per_server: usize,
    /// Days that deliveries are kept in the log after they arrived.
    pub delivered_days: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self { owner_subscriptions: 1000, backlog: 1_000_000, per_server: 8, delivered_days: 7 }
    }
}
