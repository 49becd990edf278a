//! Indexing programs: transactions of recorded networks and made ones, run again with programs in
//! place of contracts.

#[allow(dead_code)] // Other tests use the rest of it.
#[path = "../decode/fixtures.rs"]
mod fixtures;
#[path = "../common"]
mod common {
    pub mod size;
}

mod engine_check;
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
mod replay;
