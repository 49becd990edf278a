//! Why a module cannot be loaded or the engine cannot be set up.

use std::io;
use std::path::PathBuf;

use orrery_runtime::confinement::{COMPILER_MEMORY, COMPILER_PROCESSOR};

use super::limits::Bytes;
use super::refused::Refused;

/// Why a module cannot be loaded or the engine cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime rejects its configuration or the definition of a host function.
    #[error("wasmtime could not be set up: {0}")]
    Wasmtime(String),
    /// The module cannot be compiled or linked.
    #[error("the module cannot be compiled: {0}")]
    Compile(String),
    /// Compiling exceeded the compiler's CPU time or memory.
    #[error(
        "compiling the module takes more than {COMPILER_PROCESSOR} s or {} of memory: split its \
         largest functions",
        Bytes(COMPILER_MEMORY as usize)
    )]
    CompileLimits,
    /// Compiling exceeded its wall-clock time, which other load may have caused. Contains the limit
    /// in seconds.
    #[error("compiling the module took more than {0} s: try again, or split its largest functions")]
    CompileTime(u64),
    /// The compiled form is too large. Contains the limit in bytes.
    #[error("the module's compiled form has more than {}: make the module smaller", Bytes(*.0 as usize))]
    CompiledSize(u64),
    /// The module is not accepted.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The module failed to compile a short while ago. Contains the message of that failure.
    #[error("{0}")]
    RefusedBefore(String),
    /// The compiler process cannot compile any module.
    #[error("the compiler process failed: {0}")]
    Compiler(io::Error),
    /// A file operation in the directory of compiled modules failed.
    #[error("{}: {source}; compiled programs are kept there, so it has to be writable", path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("a thread for programs could not be started: {0}")]
    Thread(io::Error),
}

impl EngineError {
    /// Returns whether the module is the cause, rather than the machine or the directory.
    pub fn is_about_the_module(&self) -> bool {
        match self {
            Self::Compile(_)
            | Self::CompileLimits
            | Self::CompileTime(_)
            | Self::CompiledSize(_)
            | Self::Refused(_)
            | Self::RefusedBefore(_) => true,
            Self::Wasmtime(_) | Self::Compiler(_) | Self::Cache { .. } | Self::Thread(_) => false,
        }
    }
}
