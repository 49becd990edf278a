//! Objects that are larger than what is held in memory: a file is sent in parts, and an object is read in
//! ranges. Parts of an upload that fails are removed; those of a process that is killed stay until the bucket
//! removes incomplete uploads.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt, PutPayload};

use super::objects::{Objects, ObjectsError};

/// Size in bytes of a part, and above which an object is sent in parts.
pub const PART: u64 = 16 << 20;

impl Objects {
    /// Writes an object with the content of a file, and replaces an existing one. It is there completely or
    /// not at all.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn upload(&self, key: &str, file: &File) -> Result<(), ObjectsError> {
        let bytes = file.metadata().map_err(|error| self.unreadable(key, &error))?.len();
        if bytes <= PART {
            return self.put(key, self.part(key, file, 0, bytes)?).await;
        }
        let path = self.path(key).map_err(|error| self.error(key, &error).1)?;
        let created = self.patience().ask(|| self.parts().create_multipart(&path)).await;
        let id = created.map_err(|error| self.error(key, &error).1)?;
        let sent = self.send_parts(key, &path, &id, file, bytes).await;
        if sent.is_err() {
            // The first error is the cause. A bucket removes what is left by its own rule.
            let _ = self.parts().abort_multipart(&path, &id).await;
        }
        sent
    }

    async fn send_parts(
        &self,
        key: &str,
        path: &Path,
        id: &MultipartId,
        file: &File,
        bytes: u64,
    ) -> Result<(), ObjectsError> {
        let mut parts = Vec::<PartId>::new();
        let mut begin = 0;
        while begin < bytes {
            let part = self.part(key, file, begin, PART.min(bytes - begin))?;
            begin += part.len() as u64;
            let number = parts.len();
            let send = || {
                let payload = PutPayload::from_bytes(part.clone());
                self.parts().put_part(path, id, number, payload)
            };
            let sent = self.patience().ask(send).await;
            parts.push(sent.map_err(|error| self.error(key, &error).1)?);
        }
        let mut tries = 0;
        let complete = || {
            tries += 1;
            self.parts().complete_multipart(path, id, parts.clone())
        };
        match self.patience().ask(complete).await {
            Ok(_) => Ok(()),
            // The request that failed before may have completed it.
            Err(_) if tries > 1 && self.length(key).await? == Some(bytes) => Ok(()),
            Err(error) => Err(self.error(key, &error).1),
        }
    }

    /// Returns a part of a file.
    fn part(&self, key: &str, file: &File, begin: u64, bytes: u64) -> Result<Bytes, ObjectsError> {
        let mut part = vec![0; bytes as usize];
        file.read_exact_at(&mut part, begin).map_err(|error| self.unreadable(key, &error))?;
        Ok(part.into())
    }

    fn unreadable(&self, key: &str, error: &std::io::Error) -> ObjectsError {
        let place = self.place(key);
        ObjectsError::Failed(format!("the local copy of {place} cannot be used: {error}"))
    }

    /// Returns the length of an object in bytes; `None` when the key does not exist.
    async fn length(&self, key: &str) -> Result<Option<u64>, ObjectsError> {
        let path = self.path(key).map_err(|error| self.error(key, &error).1)?;
        match self.patience().ask(|| self.store().head(&path)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.error(key, &error).1),
        }
    }

    /// Appends the content of an object of this length to a file.
    ///
    /// # Errors
    /// When the object is not there, is shorter, or cannot be read; when the file cannot be written.
    pub async fn download(
        &self,
        key: &str,
        bytes: u64,
        file: &mut File,
    ) -> Result<(), ObjectsError> {
        let path = self.path(key).map_err(|error| self.error(key, &error).1)?;
        let mut begin = 0;
        while begin < bytes {
            let range = begin..bytes.min(begin + PART);
            let read = || self.store().get_range(&path, range.clone());
            let part = self.patience().ask(read).await;
            let part = part.map_err(|error| self.error(key, &error).1)?;
            if part.len() as u64 != range.end - range.start {
                let place = self.place(key);
                return Err(ObjectsError::Failed(format!("{place} is shorter than {bytes} bytes")));
            }
            file.write_all(&part).map_err(|error| self.unreadable(key, &error))?;
            begin = range.end;
        }
        Ok(())
    }
}
