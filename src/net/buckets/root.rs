//! A place with objects on the network.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::list::PaginatedListStore;

/// A place with objects on the network, and the client to reach it.
#[derive(Clone)]
pub struct Root {
    /// The client.
    pub store: Arc<dyn ObjectStore>,
    /// The same client, if it can list.
    pub listing: Option<Arc<dyn PaginatedListStore>>,
    /// Prefix of every key in the store: empty, or ends with a slash.
    pub prefix: String,
    /// Location of the root for messages, without a trailing slash and without secrets.
    pub place: String,
    /// The bucket and its configured region; `None` for anything other than S3.
    pub bucket_and_region: Option<(String, String)>,
    /// Advice when reading is refused, as the end of a sentence.
    pub when_refused: &'static str,
}
