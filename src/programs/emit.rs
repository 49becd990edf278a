//! What a program emits. The word itself is the domain's, because tables are made of it too.

pub use crate::domain::Emit;
