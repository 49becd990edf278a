//! JSON-RPC: responses of the methods, compared with direct implementations of their rules over
//! fully decoded ledgers.

#[path = "../common"]
mod common {
    // Used here only to start and observe the service.
    #[allow(dead_code)]
    pub mod binary;
    pub mod client;
    #[allow(dead_code)]
    pub mod example;
    pub mod full;
    // Needed by `pubnet` and `server`, which supply generated and recorded ledgers; the REST API is
    // tested elsewhere.
    #[allow(dead_code)]
    pub mod http;
    // Used here only for correct and immediate responses.
    #[allow(dead_code)]
    pub mod provider;
    #[allow(dead_code)]
    pub mod pubnet;
    #[allow(dead_code)]
    pub mod server;
    pub mod size;
    pub mod stellar_cli;
    // Streams ledgers, serves entries and accepts transactions; its faults are tested elsewhere.
    #[allow(dead_code)]
    pub mod stand_in_core;
}

#[path = "../decode/fixtures.rs"]
mod fixtures;

mod clients;
mod events;
mod fee_stats;
mod hashes;
mod info;
mod kept;
mod ledgers;
mod naive;
mod node;
mod refusals;
mod transactions;
mod transport;
mod world;
