//! A runtime of its own for what gives way to the storing of ledgers.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

use super::Priority;

/// A runtime whose threads have [`Priority::Prompt`]. Dropping it stops them without waiting for them, so that a task
/// of another runtime may do it.
#[derive(Debug)]
pub struct PromptRuntime {
    handle: Handle,
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl PromptRuntime {
    /// Starts so many threads of this name.
    ///
    /// # Errors
    /// When the system refuses them.
    pub fn start(name: &str, threads: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .on_thread_start(|| Priority::Prompt.take())
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// For tasks of it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for PromptRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
