//! JSON-RPC: what the methods answer, against plain readings of their rules over fully decoded ledgers.

#[path = "../common"]
mod common {
    // Only started and watched here.
    #[allow(dead_code)]
    pub mod binary;
    pub mod client;
    #[allow(dead_code)]
    pub mod example;
    pub mod full;
    // Made and real ledgers; what REST says of them is tested elsewhere.
    #[allow(dead_code)]
    pub mod http;
    // Answers as it should, and at once.
    #[allow(dead_code)]
    pub mod provider;
    #[allow(dead_code)]
    pub mod pubnet;
    #[allow(dead_code)]
    pub mod server;
    pub mod size;
    // Streams ledgers, answers for entries and takes transactions; what it does wrong is tested elsewhere.
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
