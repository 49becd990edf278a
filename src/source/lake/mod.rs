//! Reads a ledger data lake: a tree of batch files below a manifest, in the layout of SEP-54.
//! Handles keys and ranges; leaves storage to [`LakeFiles`] and the content of files to
//! [`records`](super::records).
//!
//! - [`settings`] parses an address, which is a [`directory`] or something [`remote`].
//! - [`open`] finds the manifest and the layout.
//! - [`range`] finds the newest and the oldest ledger with few requests.
//! - [`others`] finds files that the layout does not lead to.
//! - [`prefetch`] downloads and unpacks files in order.

mod access;
mod batches;
mod directory;
mod error;
mod files;
mod layout;
mod open;
mod others;
mod prefetch;
mod range;
mod remote;
mod settings;
mod source;

pub use batches::Lake;
pub use directory::Directory;
pub use error::LakeError;
pub use files::LakeFiles;
pub use layout::{GivenLayout, Layout, Manifest};
pub use settings::LakeSettings;
pub use source::LakeSource;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
