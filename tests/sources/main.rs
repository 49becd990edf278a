//! Sources on the network, followed into a real store while they misbehave: nothing wrong is stored,
//! nothing is skipped, health says what is the matter, and what heals is noticed.

#[path = "../common"]
mod common {
    pub mod azure;
    pub mod chain;
    pub mod client;
    // Other tests use the rest of these two.
    #[allow(dead_code)]
    pub mod contents;
    pub mod data;
    #[allow(dead_code)]
    pub mod digest;
    pub mod following;
    pub mod full;
    pub mod lake_server;
    #[allow(dead_code)]
    pub mod process;
    pub mod provider;
    // Exports use the rest.
    #[allow(dead_code)]
    pub mod s3;
    pub mod signal;
    pub mod size;
    // Programs use the rest.
    pub mod example;
    #[allow(dead_code)]
    pub mod stand_in_core;
    pub mod upstream;
}

mod core;
mod lake;
mod lake_in_s3;
mod outage;
mod rpc;
