//! What a child process gives up before it touches what strangers made: files, networks, other
//! processes, memory and time without bounds. Linux only; what a kernel lacks is reported, not hidden.
//!
//! There is one profile per kind of child: the SQL worker keeps its directory and its socket, the
//! compiler keeps its pipes.

mod calls;

use std::io::Error as IoError;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use serde::{Deserialize, Serialize};

/// Address space of a SQL worker beside DuckDB's own memory, in bytes: the program, its stacks, answers on
/// their way, and what DuckDB does not count, like the lists that functions make.
const BESIDE_DUCKDB: u64 = 1 << 30;
/// Files that a SQL worker has open at a time.
const DATABASE_FILES: u64 = 64;
/// Seconds of processor time in the life of a SQL worker.
const DATABASE_PROCESSOR: u64 = 24 * 3600;

/// Address space of a compiler in bytes, the program and its stacks included.
pub const COMPILER_MEMORY: u64 = 2 << 30;
/// Seconds of processor time of a compiler.
pub const COMPILER_PROCESSOR: u64 = 60;
/// Descriptors that a compiler has at a time: its pipes, and one while it sets up its confinement.
const COMPILER_FILES: u64 = 8;

/// Why a process cannot be confined as it should be.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// A limit.
    #[error("the process cannot limit itself: {0}")]
    Limit(#[from] rustix::io::Errno),
    /// Landlock.
    #[error("the process cannot close off files: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The directory that it keeps.
    #[error("the process cannot open its directory: {0}")]
    Directory(#[from] landlock::PathFdError),
    /// seccomp.
    #[error("the process cannot refuse system calls: {0}")]
    Seccomp(String),
    /// A descriptor that is not its own.
    #[error("the process has inherited {0}, which is not its own")]
    Inherited(String),
    /// The descriptors cannot be listed.
    #[error("the process cannot look at its descriptors: {0}")]
    Descriptors(IoError),
}

/// What holds a process back, as far as the kernel can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Files that are not its own cannot be opened (Landlock).
    pub files: bool,
    /// System calls that it does not need are refused, all that concern networks among them (seccomp).
    pub calls: bool,
}

impl Confinement {
    /// What is missing, in a sentence; nothing where all of it holds.
    pub fn lack(self) -> Option<&'static str> {
        match (self.files, self.calls) {
            (true, true) => None,
            (false, true) => Some("this kernel cannot keep files from child processes (Landlock)"),
            (true, false) => {
                Some("this kernel cannot refuse system calls of child processes (seccomp)")
            }
            (false, false) => Some(
                "this kernel can neither keep files from child processes (Landlock) nor refuse \
                 their system calls (seccomp)",
            ),
        }
    }
}

/// What this kernel can do to hold a child process back. Tried on a thread of its own, which then ends.
///
/// # Errors
/// When the kernel refuses what it says it can do.
pub fn available() -> Result<Confinement, ConfinementError> {
    let walled = std::thread::spawn(|| Profile::compiler().raise_walls()).join();
    walled.unwrap_or_else(|_| Err(ConfinementError::Seccomp("the trial ended early".to_owned())))
}

/// What a process keeps.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// Bytes of address space.
    memory: u64,
    /// Seconds of processor time.
    processor: u64,
    /// Descriptors at a time.
    descriptors: u64,
    /// Bytes of the largest file that it may write.
    file_bytes: u64,
    /// Whether it keeps the current directory and the system calls for files.
    directory: bool,
}

impl Profile {
    /// A SQL worker: the current directory, with files of up to `file_bytes`, and the open descriptors.
    /// `memory` is what DuckDB may use; the rest of the process comes on top.
    pub fn sql_worker(memory: u64, file_bytes: u64) -> Self {
        Self {
            memory: memory.saturating_add(BESIDE_DUCKDB),
            processor: DATABASE_PROCESSOR,
            descriptors: DATABASE_FILES,
            file_bytes,
            directory: true,
        }
    }

    /// A compiler: nothing but the open descriptors.
    pub fn compiler() -> Self {
        Self {
            memory: COMPILER_MEMORY,
            processor: COMPILER_PROCESSOR,
            descriptors: COMPILER_FILES,
            file_bytes: 0,
            directory: false,
        }
    }

    /// Gives up everything else. No other thread may run yet.
    ///
    /// # Errors
    /// When the kernel refuses what it says it can do.
    pub fn enter(&self) -> Result<Confinement, ConfinementError> {
        look_at_descriptors()?;
        self.limit()?;
        self.raise_walls()
    }

    /// The walls that hold for the calling thread and for those that it starts.
    fn raise_walls(&self) -> Result<Confinement, ConfinementError> {
        let files = self.close_off_files()?;
        let calls = calls::refuse(self.directory)?;
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
        // Others of the same user cannot look into its memory.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        Ok(())
    }

    /// Leaves at most the current directory, to read, write, make and remove files in it.
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
        Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
    }
}

/// Nothing may be open but the standard streams and what this process itself has opened since.
fn look_at_descriptors() -> Result<(), ConfinementError> {
    let entries = std::fs::read_dir("/proc/self/fd").map_err(ConfinementError::Descriptors)?;
    for entry in entries {
        let entry = entry.map_err(ConfinementError::Descriptors)?;
        // The directory that is being read is gone by the time it is looked at.
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
