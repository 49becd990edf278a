//! Sends deliveries. One thread tracks what is due and decides what is sent next ([`dispatcher`]);
//! attempts run on a runtime of their own ([`attempt`]); another thread writes their outcomes, many
//! in one write ([`outcome_writer`]). Deliveries stay in the store and are read when it is their turn, except
//! new ones, which are handed over in memory as far as they are few ([`new_deliveries`]).

mod attempt;
mod dispatcher;
mod job;
mod mailbox;
pub mod new_deliveries;
mod outcome_writer;
mod pace;
mod server;
mod subscription_queue;
mod threads;

pub use attempt::{Headers, Post};
pub use dispatcher::DeliveryDeps;
pub use mailbox::{Load, Mailbox};
pub use threads::{DeliveryThreads, runtime};
