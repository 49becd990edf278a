//! Webhooks and streams: which events are sent, when and how often, through faults of receivers,
//! readers and crashes; safe target addresses; signatures that other implementations verify; the
//! receivers in the documentation.

#[path = "../common"]
mod common {
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod binary;
    pub mod client;
    #[allow(dead_code)]
    pub mod http;
    #[allow(dead_code)]
    pub mod lake_files;
    // Only the tests that query the store directly compare whole rows.
    #[allow(dead_code)]
    pub mod model;
    #[allow(dead_code)]
    pub mod server;
    pub mod size;
}

mod addresses;
mod combinations;
mod deletion;
mod hostile;
mod kills;
mod matching;
mod messages;
mod receiver;
mod receivers;
mod resumed;
mod schedule;
mod service;
mod sockets;
mod streams;
mod wire;
mod world;
