//! Objects in buckets of S3, Google and Azure, and behind web servers, through `object_store`, which
//! signs requests, composes addresses and parses listings. Does not depend on what the objects hold.
//!
//! - [`settings`] hold an address; [`clients`] creates the client that they describe.
//! - [`transport`] sends the requests, limits responses and interprets errors; [`patience`] sends
//!   some again.
//! - [`objects`] reads and writes the objects of a bucket, [`large`] those that are larger than what is held in
//!   memory.

mod clients;
mod large;
mod objects;
mod patience;
mod settings;
mod transport;

pub use clients::Root;
pub use large::PART;
pub use objects::{Listed, ObjectVersion, Objects, ObjectsError};
pub use patience::Patience;
pub use settings::{AccessKey, AddressError, BucketSettings, S3Credentials};
pub use transport::{MAX_DOWNLOADED, Passes, Refusal, innermost, refusal};
