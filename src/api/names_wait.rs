//! Waits for names that are stored and not at hand: interfaces that another thread reads into memory,
//! and ledgers that the index has not processed. Nothing is held meanwhile but the request itself.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use orrery_executables::{Interfaces, Lacking};

/// Number of times that a page is made again because names have come.
const MOST_AGAIN: u32 = 2;

/// Receives a notification whenever more names are known.
pub(super) struct NamesWait {
    interfaces: Arc<Interfaces>,
    news: Arc<Notify>,
}

/// How often a page may still be made again, and until when.
pub(super) struct Patience {
    again: u32,
    until: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { again: MOST_AGAIN, until: None }
    }
}

impl NamesWait {
    /// Subscribes to what becomes known.
    pub(super) fn of(interfaces: &Arc<Interfaces>) -> Self {
        let news = Arc::new(Notify::new());
        let waker = Arc::downgrade(&news);
        interfaces.listen(move |_| waker.upgrade().inspect(|news| news.notify_waiters()).is_some());
        Self { interfaces: Arc::clone(interfaces), news }
    }

    /// Returns the interfaces.
    pub(super) fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Waits until a reader has what another one lacked; not longer than `until`. Returns whether it
    /// has.
    pub(super) async fn wait_for(&self, lacking: &Lacking, until: Instant) -> bool {
        let is_there = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                // Later news send a notification; earlier ones are found by the check below.
                news.as_mut().enable();
                if self.interfaces.has(lacking) {
                    return;
                }
                news.await;
            }
        };
        timeout_at(until, is_there).await.is_ok()
    }

    /// Waits for what a page lacked, for a second at most over all its tries. Returns whether the page
    /// is to be made again.
    pub(super) async fn wait_for_page(&self, lacking: &Lacking, patience: &mut Patience) -> bool {
        if lacking.is_empty() || patience.again == 0 {
            return false;
        }
        patience.again -= 1;
        let until = Instant::now() + self.interfaces.most_waited();
        let until = *patience.until.get_or_insert(until);
        self.wait_for(lacking, until).await
    }
}
