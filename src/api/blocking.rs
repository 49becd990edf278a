//! Where work runs that may wait for storage: a bounded number at a time, a bounded number waiting.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::ApiError;

/// Seconds after which a client that met a full queue should try again.
const RETRY_AFTER: u64 = 1;

/// Runs blocking work without holding up the reactor.
pub(super) struct Readers {
    running: Semaphore,
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Readers {
    pub(super) fn new(running: usize, most_waiting: usize) -> Self {
        let running = Semaphore::new(running.max(1));
        Self { running, waiting: AtomicUsize::new(0), most_waiting }
    }

    /// Runs `work` when its turn comes; refuses at once when too many wait already.
    pub(super) async fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, ApiError> {
        let _turn = match self.running.try_acquire() {
            Ok(turn) => turn,
            Err(_) => self.queue().await?,
        };
        Ok(tokio::task::block_in_place(work))
    }

    async fn queue(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ApiError> {
        let busy = ApiError::Busy { retry_after: RETRY_AFTER };
        let place = Place::take(&self.waiting);
        if place.ahead >= self.most_waiting {
            return Err(busy);
        }
        // The semaphore is never closed.
        self.running.acquire().await.map_err(|_| busy)
    }
}

/// A place in the queue, given up when the client goes away too.
struct Place<'a> {
    waiting: &'a AtomicUsize,
    ahead: usize,
}

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize) -> Self {
        Self { waiting, ahead: waiting.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_queue_is_bounded() {
        let readers = Arc::new(Readers::new(1, 2));
        let (release, gate) = mpsc::channel::<()>();
        let (started, mut running) = tokio::sync::mpsc::unbounded_channel();
        let blocked = Arc::clone(&readers);
        let first = tokio::spawn(async move {
            blocked
                .run(move || {
                    started.send(()).unwrap();
                    gate.recv().unwrap();
                })
                .await
        });
        running.recv().await.unwrap();
        let queued: Vec<_> = (0..2)
            .map(|number| {
                let readers = Arc::clone(&readers);
                tokio::spawn(async move { readers.run(|| number).await.unwrap() })
            })
            .collect();
        while readers.waiting.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        let refused = readers.run(|| ()).await.unwrap_err();
        assert!(matches!(refused, ApiError::Busy { .. }));
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        for (number, waiter) in queued.into_iter().enumerate() {
            assert_eq!(waiter.await.unwrap(), number);
        }
        assert_eq!(readers.run(|| 7).await.unwrap(), 7);
        assert_eq!(readers.waiting.load(Ordering::Relaxed), 0);
    }
}
