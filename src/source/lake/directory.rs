//! A lake in a local directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_net::buckets::MAX_DOWNLOADED;
use tokio::task::spawn_blocking;

use super::error::LakeError;
use super::files::LakeFiles;
use super::layout;

/// Number of directories below one another, and of names in each, that are searched for a misnamed
/// file.
const MISNAMED_DEPTH: u32 = 3;
const MISNAMED_NAMES: usize = 16;

/// Objects as files below a directory; keys are relative paths.
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// Creates a store for the lake below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    async fn read(&self, key: &str) -> Result<Option<Bytes>, LakeError> {
        let path = self.root.join(key);
        let Some(metadata) = found(&path, tokio::fs::metadata(&path).await)? else {
            return Ok(None);
        };
        if metadata.len() > MAX_DOWNLOADED {
            return Err(LakeError::too_large(&self.place(key), "is", MAX_DOWNLOADED));
        }
        Ok(found(&path, tokio::fs::read(&path).await)?.map(Bytes::from))
    }

    /// Lists on a thread of tokio's blocking pool.
    async fn list<T: Send + 'static>(
        &self,
        list: impl FnOnce(&Path) -> Result<T, LakeError> + Send + 'static,
    ) -> Result<Option<T>, LakeError> {
        let root = self.root.clone();
        match spawn_blocking(move || list(&root)).await {
            Ok(listing) => listing.map(Some),
            Err(error) => Err(LakeError::transport(&self.place(""), error)),
        }
    }
}

impl LakeFiles for Directory {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>> {
        self.read(key).boxed()
    }

    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>> {
        let path = self.root.join(key);
        async move {
            let metadata = tokio::fs::metadata(&path).await;
            Ok(found(&path, metadata)?.is_some())
        }
        .boxed()
    }

    fn keys_after<'a>(
        &'a self,
        after: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>> {
        let after = after.to_owned();
        self.list(move |root| keys_after(root, &after, most)).boxed()
    }

    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>> {
        self.list(|root| {
            let mut names = sorted_names(root)?;
            names.retain(|name| root.join(name).is_dir());
            Ok(names)
        })
        .boxed()
    }

    fn misnamed(&self) -> BoxFuture<'_, Result<Option<String>, LakeError>> {
        let search = |root: &Path| Ok(misnamed(root, "", MISNAMED_DEPTH));
        async move { Ok(self.list(search).await?.flatten()) }.boxed()
    }

    fn below(&self, directory: &str) -> Arc<dyn LakeFiles> {
        Arc::new(Self::new(self.root.join(directory)))
    }

    fn place(&self, key: &str) -> String {
        if key.is_empty() {
            self.root.display().to_string()
        } else {
            self.root.join(key).display().to_string()
        }
    }
}

fn found<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, LakeError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(transport(path, &error)),
    }
}

fn transport(path: &Path, error: &io::Error) -> LakeError {
    LakeError::transport(&path.display().to_string(), error)
}

/// Returns the batch keys after `after`. Keys lie at the root or one partition below it; partitions
/// are read only as far as needed.
fn keys_after(root: &Path, after: &str, most: usize) -> Result<Vec<String>, LakeError> {
    let mut keys = Vec::new();
    let mut add = |key: String| {
        let wanted = *key > *after && layout::range_of(&key).is_some();
        if wanted && keys.len() < most {
            keys.push(key);
        }
        keys.len() < most
    };
    for name in sorted_names(root)? {
        let partition = name.contains("--") && root.join(&name).is_dir();
        // All keys in a partition before that of `after` sort before `after` too.
        let passed = after.split_once('/').is_some_and(|(of_after, _)| *name < *of_after);
        if !partition {
            if !add(name) {
                break;
            }
        } else if !passed {
            let inside = sorted_names(&root.join(&name))?;
            if !inside.into_iter().all(|file| add(format!("{name}/{file}"))) {
                break;
            }
        }
    }
    Ok(keys)
}

/// Returns the first misnamed file in or below a directory of the lake, in the order of names. Directories
/// that cannot be read, such as `lost+found` of a disk, have none.
fn misnamed(root: &Path, inside: &str, depth: u32) -> Option<String> {
    let names = sorted_names(&root.join(inside)).unwrap_or_default();
    names.into_iter().take(MISNAMED_NAMES).find_map(|name| {
        let key = format!("{inside}{name}");
        if layout::may_be_misnamed(&key) {
            return Some(key);
        }
        let is_searched = depth > 0 && root.join(&key).is_dir();
        is_searched.then(|| misnamed(root, &format!("{key}/"), depth - 1)).flatten()
    })
}

fn sorted_names(directory: &Path) -> Result<Vec<String>, LakeError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|error| transport(directory, &error))? {
        let entry = entry.map_err(|error| transport(directory, &error))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}
