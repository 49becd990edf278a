//! What a lake needs of the storage that holds its files.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::error::LakeError;

/// Storage that holds files under keys: a directory, a bucket or a web server. Has only the
/// operations that a lake needs, so that tests can simulate it.
pub trait LakeFiles: Send + Sync {
    /// Returns the object's bytes, or `None` when the key does not exist.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>>;

    /// Returns whether the key exists.
    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>>;

    /// Returns the first `most` keys of batch files after `after` in lexicographic order, which is
    /// newest first; `None` when this store cannot list. An empty `after` starts with the newest.
    fn keys_after<'a>(
        &'a self,
        after: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>>;

    /// Returns the names of the directories at the root; `None` when this store cannot list.
    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>>;

    /// Returns the name of a file that may hold ledgers, because `.xdr` is in it, and is not named as
    /// a batch file; `None` when none is found, or when this store cannot list.
    fn misnamed(&self) -> BoxFuture<'_, Result<Option<String>, LakeError>>;

    /// Returns the store whose root is a directory of this one.
    fn below(&self, directory: &str) -> Arc<dyn LakeFiles>;

    /// Returns the full name of a key, or of the whole store for an empty key, for messages. Holds
    /// no secrets.
    fn place(&self, key: &str) -> String;
}
