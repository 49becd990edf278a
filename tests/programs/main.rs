//! Indexing programs: what they can read, how they are run, and what happens to the rows that they
//! emit.

// Other tests use the rest.
#[allow(dead_code)]
#[path = "../decode/fixtures.rs"]
mod fixtures;
#[path = "../common"]
mod common {
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod binary;
    pub mod client;
    pub mod data;
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod exported;
    pub mod foreign_file;
    pub mod full;
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod provider;
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod s3;
    pub mod size;
    // Other tests use the rest.
    pub mod example;
    #[allow(dead_code)]
    pub mod newest;
    #[allow(dead_code)]
    pub mod stand_in_core;
    pub mod terminal;
}

mod compiler;
mod costly;
mod engine_check;
mod engine_compiled;
mod engine_costly;
mod engine_creation;
mod engine_fidelity;
mod engine_functions;
mod engine_hostile;
mod engine_measure;
mod engine_objects;
mod engine_rollback;
mod engine_text;
mod engine_values;
mod engine_vault;
mod engine_world;
mod exported;
mod kills;
mod network;
mod network_calls;
mod network_growth;
mod network_limits;
mod network_newest;
mod network_trials;
mod network_types;
mod replay;
mod service;
mod service_bodies;
mod service_core;
mod service_histories;
mod service_modules;
mod service_ready;
mod service_tenants;
mod service_upstream;
mod state;
mod state_damage;
mod state_made;
mod state_parts;
mod state_sections;
mod state_timeline;
mod state_upstream;
mod transactions;
