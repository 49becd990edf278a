//! Why the sandbox as a source could not start or resume.

use std::fmt::Display;
use std::io;
use std::path::Path;

use crate::network::SandboxError;

/// Why the sandbox could not start or resume: a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SandboxNetworkError(pub(super) String);

impl SandboxNetworkError {
    /// Returns the error for a file of the sandbox that is damaged.
    pub(super) fn damaged(path: &Path, reason: impl Display) -> Self {
        let path = path.display();
        Self(format!("the sandbox's file {path} is damaged: {reason}; use a new data directory"))
    }

    /// Converts errors of reading and writing a file of the sandbox.
    pub(super) fn of_file(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self(format!("the sandbox's file {}: {error}", path.display()))
    }
}

impl From<SandboxError> for SandboxNetworkError {
    fn from(error: SandboxError) -> Self {
        Self(format!("the sandbox failed: {error}"))
    }
}
