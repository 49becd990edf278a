//! The state of a network at a checkpoint: reads it from a history archive, checks every byte of it
//! against the header of one ledger, and yields what smart contracts have in it. Does not depend on
//! who vouches for the header, nor on where the state goes.
//!
//! A checkpoint is read in four steps, each of which refuses what does not fit:
//!
//! 1. [`Archive::open`]: where the files are, a directory or a web server.
//! 2. [`Archive::state`]: the state file of the checkpoint. It names the buckets by their hashes, and
//!    the hash of all of them is in the header ([`Commitment`]).
//! 3. [`NetworkState::fetch`]: downloads the buckets and reads each of them once: its hash is its
//!    name. Says how much disk the last step takes.
//! 4. [`Fetched::entries`]: sorts on disk and yields each entry once, by contract and key.
//!
//! After a kill, the same steps go on with the buckets that were downloaded: they stay in the
//! directory of [`Work`] until its owner removes it. What the sort writes has no names, and is gone
//! with the process. Memory does not depend on the size of the state.
//!
//! What an archive can make its reader spend has bounds ([`Bounds`]): files have a maximum size, as
//! they are stored and decompressed; a server that is too slow is given up; disk is taken only as long
//! as enough of it is free.

mod archive;
mod body;
mod bucket;
mod entries;
mod error;
mod fetch;
mod found;
mod server;
mod sort;
mod space;
mod state;
mod wanted;
mod work;

pub use archive::{Archive, CHECKPOINT_LEDGERS, checkpoint_at_or_before};
pub use entries::Entries;
pub use error::CheckpointError;
pub use fetch::Fetched;
pub use found::{Found, FoundCode, FoundData, FoundSetting};
pub use state::{Commitment, NetworkState};
pub use work::{Bounds, Step, Work};
