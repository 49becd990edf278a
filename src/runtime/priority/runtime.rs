//! A separate tokio runtime for work that gives way to the storing of ledgers.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use super::Priority;

/// A runtime whose threads have [`Priority::Prompt`]. Dropping it stops the threads without waiting
/// for them, so that it may be dropped within a task of another runtime; [`PromptRuntime::stop`]
/// waits.
#[derive(Debug)]
pub struct PromptRuntime {
    handle: Handle,
    /// Taken on drop and by [`Self::stop`].
    runtime: Option<Runtime>,
}

impl PromptRuntime {
    /// Starts a runtime with `threads` threads called `name`.
    ///
    /// # Errors
    /// When the operating system fails to create them.
    pub fn start(name: &str, threads: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .on_thread_start(|| Priority::Prompt.apply_to_current_thread())
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Drops the runtime's tasks and blocks until its threads have ended, for at most `timeout`. A
    /// thread that read the store while the process exits would use RocksDB data that is already
    /// destroyed, and abort.
    pub fn stop(mut self, timeout: Duration) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(timeout);
        }
    }

    /// Returns a handle for spawning tasks.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn stopping_waits_for_running_work() {
        let runtime = PromptRuntime::start("tests", 1).unwrap();
        let (begun, begins) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ended);
        runtime.handle().spawn(async move {
            begun.send(()).unwrap();
            tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(50)));
            ends.store(true, Ordering::SeqCst);
        });
        begins.recv().unwrap();
        runtime.stop(Duration::from_secs(60));
        assert!(ended.load(Ordering::SeqCst));
    }
}
