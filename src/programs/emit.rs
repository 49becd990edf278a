//! The rows that programs emit. The type belongs to `domain`, because the `tables` module uses it
//! as well.

pub use crate::domain::Emit;
