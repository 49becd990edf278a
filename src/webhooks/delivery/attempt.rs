//! One attempt, as a task of the runtime.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::{Message, Post};
use crate::budget::Share;
use crate::webhooks::rows::{Delivery, Queued};
use crate::webhooks::signature;
use crate::webhooks::subscription::Subscription;
use crate::webhooks::target::Attempted;
use crate::webhooks::{Clock, Secret};

/// What is sent, and whom it concerns.
pub struct Job {
    /// Number of the attempt in this process.
    pub flight: u64,
    /// Where it lies in the queue.
    pub queued: Queued,
    /// As it was when it was its turn.
    pub delivery: Delivery,
    /// The server that it goes to.
    pub server: Arc<str>,
    /// When it began, in UNIX milliseconds.
    pub began: u64,
    /// The place that it takes.
    pub place: Share,
}

/// An attempt that has ended.
pub struct Ended {
    /// What was sent.
    pub job: Job,
    /// What came of it; none when it was broken off.
    pub attempted: Option<Attempted>,
}

/// Tells of the end however it comes.
struct Guard {
    ended: Option<Ended>,
    tell: Sender<Message>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            // When nobody listens any more, the delivery is sent again after the next start.
            let _ = self.tell.send(Message::Ended(Box::new(ended)));
        }
    }
}

/// Makes an attempt. Whatever becomes of what this returns, and if nobody ever polls it, `tell` hears of the end.
pub fn make(
    job: Job,
    subscription: Arc<Subscription>,
    secret: Secret,
    body: Bytes,
    post: Post,
    clock: Clock,
    tell: Sender<Message>,
) -> impl Future<Output = ()> + Send + 'static {
    let id = job.queued.number.id(&subscription.definition.tag);
    let mut guard = Guard { ended: Some(Ended { job, attempted: None }), tell };
    async move {
        let headers = signature::headers(secret.reveal(), &id, clock() / 1000, &body);
        let attempted = post(subscription, headers, body).await;
        if let Some(ended) = &mut guard.ended {
            ended.attempted = Some(attempted);
        }
    }
}
