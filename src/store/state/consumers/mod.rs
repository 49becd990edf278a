//! Consumers of the feed: what they declare, their progress, their rows, and the locks under which
//! both change.

pub(crate) mod consumer;
pub(crate) mod rows;
pub(crate) mod spec;
pub(crate) mod states;
pub(crate) mod table;
