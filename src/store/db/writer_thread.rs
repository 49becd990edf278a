//! The thread that writes on behalf of threads of low priority.
//!
//! Each write waits for the write before it, and a write that waits for the disk takes
//! milliseconds. On a busy machine a thread of low priority is scheduled late: if it held a lock of
//! the store meanwhile, threads that store new ledgers would wait behind it. Work that needs such a
//! lock is therefore handed to a thread of normal priority.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

use orrery_runtime::priority;

use super::database::Database;
use crate::encoding::error::StoreError;

type Job = Box<dyn FnOnce(&Database) + Send>;

/// Handle of the writer thread; dropping it ends the thread.
pub(crate) struct WriterThread {
    database: Arc<Database>,
    /// Nice value of the thread that opened the store, which the writer thread inherits.
    nice: i32,
    /// Taken on drop: closing the channel ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl WriterThread {
    /// Starts the writer thread, with the priority of the caller.
    pub(crate) fn start(database: &Arc<Database>) -> Result<Self, StoreError> {
        let (jobs, waiting) = channel::<Job>();
        let own = Arc::clone(database);
        let work = move || work(&own, &waiting);
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(work);
        let thread = thread.map_err(|error| {
            StoreError::Database(format!("the writer thread cannot be started: {error}"))
        })?;
        let (database, nice) = (Arc::clone(database), priority::nice());
        Ok(Self { database, nice, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `job` on the calling thread or, if that has a lower priority, on the writer thread.
    ///
    /// # Errors
    /// The error of `job`; that it has panicked, or that the writer thread has ended.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if priority::nice() <= self.nice {
            return job(&self.database);
        }
        let (done, outcome) = sync_channel(1);
        // Sending fails only when the waiting thread has ended and dropped the receiver.
        let job: Job = Box::new(move |database| drop(done.send(job(database))));
        let ended = || StoreError::Database("the writer thread has ended".to_owned());
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(job).map_err(|_| ended())?;
        let panicked = || StoreError::Database("a write has panicked: the log says why".to_owned());
        outcome.recv().map_err(|_| panicked())?
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer thread had panicked");
        }
    }
}

fn work(database: &Database, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        // The thread goes on for others. The caller gets an error, as the job drops its sender.
        if catch_unwind(AssertUnwindSafe(|| job(database))).is_err() {
            tracing::error!("a write of a thread of low priority has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_runtime::priority::Priority;

    #[test]
    fn writes_of_low_priority_threads_run_on_the_writer_thread() {
        let directory = tempfile::tempdir().unwrap();
        let database = Arc::new(Database::open(directory.path()).unwrap());
        let writer = WriterThread::start(&database).unwrap();
        let where_it_runs =
            || writer.run(|_| Ok((std::thread::current().id(), priority::nice()))).unwrap();
        let own = (std::thread::current().id(), priority::nice());
        assert_eq!(where_it_runs(), own);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                Priority::Background.apply_to_current_thread();
                where_it_runs()
            });
            let (thread, nice) = asked.join().unwrap();
            assert_ne!(thread, own.0);
            assert_eq!(nice, own.1);
        });
        let failed = writer.run(|_| Err::<(), _>(StoreError::Database("why".to_owned())));
        assert_eq!(
            failed.unwrap_err().to_string(),
            StoreError::Database("why".to_owned()).to_string()
        );
        drop(writer);
        assert_eq!(Arc::strong_count(&database), 1);
    }

    #[test]
    fn a_job_that_panics_fails_and_the_next_one_runs() {
        let directory = tempfile::tempdir().unwrap();
        let database = Arc::new(Database::open(directory.path()).unwrap());
        let writer = WriterThread::start(&database).unwrap();
        std::thread::scope(|scope| {
            let low = scope.spawn(|| {
                Priority::Background.apply_to_current_thread();
                let failed = writer.run(|_| -> Result<(), StoreError> { panic!("in a job") });
                (failed.unwrap_err().to_string(), writer.run(|_| Ok(7)).unwrap())
            });
            let (failed, next) = low.join().unwrap();
            assert!(failed.contains("panicked"), "{failed}");
            assert_eq!(next, 7);
        });
    }
}
