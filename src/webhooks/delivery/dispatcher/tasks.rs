//! The tasks that are sending, and who waits for the end of those of a subscription.

use std::collections::HashMap;
use std::sync::mpsc::SyncSender;

use tokio::task::AbortHandle;

/// Tasks by the numbers of their jobs.
#[derive(Default)]
pub(super) struct Tasks {
    /// Each with its subscription.
    running: HashMap<u64, (AbortHandle, u32)>,
    last_job: u64,
    /// Number of tasks for each deleted subscription, and the channel that is notified when they
    /// have ended.
    pending_deletions: HashMap<u32, (usize, SyncSender<()>)>,
}

impl Tasks {
    /// Returns the number of the next job.
    pub fn number(&mut self) -> u64 {
        self.last_job += 1;
        self.last_job
    }

    /// Adds the task of a job.
    pub fn add(&mut self, job: u64, task: AbortHandle, subscription: u32) {
        self.running.insert(job, (task, subscription));
    }

    /// Removes the task of a job, which has ended.
    pub fn remove(&mut self, job: u64) {
        self.running.remove(&job);
    }

    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Whether all tasks that were not removed have ended all the same.
    pub fn are_finished(&self) -> bool {
        self.running.values().all(|(task, _)| task.is_finished())
    }

    pub fn abort_all(&self) {
        self.running.values().for_each(|(task, _)| task.abort());
    }

    /// Aborts all tasks of a subscription, and notifies `done` when they have ended.
    pub fn abort_of(&mut self, subscription: u32, done: SyncSender<()>) {
        let mut running = 0;
        for (task, _) in self.running.values().filter(|(_, of)| *of == subscription) {
            task.abort();
            running += 1;
        }
        match running {
            0 => notify(&done),
            _ => drop(self.pending_deletions.insert(subscription, (running, done))),
        }
    }

    /// Counts the end of a task for the deletion of its subscription, if that waits for it.
    pub fn count_end(&mut self, subscription: u32) {
        if let Some((running, _)) = self.pending_deletions.get_mut(&subscription) {
            *running -= 1;
            if *running == 0
                && let Some((_, done)) = self.pending_deletions.remove(&subscription)
            {
                notify(&done);
            }
        }
    }

    /// Forgets all tasks, which have ended, and notifies all that wait.
    pub fn clear(&mut self) {
        self.running.clear();
        for (_, done) in std::mem::take(&mut self.pending_deletions).into_values() {
            notify(&done);
        }
    }
}

/// Notifies who waits, who may have given up.
fn notify(done: &SyncSender<()>) {
    let _ = done.send(());
}
