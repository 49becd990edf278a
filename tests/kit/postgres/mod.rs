//! Starts PostgreSQL in a directory of its own, and ends it with the tests: Debian's package `postgresql`. Tests that
//! need it are skipped where there is none, and say so.

mod database;
mod pooler;
mod proxy;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

pub use database::{Database, Held};
pub use pooler::Pooler;
pub use proxy::{Break, Proxy};

use super::signal::{self, Signal};
use super::wait::wait_within;

/// The programs of the newest version that is installed.
static PROGRAMS: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|it| it.path().join("bin")).collect();
    found.retain(|it| it.join("initdb").exists());
    found.sort();
    found.pop()
});

/// User and group that the server runs as: it does not run as root.
static RUNS_AS: LazyLock<Option<(u32, u32)>> = LazyLock::new(|| {
    let number = |flag: &str, user: &[&str]| -> Option<u32> {
        let output = Command::new("id").arg(flag).args(user).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    if number("-u", &[]) != Some(0) {
        return None;
    }
    let of = |user| Some((number("-u", &[user])?, number("-g", &[user])?));
    of("postgres").or_else(|| of("nobody"))
});

/// Says why a test is skipped; `true` when it is.
pub fn is_missing() -> bool {
    if PROGRAMS.is_none() {
        eprintln!(
            "skipped: there is no PostgreSQL in /usr/lib/postgresql: apt-get install postgresql"
        );
    }
    PROGRAMS.is_none()
}

/// Whether a program is there; says that the test is skipped if not.
pub fn has(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("skipped: there is no {program}: apt-get install {program}");
    }
    found.is_ok()
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A command that runs as the server does.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = *RUNS_AS {
        command.uid(user).gid(group);
    }
    command.current_dir("/");
    command
}

/// Gives a file to the user of the server.
pub fn give(path: &Path) {
    if let Some((user, group)) = *RUNS_AS {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

fn program(name: &str) -> PathBuf {
    PROGRAMS.as_ref().unwrap().join(name)
}

/// Makes a file system of this size (`$1`, MiB) where the files of tables are, which only the server sees, and runs what
/// follows as its user.
const ON_SMALL_DISK: &str = "set -e; base=\"$2/base\"; cp -a \"$base\" \"$base.all\"; mount -t tmpfs -o size=$1m \
                             tmpfs \"$base\"; cp -a \"$base.all/.\" \"$base/\"; rm -rf \"$base.all\"; chown \
                             \"$3:$4\" \"$base\"; user=$3 group=$4; shift 4; exec setpriv --reuid \"$user\" --regid \
                             \"$group\" --clear-groups -- \"$@\"";

/// A server with its data.
pub struct Server {
    pub directory: PathBuf,
    pub port: u16,
    /// Size of the disk with its tables in MiB, if it has one of its own.
    disk: Option<u32>,
    /// Ends the server when this process ends, however it does.
    keeper: Option<Child>,
    _scratch: Option<tempfile::TempDir>,
}

static SHARED: LazyLock<Server> = LazyLock::new(|| Server::start(&[]));

/// The server that most tests share, each with a database of its own.
pub fn shared() -> &'static Server {
    &SHARED
}

impl Server {
    /// Makes a cluster and starts it with these settings.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_on(free_port(), settings)
    }

    /// As [`Self::start`], on this port.
    pub fn start_on(port: u16, settings: &[&str]) -> Self {
        let mut server = Self::made(port, settings);
        server.run();
        server
    }

    /// As [`Self::start`], with its tables on a disk of this size in MiB, which goes with the server. `None` where nobody
    /// may make one, which it says.
    pub fn on_small_disk(mib: u32) -> Option<Self> {
        let mut server = Self::made(free_port(), &[]);
        server.disk = Some(mib);
        if RUNS_AS.is_none() || !server.begin() {
            eprintln!("skipped: only root can make a small disk, with unshare and mount");
            return None;
        }
        server.wait();
        Some(server)
    }

    /// Makes a cluster.
    fn made(port: u16, settings: &[&str]) -> Self {
        let scratch = tempfile::Builder::new().prefix("orrery-postgres").tempdir().unwrap();
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o700)).unwrap();
        give(scratch.path());
        let directory = scratch.path().join("data");
        let output = command(program("initdb"))
            .args(["--no-sync", "-A", "trust", "-U", "root", "-E", "UTF8", "--locale=C", "-D"])
            .arg(&directory)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let hba = "local all all trust\nhost all scram 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        std::fs::write(directory.join("pg_hba.conf"), hba).unwrap();
        let configuration = directory.join("postgresql.conf");
        let text = std::fs::read_to_string(&configuration).unwrap();
        let settings = settings.join("\n");
        std::fs::write(
            &configuration,
            format!(
                "{text}\nfsync = off\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nmax_connections = \
                 60\nshared_buffers = 16MB\nwal_level = logical\n{settings}\n",
                directory.display()
            ),
        )
        .unwrap();
        Self { directory, port, disk: None, keeper: None, _scratch: Some(scratch) }
    }

    /// Starts the server, after it was killed or stopped.
    pub fn run(&mut self) {
        assert!(self.begin(), "{}", self.log());
        self.wait();
    }

    /// A shell that runs as the server does.
    fn shell(&self) -> Command {
        let Some((mib, (user, group))) = self.disk.zip(*RUNS_AS) else { return command("sh") };
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", ON_SMALL_DISK, "sh", &mib.to_string()]);
        command.arg(&self.directory).args([user.to_string(), group.to_string()]);
        command.arg("sh").current_dir("/");
        command
    }

    /// Starts the processes of the server. Returns whether they began.
    fn begin(&mut self) -> bool {
        let lines = "\"$1\" -D \"$2\" -p \"$3\" >>\"$2/log\" 2>&1 & pid=$!; echo $pid; cat >/dev/null; kill -INT $pid \
                     2>/dev/null; wait; [ -e \"${2%/*}/keep\" ] || rm -rf \"${2%/*}\"";
        // The shared one is never dropped: its files go when the tests are over.
        let mut keeper = self
            .shell()
            .args(["-c", lines, "sh"])
            .arg(program("postgres"))
            .arg(&self.directory)
            .arg(self.port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.keeper = Some(keeper);
        !line.is_empty()
    }

    /// Waits until the server answers.
    fn wait(&self) {
        wait_within(Duration::from_secs(60), "the server answers", || {
            match self.psql("postgres", "SELECT 1").status.success() {
                true => Ok(()),
                false => Err(self.log()),
            }
        });
    }

    /// Kills the server without a chance to end anything.
    pub fn kill(&mut self) {
        assert!(signal::send(self.process(), Signal::KILL));
        if let Some(mut keeper) = self.keeper.take() {
            // Its files stay.
            let keep = self.directory.with_file_name("keep");
            std::fs::write(&keep, "").unwrap();
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
            std::fs::remove_file(keep).unwrap();
        }
        // Its processes see that it is gone; a new one waits for them.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Fills the disk of its tables to the last byte, or makes room again.
    pub fn fill_disk(&self, is_full: bool) {
        let root = PathBuf::from(format!("/proc/{}/root", self.process()));
        let base = self.directory.strip_prefix("/").unwrap().join("base");
        let filler = root.join(base).join("filler");
        if !is_full {
            std::fs::remove_file(filler).unwrap();
            return;
        }
        let mut file = std::fs::File::create(filler).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    /// Stops the processes of the server, so that it takes connections and answers nothing, until they go on.
    pub fn hang(&self, hangs: bool) {
        assert!(self.signal_all(if hangs { Signal::STOP } else { Signal::CONT }));
    }

    /// Sends a signal to all processes of the server. Returns whether it runs.
    fn signal_all(&self, signal: Signal) -> bool {
        let Some(main) = self.found_process() else { return false };
        // It first, because the others are its children, and it makes no more then.
        let is_there = signal::send(main, signal);
        let children = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            // It may have ended meanwhile.
            let _ = signal::send(child.parse().unwrap(), signal);
        }
        is_there
    }

    /// The process that takes connections.
    fn process(&self) -> u32 {
        self.found_process().expect("the server runs")
    }

    fn found_process(&self) -> Option<u32> {
        let pid = std::fs::read_to_string(self.directory.join("postmaster.pid")).ok()?;
        pid.lines().next()?.parse().ok()
    }

    /// Runs statements as a superuser, who sees everything.
    pub fn psql(&self, database: &str, sql: &str) -> Output {
        self.psql_as("root", database, sql)
    }

    /// As [`Self::psql`], as another role.
    pub fn psql_as(&self, role: &str, database: &str, sql: &str) -> Output {
        Command::new(program("psql"))
            .args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-h"])
            .arg(&self.directory)
            .args(["-p", &self.port.to_string(), "-U", role, "-d", database, "-c", sql])
            .env("PGTZ", "UTC")
            .output()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test may have failed while it hung. It may have ended by itself.
        let _ = self.signal_all(Signal::CONT);
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
        }
    }
}
