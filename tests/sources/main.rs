//! Sources on the network, followed into a real store while they misbehave: nothing wrong is stored,
//! nothing is skipped, health says what is the matter, and what heals is noticed.

#[path = "../common"]
mod common {
    // Other tests use the rest of these.
    #[allow(dead_code)]
    pub mod contents;
    #[allow(dead_code)]
    pub mod process;
    pub mod size;
}

mod core;
