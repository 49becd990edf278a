//! What the ratios compare with.

pub mod sqlite;
pub mod zstd_blocks;
