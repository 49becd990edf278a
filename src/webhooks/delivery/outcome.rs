//! Outcomes of deliveries: what is written of them, and what follows.

use crate::rows::{Attempt, Class, Queued};

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
    /// The endpoint stops accepting deliveries (410).
    Gone,
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
