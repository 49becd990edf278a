//! Tables of programs and SQL about them, with real workers: what was emitted is what is read, whatever
//! is killed, damaged or attacked in between.

#[path = "../common"]
mod common {
    pub mod example;
    pub mod signal;
    pub mod size;
}

mod support;

mod attacks;
mod broken_workers;
mod capability;
mod confinement;
mod corpus_attacks;
mod corpus_capability;
mod corpus_frames;
mod damage;
mod evolution;
mod histories;
mod kills;
mod limits;
mod made;
mod owners;
mod speed;
mod types;
