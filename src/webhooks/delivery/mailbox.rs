//! Messages to the dispatcher, and the mailbox through which others send them.

use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::Duration;

use super::job::{Ended, Progress, Written};
use super::new_deliveries::{Counted, Created, Unhandled};
use crate::rows::Class;

/// How long a deletion waits for the subscription's attempts to end. They are aborted, so they
/// normally end at once.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Message to the dispatcher.
pub(super) enum Message {
    /// Deliveries were created.
    Created(Created, Counted),
    /// A replay or a test queued deliveries of a subscription that are due at this UNIX time in
    /// milliseconds.
    Requested(u32, Class, u64),
    /// A subscription was disabled or enabled.
    Changed(u32),
    /// A subscription was deleted; the sender is notified when nothing is being sent for it any
    /// more.
    Forget(u32, SyncSender<()>),
    /// A job whose time is up waits for its last attempt.
    Progress(Box<Progress>),
    /// A job has ended.
    Ended(Box<Ended>),
    /// Outcomes of attempts were written.
    Written(Vec<Written>),
    /// Makes the dispatcher read the clock, which has moved.
    Tick,
    /// Requests the dispatcher's current load.
    ReportLoad(SyncSender<Load>),
    /// Starts no more attempts, and ends the dispatcher.
    Stop,
}

/// Load of the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Number of attempts in progress.
    pub in_flight: usize,
    /// Number of outcomes that are not written yet.
    pub unwritten: usize,
    /// UNIX time in milliseconds of the next timer; `None` when no timer is set.
    pub next: Option<u64>,
}

/// Sends messages to the dispatcher.
#[derive(Clone)]
pub struct Mailbox {
    pub(super) messages: Sender<Message>,
    pub(super) unhandled: Unhandled,
}

impl Mailbox {
    /// Reports that deliveries were created. They must be on disk.
    pub fn deliveries_created(&self, mut created: Created) {
        let counted = self.unhandled.count(&mut created);
        self.send(Message::Created(created, counted));
    }

    /// Reports that a replay or a test queued deliveries of a subscription, due at that UNIX time
    /// in milliseconds.
    pub fn delivery_requested(&self, subscription: u32, class: Class, due: u64) {
        self.send(Message::Requested(subscription, class, due));
    }

    /// Reports that a subscription was disabled or enabled.
    pub fn changed(&self, subscription: u32) {
        self.send(Message::Changed(subscription));
    }

    /// Aborts all attempts of a subscription, and returns when they have ended.
    pub fn forget(&self, subscription: u32) {
        let (done, wait) = sync_channel(1);
        self.send(Message::Forget(subscription, done));
        // A disconnected channel means that the dispatcher has ended and sends nothing more.
        if wait.recv_timeout(ABORT_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::error!(subscription, "attempts for a deleted subscription do not end");
        }
    }

    /// Makes the dispatcher read the clock, which has moved.
    pub fn tick(&self) {
        self.send(Message::Tick);
    }

    /// Returns the dispatcher's load; `None` when it has ended.
    pub fn load(&self) -> Option<Load> {
        let (reply, replies) = sync_channel(1);
        self.send(Message::ReportLoad(reply));
        replies.recv().ok()
    }

    pub(super) fn send(&self, message: Message) {
        // If the dispatcher has ended, the service is stopping, and the deliveries are in the
        // store.
        let _ = self.messages.send(message);
    }
}
