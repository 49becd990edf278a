//! Compiles modules, each in a process of its own: the compiler's time and memory grow with what is in a
//! module, nothing in it can be interrupted, and a failed allocation ends the process that it happens in.
//! The process is this program with the verb [`VERB`] (`child`); it reads the module from its standard
//! input and answers on its standard output, see `Kind`.

mod child;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

pub use child::{CompileFailure, run};

use super::EngineError;
use crate::budget::{Budget, Holder, Limits, Usage};

/// How the program is called that becomes a compiler.
pub const VERB: &str = "compile";
/// The flag behind the verb: bytes of the largest linear memory of an instance.
pub const INSTANCE_MEMORY: &str = "--instance-memory";

/// Longest life of a compiler. It has less time on a processor (`COMPILER_PROCESSOR`), and has to share it.
const LIFE: Duration = Duration::from_secs(90);
/// Compilers at a time; more wait for their turn.
const AT_A_TIME: u64 = 2;
/// Longest answer, in bytes. A module has 2 MiB at most, and compiled code some five times as much.
const MOST_ANSWERED: u64 = 32 << 20;
/// Longest reason in an answer, in bytes.
const LONGEST_REASON: usize = 1 << 10;

/// What an answer is. Its first byte says so, eight more, little-endian, how long the rest is. What is
/// shorter or longer is no answer: the process has ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Compiled code, as wasmtime serializes it.
    Compiled,
    /// The same, from a process that the kernel could not hold back as it should.
    Unconfined,
    /// Why the module cannot be compiled, as text.
    Refused,
    /// What keeps the process from compiling anything, as text.
    Trouble,
}

/// Bytes before the content of an answer.
const HEAD: usize = 9;

impl Kind {
    const ALL: [Self; 4] = [Self::Compiled, Self::Unconfined, Self::Refused, Self::Trouble];

    fn byte(self) -> u8 {
        match self {
            Self::Compiled => b'C',
            Self::Unconfined => b'U',
            Self::Refused => b'R',
            Self::Trouble => b'T',
        }
    }

    /// Writes an answer.
    fn answer(self, to: &mut impl Write, content: &[u8]) -> io::Result<()> {
        to.write_all(&[self.byte()])?;
        to.write_all(&(content.len() as u64).to_le_bytes())?;
        to.write_all(content)?;
        to.flush()
    }

    /// Reads an answer; none when it is none.
    fn read(answer: &[u8]) -> Option<(Self, &[u8])> {
        let (head, content) = answer.split_at_checked(HEAD)?;
        let kind = Self::ALL.into_iter().find(|kind| kind.byte() == head[0])?;
        (head[1..] == (content.len() as u64).to_le_bytes()).then_some((kind, content))
    }
}

/// Starts processes that compile.
pub(super) struct Compiler {
    /// The program that becomes a compiler.
    program: PathBuf,
    /// Bytes of the largest linear memory of an instance.
    instance_memory: usize,
    life: Duration,
    /// It has been said that the kernel lacks something.
    warned: AtomicBool,
    places: Budget,
}

/// A process that is not left behind.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Compiler {
    pub(super) fn new(program: PathBuf, instance_memory: usize) -> Self {
        let places = Budget::new("compilers", Limits::with_any_waiting(AT_A_TIME, 1));
        let warned = AtomicBool::new(false);
        Self { program, instance_memory, life: LIFE, warned, places }
    }

    /// What is taken of the places for compilers.
    pub(super) fn usage(&self) -> Usage {
        self.places.usage()
    }

    /// Compiled code for a module, as wasmtime serializes it.
    ///
    /// # Errors
    /// Those about the module when it is the module that cannot be compiled, [`EngineError::Compiler`] and
    /// [`EngineError::Thread`] when nothing can.
    pub(super) fn compile(&self, code: &[u8]) -> Result<Vec<u8>, EngineError> {
        // Tests of the library have no program that could become a compiler.
        #[cfg(test)]
        if self.program.as_os_str().is_empty() {
            return tests::compile_in_this_process(code, self.instance_memory);
        }
        let place = self.places.take_blocking(Holder::this_thread(), 1, None);
        let _place = place.map_err(|refusal| EngineError::Compiler(io::Error::other(refusal)))?;
        let mut child = self.start().map_err(EngineError::Compiler)?;
        let no_pipe = || EngineError::Compiler(io::ErrorKind::BrokenPipe.into());
        let mut input = child.0.stdin.take().ok_or_else(no_pipe)?;
        let output = child.0.stdout.take().ok_or_else(no_pipe)?;
        let answer = thread::scope(|scope| {
            let (done, answer) = sync_channel(1);
            let write = move || {
                // A process that ends before it has read the module says why, or is missed below.
                let _ = input.write_all(code);
            };
            let read = move || {
                let mut answer = Vec::new();
                let read = output.take(MOST_ANSWERED + 1).read_to_end(&mut answer);
                // Nobody waits when it took too long.
                let _ = done.send(read.map(|_| answer));
            };
            let started = thread::Builder::new().spawn_scoped(scope, write);
            let started = started.and_then(|_| thread::Builder::new().spawn_scoped(scope, read));
            let answer = started.map(|_| answer.recv_timeout(self.life));
            // Without the other ends of the pipes both threads end.
            drop(child);
            answer
        });
        match answer.map_err(EngineError::Thread)? {
            Ok(answer) => self.understand(answer.map_err(EngineError::Compiler)?),
            Err(RecvTimeoutError::Timeout) => Err(EngineError::CompileTime(self.life.as_secs())),
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

    /// What an answer says.
    fn understand(&self, mut answer: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        if answer.len() as u64 > MOST_ANSWERED {
            return Err(EngineError::CompiledSize(MOST_ANSWERED));
        }
        let (kind, content) = Kind::read(&answer).ok_or(EngineError::CompileLimits)?;
        let text = || {
            let text = String::from_utf8_lossy(&content[..content.len().min(LONGEST_REASON)]);
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>()
        };
        match kind {
            Kind::Compiled | Kind::Unconfined => {
                if kind == Kind::Unconfined && !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("this kernel cannot hold compilers back as it should");
                }
                answer.drain(..HEAD);
                Ok(answer)
            }
            Kind::Refused => Err(EngineError::Compile(text())),
            Kind::Trouble => Err(EngineError::Compiler(io::Error::other(text()))),
        }
    }
}

#[cfg(test)]
mod tests;
