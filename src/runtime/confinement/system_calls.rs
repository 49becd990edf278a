//! System calls that a confined process may make, and with which arguments (seccomp).

use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::ConfinementError;

/// Installs filters that refuse every system call that the process does not need. With `files`, the
/// calls that a database needs stay allowed. Returns whether the kernel supports seccomp filters.
pub(super) fn install_filters(files: bool) -> Result<bool, ConfinementError> {
    let failed = |error: &dyn std::fmt::Display| ConfinementError::Seccomp(error.to_string());
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(false) };
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let rules = allowed(files).map_err(|error| failed(&error))?.into_iter().collect();
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture);
    let program: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
    let program = program.map_err(|error| failed(&error))?;
    // A filter cannot inspect the arguments of clone3, which are passed by pointer. When clone3
    // fails with ENOSYS, the C library falls back to clone.
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
                // The kernel was built without seccomp filters.
                return Ok(false);
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(true)
}

type Rules = Vec<(i64, Vec<SeccompRule>)>;

fn allowed(files: bool) -> Result<Rules, BackendError> {
    let mut rules: Rules = BASE_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    // Allows clone for threads only, not for processes.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let is_thread =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.push((libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]));
    // Allows signals to the process itself only: it kills itself when its parent is gone.
    let own = u64::from(getpid().as_raw_nonzero().get().unsigned_abs());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.push((call, vec![SeccompRule::new(vec![is(0, own)?])?]));
    }
    // Allows thread names only. An allocator may try to label its memory, and works without that.
    let name = u64::from(libc::PR_SET_NAME.unsigned_abs());
    rules.push((libc::SYS_prctl, vec![SeccompRule::new(vec![is(0, name)?])?]));
    // Allows memory for data only: neither kind of process runs code that it has generated or
    // loaded itself.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let no_code = without(2, u64::from(libc::PROT_EXEC.unsigned_abs()))?;
        rules.push((call, vec![SeccompRule::new(vec![no_code])?]));
    }
    if files {
        rules.extend(FILE_CALLS.iter().chain(ARCH_FILE_CALLS).map(|call| (*call, Vec::new())));
        rules.push((libc::SYS_fcntl, file_control()?));
    }
    Ok(rules)
}

/// Rules for `fcntl`: allows flags, copies of a descriptor and locks. Refuses to set which process
/// is signalled, and by which signal, when a descriptor becomes readable: that would send signals
/// to any process of the same user.
fn file_control() -> Result<Vec<SeccompRule>, BackendError> {
    const COMMANDS: [libc::c_int; 10] = [
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_GETLK,
        libc::F_SETLK,
        libc::F_SETLKW,
        libc::F_OFD_GETLK,
        libc::F_OFD_SETLK,
        libc::F_OFD_SETLKW,
        libc::F_DUPFD_CLOEXEC,
    ];
    let command = |command: libc::c_int| is(1, u64::from(command.unsigned_abs()));
    let mut rules = Vec::new();
    for allowed in COMMANDS {
        rules.push(SeccompRule::new(vec![command(allowed)?])?);
    }
    let quiet = without(2, u64::from(libc::O_ASYNC.unsigned_abs()))?;
    rules.push(SeccompRule::new(vec![command(libc::F_SETFL)?, quiet])?);
    Ok(rules)
}

fn is(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// Condition that none of `bits` is set in the argument.
fn without(argument: u8, bits: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)
}

/// Calls for memory, threads, time and open descriptors.
const BASE_CALLS: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // Allowed here, but a separate filter makes it fail with ENOSYS.
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Additional calls that a database needs: for files, which Landlock restricts, and for information
/// about the machine.
const FILE_CALLS: &[i64] = &[
    libc::SYS_dup,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getrusage,
    libc::SYS_lseek,
    libc::SYS_membarrier,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_renameat2,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_unlinkat,
];

/// Older forms of file calls, which this architecture still has.
#[cfg(target_arch = "x86_64")]
const ARCH_FILE_CALLS: &[i64] = &[
    libc::SYS_access,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_rename,
    libc::SYS_unlink,
];
/// The form of `access` on architectures that lack the older file calls.
#[cfg(not(target_arch = "x86_64"))]
const ARCH_FILE_CALLS: &[i64] = &[libc::SYS_faccessat];
