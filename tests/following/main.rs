//! The built program follows sources and fills in older ledgers: lakes that grow, lack and lie, services
//! that are killed, and what is served afterwards.

#[path = "../common"]
mod common {
    pub mod client;
    pub mod lake_files;
    pub mod signal;
    pub mod size;
}

mod backfill;
mod disk;
mod durable;
mod live;
mod service;
