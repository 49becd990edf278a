//! One attempt, as a task of the runtime.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::{Message, Post};
use crate::budget::Share;
use crate::webhooks::rows::{Delivery, Queued};
use crate::webhooks::signature;
use crate::webhooks::subscription::Subscription;
use crate::webhooks::target::AttemptResult;
use crate::webhooks::{Clock, Secret};

/// A delivery to send.
pub struct Job {
    /// Number of the attempt in this process.
    pub attempt_id: u64,
    /// Position of the delivery in the queue.
    pub queued: Queued,
    /// The delivery as it was read for this attempt.
    pub delivery: Delivery,
    /// Origin of the server that it is sent to.
    pub server: Arc<str>,
    /// UNIX time in milliseconds at which the attempt began.
    pub began: u64,
    /// Slot of the attempt budget that it occupies.
    pub slot: Share,
}

/// An attempt that has ended.
pub struct Ended {
    /// The delivery that was sent.
    pub job: Job,
    /// Result of the attempt; `None` when it was aborted.
    pub attempted: Option<AttemptResult>,
}

/// Reports the end of an attempt when dropped, so also after an abort or a panic.
struct Guard {
    ended: Option<Ended>,
    mailbox: Sender<Message>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            // If the dispatcher has ended, the delivery is sent again after the next start.
            let _ = self.mailbox.send(Message::Ended(Box::new(ended)));
        }
    }
}

/// Returns a future that makes an attempt. `mailbox` receives the end of the attempt even when the
/// future is dropped before it completes or is never polled.
pub fn make(
    job: Job,
    subscription: Arc<Subscription>,
    secret: Secret,
    body: Bytes,
    post: Post,
    clock: Clock,
    mailbox: Sender<Message>,
) -> impl Future<Output = ()> + Send + 'static {
    let id = job.queued.number.id(&subscription.definition.tag);
    let mut guard = Guard { ended: Some(Ended { job, attempted: None }), mailbox };
    async move {
        let headers = signature::headers(secret.reveal(), &id, clock() / 1000, &body);
        let attempted = post(subscription, headers, body).await;
        if let Some(ended) = &mut guard.ended {
            ended.attempted = Some(attempted);
        }
    }
}
