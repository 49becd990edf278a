//! Targets of deliveries: endpoints that users give ([`endpoint`]), which addresses are safe
//! ([`address`]), name resolution ([`resolver`]), connections ([`connection`], [`connections`]), a
//! single attempt to deliver ([`sender`]), and what chat services answer ([`chat`]). Does not depend on subscriptions.

pub mod address;
pub mod chat;
mod connection;
mod connections;
mod endpoint;
mod resolver;
mod sender;

pub use address::Policy;
pub use endpoint::{Endpoint, EndpointError};
pub use resolver::{Lookup, system_lookup};
pub use sender::{AttemptResult, Sender, Timeouts};
