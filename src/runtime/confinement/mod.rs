//! Restricts what a child process can do before it processes untrusted input: files, networks,
//! other processes, memory and processor time. Linux only. Restrictions that the kernel does not
//! support are reported to the caller.
//!
//! There is one profile per kind of child process: the SQL worker keeps its directory and its
//! socket, the compiler keeps its pipes.

mod system_calls;

use std::io::Error as IoError;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use serde::{Deserialize, Serialize};

/// Address space of a SQL worker in addition to DuckDB's own memory, in bytes: for the program, its
/// stacks, answers in transit, and memory that DuckDB does not count, such as the lists that
/// functions build.
const NON_DUCKDB_MEMORY: u64 = 1 << 30;
/// Maximum number of files that a SQL worker has open at a time.
const DATABASE_FILES: u64 = 64;
/// Maximum processor time over the lifetime of a SQL worker, in seconds.
const DATABASE_PROCESSOR: u64 = 24 * 3600;

/// Maximum address space of a compiler process in bytes, including the program and its stacks.
pub const COMPILER_MEMORY: u64 = 2 << 30;
/// Maximum processor time of a compiler process, in seconds.
pub const COMPILER_PROCESSOR: u64 = 60;
/// Maximum number of descriptors of a compiler process at a time: its pipes, and one that is needed
/// while the confinement is set up.
const COMPILER_FILES: u64 = 8;

/// Reasons why a process cannot be confined as intended.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// A resource limit could not be set.
    #[error("the process cannot set its resource limits: {0}")]
    Limit(#[from] rustix::io::Errno),
    /// A Landlock rule could not be installed.
    #[error("the process cannot restrict its file access: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The process's own directory could not be opened.
    #[error("the process cannot open its directory: {0}")]
    Directory(#[from] landlock::PathFdError),
    /// A seccomp filter could not be installed.
    #[error("the process cannot restrict its system calls: {0}")]
    Seccomp(String),
    /// The process inherited a descriptor that it should not have.
    #[error("the process has inherited {0}, which it must not have")]
    Inherited(String),
    /// The open descriptors could not be listed.
    #[error("the process cannot list its file descriptors: {0}")]
    Descriptors(IoError),
}

/// Restrictions that are in force, as far as the kernel supports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Whether files outside the process's own directory cannot be opened (Landlock).
    pub files: bool,
    /// Whether system calls that the process does not need are refused, including all network calls
    /// (seccomp).
    pub calls: bool,
}

impl Confinement {
    /// Returns a sentence about the missing restrictions; `None` when all are in force.
    pub fn missing(self) -> Option<&'static str> {
        match (self.files, self.calls) {
            (true, true) => None,
            (false, true) => {
                Some("this kernel cannot restrict the file access of child processes (Landlock)")
            }
            (true, false) => {
                Some("this kernel cannot restrict the system calls of child processes (seccomp)")
            }
            (false, false) => Some(
                "this kernel can restrict neither the file access (Landlock) nor the system calls \
                 (seccomp) of child processes",
            ),
        }
    }
}

/// Returns the restrictions that this kernel supports. They are tried on a separate thread, which
/// then ends.
///
/// # Errors
/// When the kernel refuses a restriction that it claims to support.
pub fn available() -> Result<Confinement, ConfinementError> {
    let sandboxed = std::thread::spawn(|| Profile::compiler().install_sandbox()).join();
    sandboxed.unwrap_or_else(|_| Err(ConfinementError::Seccomp("the trial ended early".to_owned())))
}

/// Resources that a confined process keeps.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Maximum address space, in bytes.
    memory: u64,
    /// Maximum processor time, in seconds.
    processor: u64,
    /// Maximum number of open descriptors.
    descriptors: u64,
    /// Size of the largest file that the process may write, in bytes.
    file_bytes: u64,
    /// Whether the process keeps the current directory and the system calls for files.
    directory: bool,
    /// Directories with files that the process may read.
    readable: Vec<PathBuf>,
}

impl Profile {
    /// Returns the profile of a SQL worker: it keeps the current directory, with files of up to
    /// `file_bytes`, and the open descriptors. `memory` is the number of bytes that DuckDB may use;
    /// the rest of the process is added to it.
    pub fn sql_worker(memory: u64, file_bytes: u64) -> Self {
        Self {
            memory: memory.saturating_add(NON_DUCKDB_MEMORY),
            processor: DATABASE_PROCESSOR,
            descriptors: DATABASE_FILES,
            file_bytes,
            directory: true,
            readable: Vec::new(),
        }
    }

    /// Lets the process read the files in these directories, besides. Links in them lead nowhere else.
    #[must_use]
    pub fn reading(self, directories: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { readable: directories.into_iter().collect(), ..self }
    }

    /// Returns the profile of a compiler process, which keeps only the open descriptors.
    pub fn compiler() -> Self {
        Self {
            memory: COMPILER_MEMORY,
            processor: COMPILER_PROCESSOR,
            descriptors: COMPILER_FILES,
            file_bytes: 0,
            directory: false,
            readable: Vec::new(),
        }
    }

    /// Confines the process to this profile. It must not have started other threads yet.
    ///
    /// # Errors
    /// When the kernel refuses a restriction that it claims to support, or the process has
    /// inherited a descriptor that it should not have.
    pub fn enter(&self) -> Result<Confinement, ConfinementError> {
        check_descriptors()?;
        self.limit()?;
        self.install_sandbox()
    }

    /// Installs the restrictions that apply to the calling thread and to threads that it starts.
    fn install_sandbox(&self) -> Result<Confinement, ConfinementError> {
        let files = self.close_off_files()?;
        let calls = system_calls::install_filters(self.directory)?;
        Ok(Confinement { files, calls })
    }

    fn limit(&self) -> Result<(), ConfinementError> {
        let limits = [
            (Resource::As, self.memory),
            (Resource::Cpu, self.processor),
            (Resource::Nofile, self.descriptors),
            (Resource::Fsize, self.file_bytes),
            (Resource::Core, 0),
        ];
        for (resource, most) in limits {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        // Other processes of the same user cannot read the memory of this one.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        Ok(())
    }

    /// Denies access to all files, except for reading, writing, creating and removing files in the
    /// current directory if the profile keeps it.
    fn close_off_files(&self) -> Result<bool, ConfinementError> {
        let newest = ABI::V6;
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(newest))?
            .handle_access(AccessNet::from_all(newest))?
            .scope(Scope::from_all(newest))?
            .create()?;
        if self.directory {
            let own = AccessFs::ReadFile
                | AccessFs::WriteFile
                | AccessFs::ReadDir
                | AccessFs::MakeReg
                | AccessFs::RemoveFile
                | AccessFs::Truncate;
            ruleset = ruleset.add_rule(PathBeneath::new(PathFd::new(".")?, own))?;
        }
        for directory in &self.readable {
            let rule = PathBeneath::new(PathFd::new(directory)?, AccessFs::ReadFile);
            ruleset = ruleset.add_rule(rule)?;
        }
        Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
    }
}

/// Checks that every open descriptor is a socket, a pipe, `/dev/null` or in `/proc`, as are the
/// standard streams and the descriptors that this process opens itself.
fn check_descriptors() -> Result<(), ConfinementError> {
    let entries = std::fs::read_dir("/proc/self/fd").map_err(ConfinementError::Descriptors)?;
    for entry in entries {
        let entry = entry.map_err(ConfinementError::Descriptors)?;
        // The descriptor of the directory listing itself may be closed by now.
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy();
        let own = target.starts_with("socket:")
            || target.starts_with("pipe:")
            || target.starts_with("/dev/null")
            || target.starts_with("/proc/");
        if !own {
            return Err(ConfinementError::Inherited(target.into_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
