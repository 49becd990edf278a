//! Where deliveries go: addresses that users give ([`endpoint`]), which of them are safe ([`address`]), how
//! their names are looked up ([`names`]), connections to them ([`connection`], [`connections`]), and one attempt to
//! deliver ([`sender`]). Knows no subscription.

pub mod address;
mod connection;
mod connections;
mod endpoint;
mod names;
mod sender;

pub use address::Policy;
pub use endpoint::{Endpoint, EndpointError, LONGEST_ENDPOINT};
pub use names::{Lookup, system_lookup};
pub use sender::{Attempted, Sender, Timeouts};
