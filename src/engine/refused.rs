//! Why a module may not be a program.

/// Maximum number of names listed in a message.
const MAX_LISTED_NAMES: usize = 10;

/// First bytes of every WebAssembly 1 module (core specification, section 5.5.16).
pub(super) const PREAMBLE: [u8; 8] = *b"\0asm\x01\0\0\0";

/// Reason why a module is rejected, as one sentence for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub(super) String);

impl Refused {
    /// Creates the reason for a module that takes too long to compile; `what` begins the sentence.
    pub(super) fn too_complex(what: &str) -> Self {
        Self(format!("{what}: compiling that takes too long, so make it smaller or plainer"))
    }

    /// Creates the reason for a module that is damaged, or uses a WebAssembly proposal that is not
    /// allowed.
    pub(super) fn invalid(reason: &str) -> Self {
        Self(format!("this is no valid WebAssembly module for contracts: {reason}"))
    }
}

/// Returns the first names of a list and the number of the others.
pub(super) fn listed(names: &[String]) -> String {
    let shown = &names[..names.len().min(MAX_LISTED_NAMES)];
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
