//! What the ratios compare with.

pub mod host;
pub mod postgres;
pub mod rows;
pub mod sqlite;
pub mod zstd_blocks;
