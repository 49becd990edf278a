//! Compiles modules, each in a child process: the compiler's time and memory grow with the content
//! of a module, it cannot be interrupted, and a failed allocation aborts the process. The child
//! process is this program with the verb [`VERB`] (`child`). It reads the module from its standard
//! input and writes its response to its standard output, see `ResponseKind`.

mod child;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use orrery_runtime::budget::{Budget, Holder, Limits, Usage};
use orrery_runtime::frames;
use serde::{Deserialize, Serialize};

pub use child::{CompileFailure, run};

use super::error::EngineError;

/// Command line verb that makes the program a compiler.
pub const VERB: &str = "compile";
/// Flag of the verb: maximum linear memory of an instance, in bytes.
pub const INSTANCE_MEMORY: &str = "--instance-memory";

/// Maximum duration of a compiler process. Its limit on processor time (`COMPILER_PROCESSOR`) is
/// lower, because it shares the processors.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum number of concurrent compiler processes; further ones wait.
const MAX_CONCURRENT_COMPILERS: u64 = 2;
/// Maximum size of a response in bytes. A module has at most 2 MiB, and compiled code about five
/// times as much.
const MAX_RESPONSE_BYTES: u64 = 32 << 20;
/// Maximum size of a reason in a response, in bytes.
const LONGEST_REASON: usize = 1 << 10;

/// Kind of a response, which is the head of one frame; the content is its body. Anything but exactly one
/// frame is invalid: the process ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ResponseKind {
    /// Compiled code, as serialised by wasmtime.
    Compiled,
    /// Compiled code from a process that the kernel could not confine completely.
    Unconfined,
    /// Reason why the module cannot be compiled, as text.
    Refused,
    /// Reason why the process cannot compile any module, as text.
    Failed,
}

impl ResponseKind {
    /// Writes a response.
    fn write_response(self, to: &mut impl Write, content: &[u8]) -> io::Result<()> {
        frames::write(to, 0, &self, content)?;
        to.flush()
    }

    /// Parses a response; returns `None` if it is invalid.
    fn read(mut answer: &[u8]) -> Option<(Self, Vec<u8>)> {
        let longest = answer.len();
        let frame = frames::read(&mut answer, longest).ok()??;
        answer.is_empty().then_some((frame.head, frame.body))
    }
}

/// Starts compiler processes.
pub(super) struct Compiler {
    /// Path of the program to start.
    program: PathBuf,
    /// Maximum linear memory of an instance, in bytes.
    instance_memory: usize,
    timeout: Duration,
    /// Whether the warning about incomplete confinement has been logged.
    warned: AtomicBool,
    slots: Budget,
}

/// A child process that is killed and reaped on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Killing fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Compiler {
    pub(super) fn new(program: PathBuf, instance_memory: usize) -> Self {
        let slots = Budget::new("compilers", Limits::with_any_waiting(MAX_CONCURRENT_COMPILERS, 1));
        let warned = AtomicBool::new(false);
        Self { program, instance_memory, timeout: PROCESS_TIMEOUT, warned, slots }
    }

    /// Returns the usage of the slots for compiler processes.
    pub(super) fn usage(&self) -> Usage {
        self.slots.usage()
    }

    /// Returns compiled code for a module, as serialised by wasmtime.
    ///
    /// # Errors
    /// An error about the module when the module cannot be compiled; [`EngineError::Compiler`] or
    /// [`EngineError::Thread`] when no module can.
    pub(super) fn compile(&self, code: &[u8]) -> Result<Vec<u8>, EngineError> {
        // Unit tests of the library have no program to start.
        #[cfg(test)]
        if self.program.as_os_str().is_empty() {
            return tests::compile_in_this_process(code, self.instance_memory);
        }
        let slot = self.slots.take_blocking(Holder::this_thread(), 1, None);
        let _slot = slot.map_err(|refusal| EngineError::Compiler(io::Error::other(refusal)))?;
        let mut child = self.start().map_err(EngineError::Compiler)?;
        let no_pipe = || EngineError::Compiler(io::ErrorKind::BrokenPipe.into());
        let mut input = child.0.stdin.take().ok_or_else(no_pipe)?;
        let output = child.0.stdout.take().ok_or_else(no_pipe)?;
        let answer = thread::scope(|scope| {
            let (done, answer) = sync_channel(1);
            let write = move || {
                // A process that ends before it has read the module writes a reason, or its
                // response is found to be invalid below.
                let _ = input.write_all(code);
            };
            let read = move || {
                let mut answer = Vec::new();
                let read = output.take(MAX_RESPONSE_BYTES + 1).read_to_end(&mut answer);
                // The receiver is gone after the timeout.
                let _ = done.send(read.map(|_| answer));
            };
            let started = thread::Builder::new().spawn_scoped(scope, write);
            let started = started.and_then(|_| thread::Builder::new().spawn_scoped(scope, read));
            let answer = started.map(|_| answer.recv_timeout(self.timeout));
            // Killing the process closes its ends of the pipes, which ends both threads.
            drop(child);
            answer
        });
        match answer.map_err(EngineError::Thread)? {
            Ok(answer) => self.parse_response(answer.map_err(EngineError::Compiler)?),
            Err(RecvTimeoutError::Timeout) => Err(EngineError::CompileTime(self.timeout.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err(EngineError::CompileLimits),
        }
    }

    fn start(&self) -> io::Result<Running> {
        let child = Command::new(&self.program)
            .arg(VERB)
            .arg(INSTANCE_MEMORY)
            .arg(self.instance_memory.to_string())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Running(child))
    }

    /// Interprets a response.
    fn parse_response(&self, answer: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        if answer.len() as u64 > MAX_RESPONSE_BYTES {
            return Err(EngineError::CompiledSize(MAX_RESPONSE_BYTES));
        }
        let (kind, content) = ResponseKind::read(&answer).ok_or(EngineError::CompileLimits)?;
        let text = || {
            let text = String::from_utf8_lossy(&content[..content.len().min(LONGEST_REASON)]);
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>()
        };
        match kind {
            ResponseKind::Compiled | ResponseKind::Unconfined => {
                if kind == ResponseKind::Unconfined && !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("this kernel cannot fully confine compiler processes");
                }
                Ok(content)
            }
            ResponseKind::Refused => Err(EngineError::Compile(text())),
            ResponseKind::Failed => Err(EngineError::Compiler(io::Error::other(text()))),
        }
    }
}

#[cfg(test)]
mod tests;
