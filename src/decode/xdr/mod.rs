//! The schema of XDR under a `LedgerCloseMeta`, as far as a ledger is passed over without a look.
//! Knows how long every value is and which bytes are none; refuses to know what a value means.
//!
//! XDR carries no lengths, so a value can only be passed over by walking through it. The files read
//! like the network's definitions (`Stellar-*.x`): see [`blocks`] for the notation. What a
//! [`LedgerView`](super::LedgerView) is made of is walked by hand in the files beside this
//! directory; [`LedgerCloseMeta`] lists it once more for those who only want to know its length.
//!
//! The walk accepts exactly what a full decode and re-encode gives back unchanged, down to the
//! limit on nesting, which counts as `stellar-xdr` counts: one level for each struct, union, enum,
//! typedef, optional, array and primitive.

#[macro_use]
mod blocks;
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

pub use blocks::*;
pub use close_meta::*;
pub use common::*;
pub use contract::*;
pub use cursor::{Cursor, DEEPEST, Depth, XdrError};
pub use entries::*;
pub use ledger::*;
pub use operations::*;
pub use results::*;
