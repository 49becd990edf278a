//! Webhooks and streams: which events go out, when and how often, through everything that receivers, readers and
//! crashes do; addresses that are safe to send to; signatures that others check; the receivers of the documentation.

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
    // Its rows are compared whole only where the store is asked directly.
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
