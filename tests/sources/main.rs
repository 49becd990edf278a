//! Sources on the network, followed into a real store while they misbehave: nothing wrong is stored,
//! nothing is skipped, health says what is the matter, and what heals is noticed.

#[path = "../common"]
mod common {
    pub mod contents;
    pub mod process;
    pub mod size;
}

mod core;
