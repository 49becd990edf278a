//! Eighth floor: the store as a whole. Knows how it is opened, upgraded, pruned, audited and backed
//! up. May use all floors below.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod disk;
pub(crate) mod extensions;
pub(crate) mod extensions_of_data;
pub(crate) mod format;
pub(crate) mod index_fill;
pub(crate) mod network;
pub(crate) mod open;
pub(crate) mod retention;
pub(crate) mod settings;
pub(crate) mod signatures;
pub(crate) mod upgrade;
