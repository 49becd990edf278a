//! Deliveries on their way: what a task is given to send, what it hands back, and what is written of it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::rows::{Attempt, Class, Delivery, Queued};
use crate::subscription::Subscription;
use crate::target::AttemptResult;
use orrery_runtime::budget::{Holder, Share};

/// A delivery that is ready to be sent.
pub struct Ready {
    /// Position of the delivery in the queue.
    pub queued: Queued,
    /// The delivery as it was read for this attempt.
    pub delivery: Delivery,
    /// Body to send.
    pub body: Bytes,
}

/// Deliveries of one subscription and class, for one task.
pub struct Job {
    /// Number of the job in this process.
    pub id: u64,
    /// Class of the deliveries.
    pub class: Class,
    /// The subscription.
    pub subscription: Arc<Subscription>,
    /// Origin of the server that they are sent to.
    pub server: Arc<str>,
    /// Owner of the subscription.
    pub owner: Holder,
    /// Deliveries in the order in which they are sent; when the job has ended, those that were not
    /// attempted.
    pub deliveries: VecDeque<Ready>,
    /// Slot of the attempt budget that it occupies.
    pub slot: Share,
}

/// An attempt that has ended.
pub struct Attempted {
    /// Position of the delivery in the queue.
    pub queued: Queued,
    /// The delivery as it was read for this attempt.
    pub delivery: Delivery,
    /// UNIX time in milliseconds at which the attempt began.
    pub began: u64,
    /// Result of the attempt; `None` when it was aborted.
    pub result: Option<AttemptResult>,
}

/// A job that has ended.
pub struct Ended {
    /// The job, with the deliveries that were not attempted.
    pub job: Job,
    /// The attempts, in order.
    pub attempts: Vec<Attempted>,
}

/// What is done of a job whose time is up while an attempt, its last, is still in progress.
pub struct Progress {
    /// The subscription.
    pub subscription: u32,
    /// Origin of the server.
    pub server: Arc<str>,
    /// Owner of the subscription.
    pub owner: Holder,
    /// The attempts that have ended, in order.
    pub attempts: Vec<Attempted>,
    /// The deliveries that will not be attempted.
    pub unsent: VecDeque<Ready>,
}

/// Outcome of a delivery that was in the queue.
#[derive(Debug, Clone)]
pub struct Note {
    /// Position of the delivery in the queue.
    pub queued: Queued,
    /// Replay round of the delivery when it was sent ([`Delivery::round`]).
    pub round: u32,
    /// The attempt, if there was one.
    pub attempt: Option<Attempt>,
    /// What follows for the delivery.
    pub outcome: Outcome,
    /// UNIX time in milliseconds of the outcome.
    pub ended: u64,
}

/// Outcome of an attempt, or the reason why none was made.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The endpoint accepted the delivery.
    Delivered,
    /// The endpoint stops accepting deliveries, with this status: 410, or 404 of a chat.
    Gone(u16),
    /// The attempt failed. The class and UNIX time in milliseconds of the next attempt; `None`
    /// after the last.
    Failed(Option<(Class, u64)>),
    /// No attempt is made, for this reason. The flag says whether the subscription is disabled for
    /// the same reason.
    Abandoned(String, bool),
    /// The queue row does not match any delivery.
    Stray,
}

/// Result of a note that was written.
pub struct Written {
    /// Position of the delivery in the queue before the write.
    pub queued: Queued,
    /// Its new position; `None` when it is not queued again.
    pub next: Option<Queued>,
    /// Whether the delivery needs no further attempt.
    pub is_finished: bool,
    /// Whether this note disabled the subscription.
    pub is_disabled: bool,
}
