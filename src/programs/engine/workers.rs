//! Threads that run programs. They have a large stack, because a deep nesting of contracts is a deep
//! nesting of native frames, and a panic on one of them ends one run and nothing else.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::settings::THREAD_STACK;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads. They end when the last owner goes.
pub(super) struct Workers {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Workers {
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let workers = Self { queue: Arc::default() };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&workers.queue);
            thread::Builder::new()
                .name(format!("program-{number}"))
                .stack_size(THREAD_STACK)
                .spawn(move || queue.work())?;
        }
        Ok(workers)
    }

    /// Runs a job as soon as a thread is free. A job must not panic.
    pub(super) fn submit(&self, job: Job) {
        self.queue.state.lock().jobs.push_back(job);
        self.queue.more.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.more.notify_all();
    }
}

impl Queue {
    fn work(&self) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                match state.jobs.pop_front() {
                    Some(job) => break job,
                    None if state.closed => return,
                    None => self.more.wait(&mut state),
                }
            };
            drop(state);
            job();
        }
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message");
    format!("the contract host panicked: {text}")
}
