//! Threads that run programs, each run with the priority of the thread that waits for it. They have a
//! large stack, because a deep nesting of contracts is a deep nesting of native frames, and a panic on
//! one of them ends one run and nothing else.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::settings::THREAD_STACK;
use crate::priority::Priority;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads of each priority. They end when the last owner goes.
pub(super) struct Workers {
    prompt: Arc<Queue>,
    patient: Arc<Queue>,
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
        let workers = Self { prompt: Arc::default(), patient: Arc::default() };
        for number in 0..threads.max(1) {
            for (priority, queue) in
                [(Priority::Prompt, &workers.prompt), (Priority::Patient, &workers.patient)]
            {
                let queue = Arc::clone(queue);
                let thread = thread::Builder::new().name(format!("program-{number}"));
                thread.stack_size(THREAD_STACK).spawn(move || {
                    priority.take();
                    queue.work();
                })?;
            }
        }
        Ok(workers)
    }

    /// Runs a job as soon as a thread is free that has the caller's priority. A job must not panic.
    pub(super) fn submit(&self, job: Job) {
        let queue = if Priority::is_patient() { &self.patient } else { &self.prompt };
        queue.state.lock().jobs.push_back(job);
        queue.more.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for queue in [&self.prompt, &self.patient] {
            queue.state.lock().closed = true;
            queue.more.notify_all();
        }
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
