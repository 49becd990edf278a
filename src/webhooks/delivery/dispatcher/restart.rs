//! Begins with what is in the queue: at the start, and anew after a panic.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use quick_cache::unsync::Cache;

use super::super::job::Attempted;
use super::super::mailbox::Message;
use super::super::new_deliveries::Contents;
use super::super::outcome_writer::COMPONENT;
use super::{Dispatcher, MAX_CACHED_PAYLOADS};
use crate::CONSUMER;
use crate::rows::{QUEUE, Queued};
use orrery_store::{RowBounds, StoreError};

/// Interval at which the end of the earlier attempts is checked.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Delay before the queue is read again after a failure.
const REREAD_DELAY: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Schedules what an earlier process left in the queue, and counts it.
    pub fn load_queue(&mut self) {
        let mut found = Vec::new();
        if let Err(error) = self.read_queue(&mut found) {
            self.report_unread(&error);
        }
        let mut counts: HashMap<u32, i64> = HashMap::new();
        for (first, count) in &found {
            *counts.entry(first.subscription).or_default() += count;
        }
        self.schedule_all(&found);
        for subscription in
            self.deps.registry.with(|known| known.all().cloned().collect::<Vec<_>>())
        {
            subscription.set_waiting(counts.remove(&subscription.id).unwrap_or(0));
        }
    }

    /// Adds to `found` the first delivery of each subscription and class in the queue, and their
    /// number.
    fn read_queue(&self, found: &mut Vec<(Queued, i64)>) -> Result<(), StoreError> {
        let view = self.deps.store.consumer_view(CONSUMER, RowBounds::none())?;
        QUEUE.scan_all(&view, None, |queued, ()| {
            match found.last_mut() {
                Some((last, count))
                    if (last.subscription, last.class) == (queued.subscription, queued.class) =>
                {
                    *count += 1;
                }
                _ => found.push((queued, 1)),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    fn report_unread(&self, error: &StoreError) {
        tracing::error!("the queue of webhooks cannot be read: {error}");
        let reason = "the queue cannot be read: the log says why";
        self.deps.health.down(COMPONENT, reason);
    }

    fn schedule_all(&mut self, found: &[(Queued, i64)]) {
        for (first, _) in found {
            self.schedule(first.subscription, first.class, first.due);
        }
    }

    /// Discards the state, which a panic may have left half changed. Attempts in progress are
    /// aborted, and their deliveries are sent again; what ended before is noted. Messages that the
    /// new state is to see are handled last. Returns false when the service stops meanwhile.
    pub fn begin_again(&mut self, messages: &Receiver<Message>, stopping: &AtomicBool) -> bool {
        self.queues.clear();
        self.servers.clear();
        self.ready_servers.clear();
        self.waiting_for_slot.clear();
        self.timers.clear();
        self.paces.clear();
        self.payloads = Cache::new(MAX_CACHED_PAYLOADS);
        self.new_contents = Contents::default();
        self.tasks.abort_all();
        let mut later = Vec::new();
        // Outcomes must be in the queue before it is read.
        while !self.is_settled(messages, &mut later) {
            if stopping.load(Ordering::SeqCst) {
                return false;
            }
            match messages.recv_timeout(END_CHECK_INTERVAL) {
                Ok(message) => later.extend(self.settle(message)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        self.tasks.clear();
        self.deps.metrics.set_webhooks_in_flight(0);
        let mut found = Vec::new();
        while let Err(error) = self.read_queue(&mut found) {
            self.report_unread(&error);
            found.clear();
            thread::sleep(REREAD_DELAY);
            if stopping.load(Ordering::SeqCst) {
                return false;
            }
        }
        if self.deps.health.is_down(COMPONENT) {
            self.deps.health.up(COMPONENT);
        }
        self.schedule_all(&found);
        later.into_iter().for_each(|message| self.handle_message(message));
        true
    }

    /// Returns whether all earlier attempts have ended and all outcomes are written. Handles the
    /// messages that are there.
    fn is_settled(&mut self, messages: &Receiver<Message>, later: &mut Vec<Message>) -> bool {
        // A task sends its last message before it counts as finished.
        let have_ended = self.tasks.are_finished();
        for message in messages.try_iter() {
            later.extend(self.settle(message));
        }
        have_ended && self.unwritten == 0
    }

    /// Handles a message about what was under way; returns any other.
    fn settle(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::Progress(progress) => self.note_results(progress.attempts),
            Message::Ended(ended) => self.note_results(ended.attempts),
            Message::Written(written) => self.count_written(&written),
            other => return Some(other),
        }
        None
    }

    /// Notes the outcomes of the attempts that have a result.
    fn note_results(&mut self, attempts: Vec<Attempted>) {
        let now = self.now();
        for attempt in attempts.into_iter().filter(|it| it.result.is_some()) {
            self.attempted(attempt, now);
        }
    }
}
