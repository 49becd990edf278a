//! Baselines of the ratios.

pub mod host;
pub mod postgres;
pub mod rows;
pub mod sqlite;
pub mod zstd_blocks;
