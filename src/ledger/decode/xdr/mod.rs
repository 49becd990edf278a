//! The XDR schema of a `LedgerCloseMeta`. Defines the length of every value, which bytes are invalid,
//! and which [parts](Part) a visitor is told about; does not depend on the meaning of values.
//!
//! XDR carries no total lengths, so skipping a value requires walking through it. The files follow
//! the network's definitions (`Stellar-*.x`): see [`blocks`] for the notation. The visitors are in
//! the files beside this directory.
//!
//! The walk accepts exactly the bytes that a full decode and re-encode reproduces, including the
//! limit on nesting, which counts as `stellar-xdr` does: one level for each struct, union, enum,
//! typedef, optional, array and primitive.

#[macro_use]
mod blocks;
mod buckets;
mod close_meta;
mod common;
mod contract;
mod cursor;
mod entries;
mod ledger;
mod operations;
mod results;
mod scp;
mod settings;
mod visit;

pub use blocks::*;
pub use buckets::*;
pub use close_meta::*;
pub use common::*;
pub use contract::*;
pub use cursor::{Cursor, DEEPEST, Depth, XdrError};
pub use entries::*;
pub use ledger::*;
pub use operations::OperationType;
pub use results::*;
pub use visit::{Part, Visit};
