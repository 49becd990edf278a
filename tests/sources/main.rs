//! Network sources, followed into a real store while they fail: no wrong ledger is stored and none
//! is skipped, health reports the reason, and recovery is noticed.

#[path = "../common"]
mod common {
    pub mod azure;
    pub mod chain;
    pub mod client;
    // Other tests use the rest of `contents` and `digest`.
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
    // Tests of exports use the rest.
    #[allow(dead_code)]
    pub mod s3;
    pub mod signal;
    pub mod size;
    // Tests of programs use the rest.
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
