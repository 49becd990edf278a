//! Why a module may not be a program.

use std::fmt;

use super::limits::Bytes;

/// Maximum number of names listed in a message.
const MAX_LISTED_NAMES: usize = 10;

/// First bytes of every WebAssembly 1 module (core specification, section 5.5.16).
pub(super) const PREAMBLE: [u8; 8] = *b"\0asm\x01\0\0\0";

/// Reason why a module is rejected, as one sentence for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The module is too large.
    #[error("the module has {size} bytes; a program may have {}: build it with opt-level = \"z\" \
             and without debug information", Bytes(*most))]
    TooLarge {
        /// Size in bytes.
        size: usize,
        /// Maximum size in bytes.
        most: usize,
    },
    /// The bytes are not a WebAssembly module; holds the first ones in hexadecimal.
    #[error(
        "this is not a WebAssembly module: it begins with '{}' where a module has \
         '{}'; send the .wasm file as the compiler wrote it",
        .0,
        hex::encode(PREAMBLE)
    )]
    NoModule(String),
    /// The module is damaged, or uses a WebAssembly proposal that is not allowed.
    #[error("this is no valid WebAssembly module for contracts: {0}")]
    Invalid(String),
    /// The module imports functions that the environment does not have.
    #[error("the module imports functions that contracts do not have: {}", Names(.0))]
    UnknownImports(Vec<String>),
    /// The module imports functions of the environment with wrong types.
    #[error("the module imports functions of the environment with other types than they have \
             (every parameter and the one result are i64): {}", Names(.0))]
    WrongImports(Vec<String>),
    /// The module has a start function, which would run when it is instantiated.
    #[error("the module has a start function, which contracts may not have: remove it")]
    Start,
    /// The module exports no memory with the name that the environment requires.
    #[error("the module exports no memory named 'memory': build it with soroban-sdk as a cdylib")]
    NoMemory,
    /// The module exports no function.
    #[error("the module exports no function: is there a #[contractimpl] in it?")]
    NoFunction,
    /// The module does not import the function that emits rows.
    #[error(
        "the module emits nothing (it does not import x.9): derive Retroshade for a struct \
             and call emit on it"
    )]
    EmitsNothing,
    /// The module's initial memory, or its tables, are too large.
    #[error("the module asks for {what} at its start; a program may have {most}")]
    AsksForTooMuch {
        /// Size or number that the module asks for.
        what: String,
        /// Allowed size or number.
        most: String,
    },
    /// Compiling the module would take too long.
    #[error("{0}: compiling that takes too long, so make it smaller or plainer")]
    TooComplex(String),
    /// A section of the module cannot be parsed.
    #[error(
        "the module's section '{section}' cannot be read ({reason}): build it with a \
             soroban-sdk for protocol {} or older",
        orrery_ledger::decode::MAX_PROTOCOL
    )]
    Section {
        /// Name of the section.
        section: &'static str,
        /// Error of the XDR parser.
        reason: String,
    },
}

/// Displays the first names of a list and the number of the others.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(MAX_LISTED_NAMES)];
        f.write_str(&shown.join(", "))?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
