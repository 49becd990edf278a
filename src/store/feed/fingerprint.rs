//! A digest of what a consumer keeps, by which two builds of it can be compared.

use sha2::{Digest, Sha256};

use super::super::{Store, StoreError};

impl Store {
    /// SHA-256 in hexadecimal over the rows of a consumer: for each family its name, and each of its rows in the
    /// order of keys, all with their lengths. It does not depend on generations, nor on when rows were written.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when none of this name is registered; what the database says.
    pub fn consumer_digest(&self, name: &str) -> Result<String, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let families = self.consumers.lock().spec(name).ok_or_else(unknown)?.families;
        let view = self.consumer_view(name)?;
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        for family in families {
            add(family.as_bytes());
            view.scan(family, &[], |key, value| {
                add(key);
                add(value);
                true
            })?;
        }
        Ok(hex::encode(digest.finalize()))
    }
}
