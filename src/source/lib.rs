//! Sources of ledgers. Every source yields the raw bytes of closed ledgers with their origin, and
//! reads only the sequence number from their content.

pub mod captive_core;
pub mod files;
pub mod follow;
pub mod lake;
pub mod records;
pub mod rpc;
mod xdr;
