//! One stellar-core process: its arguments, what it inherits, and how it is stopped.
//!
//! It inherits its standard streams and, when it streams ledgers, descriptor 3. All other
//! descriptors of this process are closed on exec, except that of the store's directory, which
//! RocksDB opens for a moment before it writes a table file. Its standard input is the guard file of
//! its storage, which is empty. It runs in a process group of its own, so that Ctrl-C in a terminal
//! does not reach it and it is stopped cleanly by this process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::CoreError;
use super::log::{LastLines, take_lines};
use super::storage::Storage;

/// The descriptor to which core writes ledgers.
const STREAM_DESCRIPTOR: i32 = 3;
/// Arguments that select that descriptor.
pub(super) const STREAM_ARGUMENTS: [&str; 2] = ["--metadata-output-stream", "fd:3"];

/// Maximum number of bytes of an answer that are read.
const LONGEST_ANSWER: u64 = 1 << 20;
/// Time for reading the rest of the outputs of a process that has ended: children of its own may
/// keep them open.
const LAST_LINES_TIMEOUT: Duration = Duration::from_millis(500);

/// Starts stellar-core processes in one directory.
pub(super) struct Launcher {
    pub binary: PathBuf,
    /// Absolute path of the configuration.
    pub config: PathBuf,
    /// Working directory.
    pub directory: PathBuf,
    /// Time from SIGINT to SIGKILL.
    pub stop_timeout: Duration,
    pub storage: Arc<Storage>,
}

/// A running process. It is killed when this is dropped.
pub(super) struct Process {
    command: String,
    child: Child,
    lines: LastLines,
    outputs: Vec<JoinHandle<()>>,
    stop_timeout: Duration,
}

impl Launcher {
    /// Starts `stellar-core --conf FILE --console ARGUMENTS`. With `stream`, core writes its
    /// ledgers there.
    pub fn start(&self, arguments: &[&str], stream: Option<OwnedFd>) -> Result<Process, CoreError> {
        let mut process = self.spawn(arguments, stream)?;
        if let Some(output) = process.child.stdout.take() {
            process.keep_lines(output);
        }
        Ok(process)
    }

    /// Starts a process as [`Self::start`] does, and also returns its standard output.
    pub fn start_with_output(
        &self,
        arguments: &[&str],
    ) -> Result<(Process, impl Future<Output = String> + use<>), CoreError> {
        let mut process = self.spawn(arguments, None)?;
        let output = process.child.stdout.take();
        let answer = async move {
            let mut bytes = Vec::new();
            if let Some(output) = output {
                // The caller notices a truncated answer when it parses it.
                let _ = output.take(LONGEST_ANSWER).read_to_end(&mut bytes).await;
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok((process, answer))
    }

    fn spawn(&self, arguments: &[&str], stream: Option<OwnedFd>) -> Result<Process, CoreError> {
        let mut command = std::process::Command::new(&self.binary);
        command.arg("--conf").arg(&self.config).arg("--console").args(arguments);
        let name = format!("stellar-core {}", arguments.join(" "));
        let failed = |source| self.not_started(&name, source);
        command
            .current_dir(&self.directory)
            .stdin(self.storage.guard()?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(parent_fd) = stream {
            // The command owns the write end from here on and closes it when this function returns.
            // Otherwise the reader would never see the end of the stream.
            let mapping = FdMapping { parent_fd, child_fd: STREAM_DESCRIPTOR };
            command.fd_mappings(vec![mapping]).map_err(|error| failed(io::Error::other(error)))?;
        }
        let child = Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
        let (lines, outputs) = (LastLines::default(), Vec::new());
        let mut process =
            Process { command: name, child, lines, outputs, stop_timeout: self.stop_timeout };
        if let Some(errors) = process.child.stderr.take() {
            process.keep_lines(errors);
        }
        Ok(process)
    }

    fn not_started(&self, command: &str, source: io::Error) -> CoreError {
        if source.kind() == io::ErrorKind::NotFound && self.directory.exists() {
            return CoreError::not_found(&self.binary);
        }
        CoreError::not_started(command, source)
    }
}

impl Process {
    fn keep_lines(&mut self, output: impl AsyncRead + Unpin + Send + 'static) {
        self.outputs.push(tokio::spawn(take_lines(output, self.lines.clone())));
    }

    /// Waits until the process ends. Cancel safe.
    pub async fn ended(&mut self) -> Result<ExitStatus, CoreError> {
        let status = self.child.wait().await;
        status.map_err(|error| CoreError::not_started(&self.command, error))
    }

    /// Waits until the process ends; an unsuccessful exit status is an error.
    pub async fn succeeded(&mut self) -> Result<(), CoreError> {
        let status = self.ended().await?;
        if status.success() {
            return Ok(());
        }
        let end = self.exit_description(status).await;
        Err(CoreError::StorageInDoubt(format!("{} ended with {end}", self.command)))
    }

    /// Stops the process: sends SIGINT, and SIGKILL when it has not ended in time. Its stream must
    /// be read meanwhile, so that core does not block on a write.
    pub async fn stop(&mut self) -> Result<ExitStatus, CoreError> {
        self.signal(Signal::INT);
        if let Ok(status) = timeout(self.stop_timeout, self.child.wait()).await {
            return status.map_err(|error| CoreError::not_started(&self.command, error));
        }
        tracing::warn!("{} does not stop within {:?}: killed", self.command, self.stop_timeout);
        self.kill();
        self.ended().await
    }

    /// Kills the process and its children.
    pub fn kill(&self) {
        if let Some(pid) = self.pid() {
            // The process may have ended by now.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // The process may have ended by now.
            let _ = kill_process(pid, signal);
        }
    }

    /// `None` after the process was reaped: the kernel may reuse its pid.
    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Returns the exit status and the last lines of output as text.
    pub async fn exit_description(&mut self, status: ExitStatus) -> String {
        for mut output in self.outputs.drain(..) {
            // An output that stays open longer is abandoned.
            if timeout(LAST_LINES_TIMEOUT, &mut output).await.is_err() {
                output.abort();
            }
        }
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        };
        format!("{how} ({})", self.lines.summary())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.outputs.iter().for_each(JoinHandle::abort);
    }
}
