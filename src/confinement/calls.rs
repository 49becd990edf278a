//! Which system calls a confined process may make, and with which arguments (seccomp).

use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use super::ConfinementError;

/// Refuses every system call that the process does not need; with `files`, those that a database needs
/// are left. Says whether the kernel can.
pub(super) fn refuse(files: bool) -> Result<bool, ConfinementError> {
    let failed = |error: &dyn std::fmt::Display| ConfinementError::Seccomp(error.to_string());
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(false) };
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let rules = allowed(files).map_err(|error| failed(&error))?.into_iter().collect();
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

fn allowed(files: bool) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
    // Threads, not processes.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let is_thread =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.push((libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]));
    // Nobody but itself: this is how it ends when its parent is gone.
    let own = u64::from(getpid().as_raw_nonzero().get().unsigned_abs());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.push((call, vec![SeccompRule::new(vec![is(0, own)?])?]));
    }
    // Names of threads; an allocator may ask to label its memory, and can do without.
    let name = u64::from(libc::PR_SET_NAME.unsigned_abs());
    rules.push((libc::SYS_prctl, vec![SeccompRule::new(vec![is(0, name)?])?]));
    // Memory for data: neither process runs code that it has made or loaded by itself.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let no_code = without(2, u64::from(libc::PROT_EXEC.unsigned_abs()))?;
        rules.push((call, vec![SeccompRule::new(vec![no_code])?]));
    }
    if files {
        rules.extend(FILES.iter().chain(FILES_HERE).map(|call| (*call, Vec::new())));
        rules.push((libc::SYS_fcntl, file_control()?));
    }
    Ok(rules)
}

/// What `fcntl` may be asked: flags, copies of a descriptor and locks. Not who is told, and by which
/// signal, that a descriptor can be read: that would be a signal to any process of the same user.
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

/// None of these bits is set.
fn without(argument: u8, bits: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)
}

/// Memory, threads, time, and the open descriptors.
const ALWAYS: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // Made unknown by a filter of its own.
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

/// What a database needs beside: files, which Landlock watches over, and facts about the machine.
const FILES: &[i64] = &[
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

/// Calls that newer architectures have in another form only.
#[cfg(target_arch = "x86_64")]
const FILES_HERE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_rename,
    libc::SYS_unlink,
];
/// Calls that newer architectures have in another form only.
#[cfg(not(target_arch = "x86_64"))]
const FILES_HERE: &[i64] = &[libc::SYS_faccessat];
