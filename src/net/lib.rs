//! Clients of servers on the network: HTTP, TLS, and objects in buckets. Does not depend on what is
//! requested. Other modules use the two libraries below through this one, which configures them.

pub mod buckets;
pub mod http;
pub mod tls;

pub use {object_store, reqwest};
