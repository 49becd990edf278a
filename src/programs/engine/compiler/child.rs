//! The process that compiles one module: reads it from standard input, and answers on standard output. It
//! holds no secret, and gives up whatever it does not need before it reads anything.

use std::fmt::Display;
use std::io::{self, Read};
use std::thread;

use super::Kind;
use crate::confinement::{Confinement, Profile};
use crate::priority::{Priority, name_process};
use crate::programs::engine::settings;

/// Stack of the thread that compiles, in bytes: the compiler's own, deep for deeply nested code.
const STACK: usize = 32 << 20;
/// Longest module that is read, in bytes. The parent has checked it, and takes no longer ones.
const LONGEST_MODULE: u64 = 16 << 20;

/// Why nothing was answered.
#[derive(Debug, thiserror::Error)]
pub enum CompileFailure {
    /// The pipes.
    #[error(
        "a compiler is started by orrery itself, with pipes as its standard input and output: {0}"
    )]
    Pipes(#[from] io::Error),
}

/// Compiles the module that the parent sends, for instances with at most so many bytes of linear memory.
///
/// # Errors
/// When it cannot be read or nothing be answered.
pub fn run(instance_memory: usize) -> Result<(), CompileFailure> {
    // Programs that run and ledgers that come belong to others.
    Priority::Background.take();
    name_process(c"orrery-compile");
    let mut answer = io::stdout().lock();
    let mut trouble =
        |what: &dyn Display| Kind::Trouble.answer(&mut answer, what.to_string().as_bytes());
    let engine = match wasmtime::Engine::new(&settings::compiling(instance_memory)) {
        Ok(engine) => engine,
        Err(error) => return Ok(trouble(&format_args!("{error:#}"))?),
    };
    let kind = match Profile::compiler().enter() {
        Ok(Confinement { files: true, calls: true }) => Kind::Compiled,
        Ok(_) => Kind::Unconfined,
        Err(error) => return Ok(trouble(&error)?),
    };
    let mut code = Vec::new();
    io::stdin().lock().take(LONGEST_MODULE).read_to_end(&mut code)?;
    let compiler = thread::Builder::new().stack_size(STACK);
    let compiler = compiler.spawn(move || engine.precompile_module(&code))?;
    match compiler.join() {
        Ok(Ok(compiled)) => kind.answer(&mut answer, &compiled)?,
        Ok(Err(error)) => Kind::Refused.answer(&mut answer, format!("{error:#}").as_bytes())?,
        Err(_) => Kind::Refused.answer(&mut answer, b"the compiler fails on it")?,
    }
    Ok(())
}
