//! Custom indexing programs: which there are, how they are run again on what a transaction began
//! with, and what becomes of what they emit. Knows no HTTP and no SQL.

pub mod emit;
pub mod engine;
pub mod state;
pub mod transaction;
