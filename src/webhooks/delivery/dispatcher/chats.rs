//! What is different about chats: they take so many messages in a time and no more, and nobody reads what
//! waits for too long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::super::job::{Note, Outcome};
use super::Dispatcher;
use crate::CONSUMER;
use crate::rows::{Class, DELIVERIES, QUEUE, Queued};
use crate::schedule::{DEFAULT_CHAT_PAUSE, MAX_RETRY_AFTER, MOST_IN_CHAT};
use crate::subscription::Subscription;
use orrery_store::{ConsumerView, RowBounds, StoreError};

/// Maximum number of deliveries that are given up at once; the rest follows when these are written.
const MOST_GIVEN_UP: usize = 1024;

impl Dispatcher {
    /// Returns the UNIX time in milliseconds before which a subscription must not send its next message,
    /// if it has to wait.
    pub(super) fn must_wait(
        &mut self,
        subscription: &Subscription,
        class: Class,
        now: u64,
    ) -> Option<u64> {
        let (endpoint, rate) = subscription.chat()?;
        // Those of a disabled subscription are given up, and none is sent.
        if !subscription.is_enabled() {
            return None;
        }
        let place = &mut self.queues.get_mut(&subscription.id)?.part(class).place;
        let at = self.paces.place(endpoint, rate, *place, now);
        *place = Some(at);
        (at > now).then_some(at)
    }

    /// Sends nothing to the chat of a delivery for as long as it has asked, and puts the delivery back: to
    /// be told to wait is no attempt.
    pub(super) fn limited(
        &mut self,
        subscription: &Arc<Subscription>,
        queued: Queued,
        asked: Option<Duration>,
        now: u64,
    ) {
        let Some((endpoint, rate)) = subscription.chat() else { return };
        let wait = asked.unwrap_or(DEFAULT_CHAT_PAUSE).clamp(rate.interval, MAX_RETRY_AFTER);
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.paces.pause(endpoint, now.saturating_add(wait));
        self.deps.metrics.webhook_attempted("limited");
        self.put_back(queued);
        self.wake(queued.subscription, queued.class);
    }

    /// Gives up the oldest deliveries of a chat for which too many wait.
    pub(super) fn give_up_oldest(&mut self, id: u32) {
        let Some(queue) = self.queue(id) else { return };
        let subscription = Arc::clone(&queue.subscription);
        if subscription.chat().is_none() || subscription.waiting() <= MOST_IN_CHAT {
            return;
        }
        if let Err(error) = self.give_up(id) {
            tracing::error!(subscription = id, "the queue of a chat cannot be read: {error}");
        }
    }

    fn give_up(&mut self, id: u32) -> Result<(), StoreError> {
        let (store, now) = (Arc::clone(&self.deps.store), self.now());
        let view = store.consumer_view(CONSUMER, RowBounds::none())?;
        let oldest = self.oldest(id, &view)?;
        for queued in oldest {
            let Some(delivery) = DELIVERIES.get(&view, &(id, queued.number))? else { continue };
            let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
            queue.take_out(queued);
            self.note(Note {
                queued,
                round: delivery.round,
                attempt: None,
                outcome: Outcome::Abandoned(too_many(), false),
                ended: now,
            });
        }
        Ok(())
    }

    /// Returns the oldest deliveries that wait beyond as many as may, but not too many of them.
    fn oldest(&mut self, id: u32, view: &ConsumerView<'_>) -> Result<Vec<Queued>, StoreError> {
        // The newest ones, of which the oldest is on top.
        let mut newest = BinaryHeap::new();
        let mut oldest = Vec::new();
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(oldest) };
        for class in Class::ALL {
            let part = queue.part(class);
            QUEUE.scan(view, &(id, class), None, |queued, ()| {
                if queued.number.test().is_some() || part.is_busy(&queued) {
                    return Ok(ControlFlow::Continue(()));
                }
                newest.push((Reverse(queued.number), queued.class, queued.due));
                if newest.len() as u64 > MOST_IN_CHAT
                    && let Some((Reverse(number), class, due)) = newest.pop()
                {
                    oldest.push(Queued { subscription: id, class, due, number });
                }
                Ok(match oldest.len() < MOST_GIVEN_UP {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
        }
        Ok(oldest)
    }
}

fn too_many() -> String {
    format!("more than {MOST_IN_CHAT} messages were waiting for its chat, and this was the oldest")
}
