//! A lake that lies in a local directory.

use std::io;
use std::path::{Path, PathBuf};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{LakeError, ObjectStore, layout};

/// Objects as files below a directory; keys are relative paths.
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// The lake below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl ObjectStore for Directory {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Vec<u8>>, LakeError>> {
        let path = self.root.join(key);
        async move { found(&path, tokio::fs::read(&path).await) }.boxed()
    }

    fn exists(&self, key: &str) -> BoxFuture<'_, Result<bool, LakeError>> {
        let path = self.root.join(key);
        async move {
            let metadata = tokio::fs::metadata(&path).await;
            Ok(found(&path, metadata)?.is_some())
        }
        .boxed()
    }

    fn first_keys(&self, most: usize) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>> {
        let root = self.root.clone();
        let place = self.place("");
        async move {
            let listing = tokio::task::spawn_blocking(move || first_keys(&root, most)).await;
            match listing {
                Ok(keys) => keys.map(Some),
                Err(error) => Err(LakeError::Transport { place, reason: error.to_string() }),
            }
        }
        .boxed()
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
    LakeError::Transport { place: path.display().to_string(), reason: error.to_string() }
}

/// Keys lie at the root or one partition below it; partitions are entered only as far as needed.
fn first_keys(root: &Path, most: usize) -> Result<Vec<String>, LakeError> {
    let mut keys = Vec::new();
    for name in sorted_names(root)? {
        if keys.len() == most {
            break;
        }
        if layout::range_of(&name).is_some() {
            keys.push(name);
        } else if name.contains("--") && root.join(&name).is_dir() {
            let inside = sorted_names(&root.join(&name))?;
            let files = inside.iter().filter(|file| layout::range_of(file).is_some());
            keys.extend(files.take(most - keys.len()).map(|file| format!("{name}/{file}")));
        }
    }
    Ok(keys)
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
