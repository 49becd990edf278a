//! Runs the built program while it follows sources and backfills older ledgers: lakes that grow,
//! are incomplete or contain wrong ledgers, services that are killed, and what is served
//! afterwards.

#[path = "../common"]
mod common {
    pub mod client;
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod exported;
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod families;
    pub mod lake_files;
    // Other tests use the rest of these two.
    #[allow(dead_code)]
    pub mod provider;
    #[allow(dead_code)]
    pub mod s3;
    pub mod signal;
    pub mod size;
}

mod backfill;
mod disk;
mod durable;
mod export;
mod live;
mod service;
mod soak;
mod taken;
mod upgrade;
