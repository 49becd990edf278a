//! The child process that compiles one module: reads it from standard input and writes the response
//! to standard output. It holds no secret, and drops all privileges that it does not need before it
//! reads anything.

use std::fmt::Display;
use std::io::{self, Read};
use std::thread;

use orrery_runtime::confinement::{Confinement, Profile};
use orrery_runtime::priority::{Priority, name_process};

use super::ResponseKind;
use crate::settings;

/// Stack of the compiling thread in bytes; the compiler recurses deeply on deeply nested code.
const STACK: usize = 32 << 20;
/// Maximum size of a module in bytes. The parent process has checked the module and accepts only
/// smaller ones.
const LONGEST_MODULE: u64 = 16 << 20;

/// Error that prevents a response.
#[derive(Debug, thiserror::Error)]
pub enum CompileFailure {
    /// Standard input or output failed.
    #[error(
        "a compiler is started by orrery itself, with pipes as its standard input and output: {0}"
    )]
    Pipes(#[from] io::Error),
}

/// Compiles the module that the parent process sends, for instances with at most `instance_memory`
/// bytes of linear memory.
///
/// # Errors
/// When the module cannot be read or the response cannot be written.
pub fn run(instance_memory: usize) -> Result<(), CompileFailure> {
    // Running programs and storing new ledgers take precedence.
    Priority::Background.apply_to_current_thread();
    name_process(c"orrery-compile");
    let mut answer = io::stdout().lock();
    let mut report_failure = |what: &dyn Display| {
        ResponseKind::Failed.write_response(&mut answer, what.to_string().as_bytes())
    };
    let engine = match wasmtime::Engine::new(&settings::compiling(instance_memory)) {
        Ok(engine) => engine,
        Err(error) => return Ok(report_failure(&format_args!("{error:#}"))?),
    };
    let kind = match Profile::compiler().enter() {
        Ok(Confinement { files: true, calls: true }) => ResponseKind::Compiled,
        Ok(_) => ResponseKind::Unconfined,
        Err(error) => return Ok(report_failure(&error)?),
    };
    let mut code = Vec::new();
    io::stdin().lock().take(LONGEST_MODULE).read_to_end(&mut code)?;
    let compiler = thread::Builder::new().stack_size(STACK);
    let compiler = compiler.spawn(move || engine.precompile_module(&code))?;
    match compiler.join() {
        Ok(Ok(compiled)) => kind.write_response(&mut answer, &compiled)?,
        Ok(Err(error)) => {
            ResponseKind::Refused.write_response(&mut answer, format!("{error:#}").as_bytes())?
        }
        Err(_) => ResponseKind::Refused.write_response(&mut answer, b"the compiler fails on it")?,
    }
    Ok(())
}
