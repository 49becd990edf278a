//! Indexing programs: what they see and what becomes of what they emit.

#[path = "../common"]
mod common {
    pub mod data;
    // Other tests use the rest.
    #[allow(dead_code)]
    pub mod provider;
    pub mod size;
}

mod state;
mod state_damage;
mod state_made;
mod state_parts;
mod state_sections;
mod state_timeline;
mod state_upstream;
mod transactions;
