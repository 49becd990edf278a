//! Pushes events to HTTP endpoints: which events ([`filter`]), where to and under which safety
//! rules ([`target`]), and how a receiver verifies the sender ([`signature`]). Does not depend on
//! API routes.
//!
//! A *subscription* says which events go where. The [`consumer`] of the store's feed finds the
//! subscriptions that match an event ([`registry`]) and writes a *delivery* for each, with the body
//! to send ([`payload`]), in the same batch as its cursor. [`delivery`] sends deliveries, retries
//! them ([`schedule`]), and writes the outcome of each attempt. Operations that users request are
//! in [`manage`]. Everything is stored in rows of the consumer ([`rows`]).

mod consumer;
pub mod delivery;
mod error;
pub mod filter;
pub mod manage;
mod naming;
mod payload;
pub mod registry;
pub mod replay;
pub mod rotation;
pub mod rows;
mod schedule;
mod secret;
pub mod signature;
pub mod subscription;
mod sweep;
pub mod target;
pub mod time;

pub use consumer::WebhookConsumer;
pub use error::WebhookError;
pub use secret::{Sealer, Secret, Secrets};

/// Name of the webhook consumer in the store's feed.
pub const CONSUMER: &str = "webhooks";

/// Returns the current UNIX time in milliseconds.
pub type Clock = orrery_runtime::steady::Milliseconds;
