//! A digest of a consumer's rows, with which two builds of them can be compared.

use sha2::{Digest, Sha256};

use crate::encoding::error::StoreError;
use crate::state::consumers::rows::RowBounds;
use crate::state::store::Store;

impl Store {
    /// Returns SHA-256 in hexadecimal over the rows of a consumer: for each family its name and all
    /// its rows in key order, each part preceded by its length. The digest does not depend on
    /// builds or on when rows were written.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when no consumer of this name is registered; errors of the
    /// database.
    pub fn consumer_digest(&self, name: &str) -> Result<String, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let families = self.consumers.lock().spec(name).ok_or_else(unknown)?.families;
        let view = self.consumer_view(name, RowBounds::none())?;
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        for family in families {
            add(family.as_bytes());
            view.scan(family, |key, value| {
                add(key);
                add(value);
            })?;
        }
        Ok(hex::encode(digest.finalize()))
    }
}
