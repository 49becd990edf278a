//! What the worker gives up before it touches anything: files, networks, other processes, memory and time
//! without bounds. Linux only; what a kernel lacks is reported, not hidden.

use std::io::Error as IoError;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getpid, set_dumpable_behavior, setrlimit,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::tables::wire::{Confinement, Opening};

/// Address space beside DuckDB's own memory: the program, its stacks, answers on their way, and what
/// DuckDB does not count, like the lists that functions make.
const BESIDE_DUCKDB: u64 = 1 << 30;
/// Files that are open at a time.
const FILES: u64 = 64;
/// Seconds of processor time in the life of a worker.
const PROCESSOR: u64 = 24 * 3600;

/// Why a process cannot be held back as it should.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A limit.
    #[error("the SQL worker cannot limit itself: {0}")]
    Limit(#[from] rustix::io::Errno),
    /// Landlock.
    #[error("the SQL worker cannot close off files: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The directory of the database.
    #[error("the SQL worker cannot open its directory: {0}")]
    Directory(#[from] landlock::PathFdError),
    /// seccomp.
    #[error("the SQL worker cannot refuse system calls: {0}")]
    Seccomp(String),
    /// A descriptor that is not the worker's.
    #[error("the SQL worker has inherited {0}, which is not its own")]
    Inherited(String),
    /// The descriptors cannot be listed.
    #[error("the SQL worker cannot look at its descriptors: {0}")]
    Descriptors(IoError),
}

/// Gives everything up but the current directory and the open descriptors. No other thread may run yet.
///
/// # Errors
/// When the kernel refuses what it says it can do.
pub fn enter(opening: &Opening) -> Result<Confinement, SandboxError> {
    look_at_descriptors()?;
    limit(opening)?;
    let files = close_off_files()?;
    let calls = refuse_calls()?;
    Ok(Confinement { files, calls })
}

/// Nothing may be open but the standard streams and what this process itself has opened since.
fn look_at_descriptors() -> Result<(), SandboxError> {
    let entries = std::fs::read_dir("/proc/self/fd").map_err(SandboxError::Descriptors)?;
    for entry in entries {
        let entry = entry.map_err(SandboxError::Descriptors)?;
        // The directory that is being read is gone by the time it is looked at.
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy();
        let own = target.starts_with("socket:")
            || target.starts_with("pipe:")
            || target.starts_with("/dev/null")
            || target.starts_with("/proc/");
        if !own {
            return Err(SandboxError::Inherited(target.into_owned()));
        }
    }
    Ok(())
}

fn limit(opening: &Opening) -> Result<(), SandboxError> {
    let memory = opening.memory.saturating_add(BESIDE_DUCKDB);
    let limits = [
        (Resource::As, memory),
        (Resource::Cpu, PROCESSOR),
        (Resource::Nofile, FILES),
        (Resource::Fsize, opening.file_bytes),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    // Others of the same user cannot look into its memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Leaves the current directory alone, to read, write, make and remove files in it.
fn close_off_files() -> Result<bool, SandboxError> {
    let newest = ABI::V6;
    let own = AccessFs::ReadFile
        | AccessFs::WriteFile
        | AccessFs::ReadDir
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
        | AccessFs::Truncate;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(newest))?
        .handle_access(AccessNet::from_all(newest))?
        .scope(Scope::from_all(newest))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new(".")?, own))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Refuses every system call that a database with one file and one socket does not need.
fn refuse_calls() -> Result<bool, SandboxError> {
    let failed = |error: &dyn std::fmt::Display| SandboxError::Seccomp(error.to_string());
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(false) };
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let rules = allowed_calls().map_err(|error| failed(&error))?.into_iter().collect();
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture);
    let program: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
    let program = program.map_err(|error| failed(&error))?;
    // What clone3 is asked cannot be seen; where it is unknown, the C library takes clone.
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let clone3 = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let filter = SeccompFilter::new(clone3, SeccompAction::Allow, unknown, architecture);
    let clone3: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
    let clone3 = clone3.map_err(|error| failed(&error))?;
    for program in [clone3, program] {
        match seccompiler::apply_filter(&program) {
            Ok(()) => {}
            Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
                if error.raw_os_error() == Some(libc::EINVAL) =>
            {
                // The kernel was built without it.
                return Ok(false);
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(true)
}

type Rules = Vec<(i64, Vec<SeccompRule>)>;

fn allowed_calls() -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    rules.extend(ALLOWED_HERE.iter().map(|call| (*call, Vec::new())));
    let equals = |argument, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    // Threads, not processes.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let is_thread =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.push((libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]));
    // Nobody but itself: this is how it ends when its parent is gone.
    let own = u64::from(getpid().as_raw_nonzero().get().unsigned_abs());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.push((call, vec![SeccompRule::new(vec![equals(0, own)?])?]));
    }
    // Names of threads; an allocator may ask to label its memory, and can do without.
    let name = u64::from(libc::PR_SET_NAME.unsigned_abs());
    rules.push((libc::SYS_prctl, vec![SeccompRule::new(vec![equals(0, name)?])?]));
    Ok(rules)
}

/// Memory, threads, time, the open descriptors, and files, which Landlock watches over.
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // Made unknown by a filter of its own.
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls that newer architectures have in another form only.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_rename,
    libc::SYS_unlink,
];
/// Calls that newer architectures have in another form only.
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[libc::SYS_faccessat];
