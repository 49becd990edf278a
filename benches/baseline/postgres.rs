//! A PostgreSQL server in a temporary directory, queried through one `psql` process that stays
//! open.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

type Failed = Box<dyn Error>;

const USER: &str = "ratios";
/// Users as whom the server runs if this process is root, which PostgreSQL refuses. The first that
/// exists is taken.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the directory of the binaries of the newest installed server, or the first directory in
/// `PATH` that has them.
pub fn installed() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, programs)| programs);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = newest.into_iter().chain(std::env::split_paths(&path));
    candidates.find(|it| ["initdb", "postgres", "psql"].iter().all(|p| it.join(p).is_file()))
}

/// A running server, stopped when dropped.
pub struct Postgres {
    server: Child,
    programs: PathBuf,
    directory: TempDir,
    psql: Option<Psql>,
}

struct Psql {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    asked: u64,
}

/// The result of a statement.
pub struct Answered {
    /// Output lines, with columns separated by `|`.
    pub lines: Vec<String>,
    /// Duration as `psql` reports it.
    pub millis: f64,
}

impl Postgres {
    /// Initialises and starts a server with the binaries in `programs`.
    pub fn start(programs: &Path) -> Result<Self, Failed> {
        let directory = tempfile::Builder::new().prefix("orrery-postgres-").tempdir()?;
        let user = unprivileged()?;
        if let Some((uid, gid)) = user {
            chown(directory.path(), Some(uid), Some(gid))?;
        }
        let data = directory.path().join("data");
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.current_dir(directory.path()).stdout(Stdio::null());
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        let made = command("initdb")
            .arg("-D")
            .arg(&data)
            .args(["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C"])
            .status()?;
        if !made.success() {
            return Err(format!("initdb ended with {made}").into());
        }
        let server = command("postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(directory.path())
            .args(["-c", "listen_addresses=", "-c", "shared_buffers=1GB"])
            .stderr(Stdio::null())
            .spawn()?;
        let mut postgres = Self { server, programs: programs.to_owned(), directory, psql: None };
        postgres.connect()?;
        Ok(postgres)
    }

    /// Returns the address of the database, by its socket.
    pub fn url(&self) -> String {
        let directory = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{directory}/postgres")
    }

    /// Returns a path at which the server can write a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("data").join(name)
    }

    fn psql(&self) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.arg("-h").arg(self.directory.path()).args(["-U", USER, "-d", "postgres"]);
        psql.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1"]);
        psql
    }

    fn connect(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        loop {
            let mut asked = self.psql();
            asked.args(["-c", "SELECT 1"]).stdout(Stdio::null()).stderr(Stdio::null());
            if asked.status()?.success() {
                break;
            }
            if let Some(ended) = self.server.try_wait()? {
                return Err(format!("PostgreSQL ended with {ended}").into());
            }
            if begun.elapsed() > TIMEOUT {
                return Err("PostgreSQL does not answer".into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let mut process = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().ok_or("no input")?;
        let output = BufReader::new(process.stdout.take().ok_or("no output")?);
        let mut psql = Psql { process, input, output, asked: 0 };
        psql.input.write_all(b"\\timing on\n")?;
        self.psql = Some(psql);
        Ok(())
    }

    /// Copies rows into a table. Each line holds values separated by tabs.
    pub fn copy(&self, table: &str, lines: impl Iterator<Item = String>) -> Result<(), Failed> {
        let copy = format!("COPY {table} FROM STDIN");
        let mut psql = self.psql().args(["-c", &copy]).stdin(Stdio::piped()).spawn()?;
        {
            let mut input = std::io::BufWriter::new(psql.stdin.take().ok_or("no input")?);
            for line in lines {
                writeln!(input, "{line}")?;
            }
            input.flush()?;
        }
        let ended = psql.wait()?;
        if ended.success() { Ok(()) } else { Err(format!("psql ended with {ended}").into()) }
    }

    /// Executes one statement.
    pub fn ask(&mut self, sql: &str) -> Result<Answered, Failed> {
        let psql = self.psql.as_mut().ok_or("not connected")?;
        psql.asked += 1;
        let end = format!("end of {}", psql.asked);
        writeln!(psql.input, "{sql};\n\\echo {end}")?;
        let (mut lines, mut millis) = (Vec::new(), None);
        loop {
            let mut line = String::new();
            if psql.output.read_line(&mut line)? == 0 {
                return Err(format!("psql ended at: {sql}").into());
            }
            let line = line.trim_end();
            if line == end {
                break;
            }
            match line.strip_prefix("Time: ").and_then(|rest| rest.split(' ').next()) {
                Some(time) => millis = Some(time.parse()?),
                None => lines.push(line.to_owned()),
            }
        }
        Ok(Answered { lines, millis: millis.ok_or("psql says no time")? })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Errors are ignored: a process that has already exited needs no signal.
        if let Some(mut psql) = self.psql.take() {
            let _ = psql.process.kill();
            let _ = psql.process.wait();
        }
        if let Some(pid) = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.server.wait();
    }
}

/// Returns the user and group ids to run the server as if this process is root, and `None`
/// otherwise.
fn unprivileged() -> Result<Option<(u32, u32)>, Failed> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let ids = |name: &str| {
        let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let fields = fields.find(|fields| fields.first() == Some(&name))?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    let found = UNPRIVILEGED.iter().find_map(|name| ids(name));
    Ok(Some(found.ok_or("there is no user to run PostgreSQL as")?))
}
