use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Signal, getpid, getppid, kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::process::raw_calls::{control, map_page};

const MIB: u64 = 1 << 20;

/// Runs `work` on a thread with the restrictions of `profile`, which end with the thread. The
/// resource limits of the profile are left out, because they would apply to the whole process.
fn sandboxed<T: Send + 'static>(profile: Profile, work: impl FnOnce() -> T + Send + 'static) -> T {
    let sandboxed = thread::spawn(move || {
        let confinement = profile.install_sandbox().unwrap();
        assert_eq!(confinement, Confinement { files: true, calls: true });
        work()
    });
    sandboxed.join().unwrap()
}

fn is_refused<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn a_worker_cannot_send_signals_through_its_socket() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let parent = getpid().as_raw_nonzero().get();
    sandboxed(Profile::sql_worker(MIB, MIB), move || {
        let ask = |command, number| control(theirs.as_fd(), command, number);
        is_refused(ask(libc::F_SETOWN, parent));
        is_refused(ask(10, libc::SIGKILL)); // F_SETSIG, which the library does not name.
        is_refused(ask(libc::F_SETFL, libc::O_ASYNC));
        is_refused(ask(libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK));
        is_refused(ask(libc::F_NOTIFY, 1));
        is_refused(ask(libc::F_SETLEASE, libc::F_RDLCK));
        // Commands that a database uses.
        ask(libc::F_SETFL, libc::O_NONBLOCK).unwrap();
        assert_ne!(ask(libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK, 0);
        ask(libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
        assert_eq!(ask(libc::F_GETFD, 0).unwrap(), libc::FD_CLOEXEC);
        assert!(theirs.try_clone().is_ok(), "F_DUPFD_CLOEXEC");
    });
    drop(ours);
}

#[test]
fn workers_and_compilers_reach_no_files_networks_or_processes() {
    let parent = getppid().unwrap();
    for profile in [Profile::sql_worker(MIB, MIB), Profile::compiler()] {
        sandboxed(profile, move || {
            is_refused(File::open("/etc/passwd"));
            is_refused(fs::write("/tmp/not-to-be-written", b""));
            is_refused(TcpListener::bind("127.0.0.1:0"));
            is_refused(UdpSocket::bind("127.0.0.1:0"));
            is_refused(UnixStream::pair());
            is_refused(Command::new("/bin/true").spawn());
            // SIGCONT would do no harm if it were sent.
            let sent = kill_process(parent, Signal::CONT);
            is_refused(sent.map_err(io::Error::from));
            is_refused(map_page(libc::PROT_READ | libc::PROT_EXEC));
            map_page(libc::PROT_READ | libc::PROT_WRITE).unwrap();
            thread::spawn(|| 1).join().unwrap();
        });
    }
}

#[test]
fn a_worker_can_read_its_directory_and_a_compiler_cannot() {
    // Tests run in the package's directory.
    assert!(sandboxed(Profile::sql_worker(MIB, MIB), || File::open("Cargo.toml").is_ok()));
    sandboxed(Profile::compiler(), || {
        is_refused(File::open("Cargo.toml"));
        is_refused(fs::metadata("Cargo.toml"));
        is_refused(fs::read_dir("."));
    });
}

#[test]
fn a_worker_reads_the_files_of_further_directories_and_changes_nothing_there() {
    let root = tempfile::tempdir().unwrap();
    let (given, other) = (root.path().join("given"), root.path().join("other"));
    for directory in [&given, &other] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("file"), "content").unwrap();
    }
    symlink(other.join("file"), given.join("link")).unwrap();
    let profile = Profile::sql_worker(MIB, MIB).reading([given.clone()]);
    sandboxed(profile, move || {
        assert_eq!(fs::read(given.join("file")).unwrap(), b"content");
        is_refused(File::options().write(true).open(given.join("file")));
        is_refused(File::create(given.join("new")));
        is_refused(fs::remove_file(given.join("file")));
        is_refused(fs::rename(given.join("file"), given.join("renamed")));
        is_refused(fs::read_dir(&given));
        is_refused(File::open(given.join("link")));
        is_refused(File::open(given.join("../other/file")));
        is_refused(File::open(other.join("file")));
        is_refused(fs::read_dir(given.join("..")));
    });
    drop(root);
}

/// Environment variable that tells the child process of the test below which limit to exceed.
const LIMIT_VARIABLE: &str = "ORRERY_TEST_BEYOND";

/// Does nothing unless it is started by the test below.
#[test]
fn child_process_that_exceeds_a_limit() {
    let Ok(beyond) = std::env::var(LIMIT_VARIABLE) else { return };
    // `VmSize` is in kibibytes (proc_pid_status(5)).
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let taken: u64 = line.trim_end_matches("kB").trim().parse().unwrap();
    let memory = (taken << 10) + 64 * MIB;
    Profile { memory, processor: 1, ..Profile::compiler() }.limit().unwrap();
    let mut bytes = Vec::<u8>::new();
    assert!(bytes.try_reserve_exact(MIB as usize).is_ok());
    match &*beyond {
        "memory" => assert!(bytes.try_reserve_exact(128 * MIB as usize).is_err()),
        _ => while clock_gettime(ClockId::ProcessCPUTime).tv_sec < 3 {},
    }
}

#[test]
fn memory_and_processor_time_of_a_process_are_limited() {
    let beyond = |limit: &str| -> ExitStatus {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "confinement::tests::child_process_that_exceeds_a_limit"]);
        command
            .env(LIMIT_VARIABLE, limit)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().unwrap()
    };
    assert_eq!(beyond("memory").code(), Some(0), "it is refused");
    let ended = beyond("processor");
    let by_the_kernel = [Signal::XCPU, Signal::KILL].map(|signal| Some(signal.as_raw()));
    assert!(by_the_kernel.contains(&ended.signal()), "{ended}");
}
