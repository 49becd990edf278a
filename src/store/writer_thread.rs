//! The thread that writes for threads of low priority.
//!
//! Whoever writes waits for the write before, and one that waits for the disk takes milliseconds. A thread of
//! low priority gets a processor late when others are busy: if it held a lock of the store meanwhile, threads
//! that store new ledgers would wait behind it. So a thread of normal priority does for it what is done
//! under a lock.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

use super::StoreError;
use super::database::Database;
use crate::priority;

type Job = Box<dyn FnOnce(&Database) + Send>;

/// The thread, until this is dropped.
pub(super) struct WriterThread {
    database: Arc<Database>,
    /// Nice value of the thread that opened the store, which the writing thread has too.
    nice: i32,
    /// Taken when it is dropped, which ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl WriterThread {
    /// Starts the thread. It has the priority of the caller.
    pub(super) fn start(database: &Arc<Database>) -> Result<Self, StoreError> {
        let (jobs, waiting) = channel::<Job>();
        let own = Arc::clone(database);
        let work = move || work(&own, &waiting);
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(work);
        let thread = thread.map_err(|error| {
            StoreError::Database(format!("the thread that writes cannot be started: {error}"))
        })?;
        let (database, nice) = (Arc::clone(database), priority::nice());
        Ok(Self { database, nice, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Does something with the database, on this thread or, if it has a lower priority, on that one.
    ///
    /// # Errors
    /// What it says, or that the thread has ended.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if priority::nice() <= self.nice {
            return job(&self.database);
        }
        let (done, outcome) = sync_channel(1);
        // The receiver is dropped only when the thread that waits has ended.
        let job: Job = Box::new(move |database| drop(done.send(job(database))));
        let ended = || StoreError::Database("the thread that writes has ended".to_owned());
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(job).map_err(|_| ended())?;
        outcome.recv().map_err(|_| ended())?
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes had panicked");
        }
    }
}

fn work(database: &Database, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        job(database);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::Priority;

    #[test]
    fn what_gives_way_is_done_by_a_thread_that_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let database = Arc::new(Database::open(directory.path()).unwrap());
        let writer = WriterThread::start(&database).unwrap();
        let where_it_runs =
            || writer.run(|_| Ok((std::thread::current().id(), priority::nice()))).unwrap();
        let own = (std::thread::current().id(), priority::nice());
        assert_eq!(where_it_runs(), own);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                Priority::Background.take();
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
}
