//! Pushes events to HTTP endpoints: which events ([`filter`]), where to and under which safety
//! rules ([`target`]), and how a receiver verifies the sender ([`signature`]). Does not depend on
//! API routes.
//!
//! A *subscription* says which events go where. The [`consumer`] of the store's feed finds the
//! subscriptions that match an event ([`registry`]) and writes a *delivery* for each, with the body
//! to send ([`payload`]), in the same batch as its cursor; a condition is judged by the interfaces of
//! the event's contract ([`judging`]). [`delivery`] sends deliveries, as they are or as messages for
//! people ([`message`]), retries them ([`schedule`]), and writes the outcome of each attempt. Operations
//! that users request are
//! in [`manage`]. Everything is stored in rows of the consumer ([`rows`]).

mod condition_work;
mod consumer;
mod consumer_conditions;
mod consumer_projects;
mod consumer_triggers;
pub mod contracts;
mod data_index;
mod decimals;
mod declared;
pub mod delivery;
mod error;
pub mod filter;
pub mod followed;
mod found;
pub mod judging;
pub mod manage;
pub mod message;
mod naming;
mod number;
mod payload;
pub mod preview;
mod preview_triggers;
mod projects;
pub mod registry;
pub mod replay;
mod replay_triggers;
mod replaying;
pub mod rotation;
pub mod rows;
mod schedule;
mod secret;
pub mod signature;
mod stopped;
pub mod subscription;
mod subscription_rows;
mod subscription_set;
mod sweep;
mod sweep_lives;
pub mod target;
pub mod time;
pub mod trigger;
mod triggers;
pub mod unmet;

pub use consumer::WebhookConsumer;
pub use error::WebhookError;
pub use secret::{Sealer, Secret, Secrets};

/// Name of the webhook consumer in the store's feed.
pub const CONSUMER: &str = "webhooks";

/// Returns the current UNIX time in milliseconds.
pub type Clock = orrery_runtime::steady::Milliseconds;
