//! What comes of attempts: which answers count for their servers, what follows for the deliveries, and what
//! is done once that is written.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use super::super::job::{Attempted, Ended, Job, Note, Outcome, Progress, Written};
use super::Dispatcher;
use crate::rows::{Attempt, Class, Delivery, Queued};
use crate::schedule::{is_prompt, retry_delay};
use crate::target::AttemptResult;
use orrery_runtime::budget::Holder;

/// Response time from which an unsuccessful response counts as no answer: it says as little about
/// the server.
const SLOW_RESPONSE: Duration = Duration::from_secs(5);

impl Dispatcher {
    /// Handles a job that has ended.
    pub(super) fn ended(&mut self, Ended { job, attempts }: Ended) {
        let Job { id: job_id, class, subscription, server: name, owner, deliveries, slot } = job;
        drop(slot);
        self.tasks.remove(job_id);
        self.deps.metrics.set_webhooks_in_flight(self.tasks.count());
        let now = self.now();
        if let Some(server) = self.servers.get_mut(&name) {
            server.job_ended(owner, class);
        }
        self.record_answers(&name, owner, &attempts, now);
        self.queue_server(name);
        self.requeue_for_slot();
        let id = subscription.id;
        self.tasks.count_end(id);
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.job_ended(class);
        for unsent in deliveries.into_iter().rev() {
            queue.put_back(unsent.queued);
        }
        for attempt in attempts {
            self.attempted(attempt, now);
        }
        self.wake(id, class);
    }

    /// Handles what is done of a job that waits for its last attempt.
    pub(super) fn progressed(&mut self, progress: Progress) {
        let Progress { subscription, server, owner, attempts, unsent } = progress;
        let now = self.now();
        self.record_answers(&server, owner, &attempts, now);
        let Some(queue) = self.queues.get_mut(&subscription) else { return };
        for unsent in unsent.into_iter().rev() {
            queue.put_back(unsent.queued);
        }
        for attempt in attempts {
            self.attempted(attempt, now);
        }
    }

    /// Records which attempts of an owner a server has answered.
    fn record_answers(
        &mut self,
        server: &Arc<str>,
        owner: Holder,
        attempts: &[Attempted],
        now: u64,
    ) {
        let Some(server) = self.servers.get_mut(server) else { return };
        for result in attempts.iter().filter_map(|it| it.result.as_ref()) {
            let has_answered =
                result.succeeded() || (result.status.is_some() && result.duration < SLOW_RESPONSE);
            server.answered(owner, has_answered, result.duration, now);
        }
    }

    /// Notes the outcome of an attempt.
    pub(super) fn attempted(&mut self, attempt: Attempted, now: u64) {
        let Attempted { queued, delivery, began, result } = attempt;
        // An attempt that the shutdown aborts is made again after the next start.
        if result.is_none() && self.stop_by.is_some() {
            return;
        }
        let result = result.unwrap_or_else(|| AttemptResult {
            status: None,
            duration: Duration::from_millis(now.saturating_sub(began)),
            excerpt: String::new(),
            retry_after: None,
            error: Some("the attempt was aborted".to_owned()),
        });
        let subscription = self.deps.registry.get(queued.subscription);
        let chat = subscription.filter(|it| it.chat().is_some());
        if result.status == Some(429)
            && let Some(chat) = &chat
        {
            self.limited(chat, queued, result.retry_after, now);
            return;
        }
        let outcome = self.determine_outcome(&result, &delivery, queued, chat.is_some(), now);
        if matches!(outcome, Outcome::Gone(_))
            && queued.number.test().is_none()
            && let Some(queue) = self.queues.get_mut(&queued.subscription)
        {
            queue.stop_after(queued);
        }
        self.note(Note {
            queued,
            round: delivery.round,
            attempt: Some(Attempt::of(began, &result)),
            outcome,
            ended: now,
        });
    }

    /// Determines the outcome of an attempt that has ended.
    fn determine_outcome(
        &mut self,
        result: &AttemptResult,
        delivery: &Delivery,
        queued: Queued,
        is_chat: bool,
        now: u64,
    ) -> Outcome {
        let outcome = if result.succeeded() {
            Outcome::Delivered
        } else if let Some(status @ (410 | 404)) = result.status
            && (status == 410 || is_chat)
        {
            Outcome::Gone(status)
        } else if queued.number.test().is_some() {
            Outcome::Failed(None)
        } else {
            let tries = delivery.tries.saturating_add(1);
            let wait = retry_delay(tries, self.deps.rng.random(), result.retry_after);
            let class = if is_prompt(tries) { Class::Soon } else { Class::Later };
            let ms = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            Outcome::Failed(wait.map(|wait| (class, now.saturating_add(ms(wait)))))
        };
        self.deps.metrics.webhook_attempted(match &outcome {
            Outcome::Delivered => "delivered",
            Outcome::Gone(_) => "gone",
            Outcome::Failed(None) => "given_up",
            _ if result.status.is_some() => "refused",
            _ => "unreachable",
        });
        outcome
    }

    pub(super) fn note(&mut self, note: Note) {
        self.unwritten += 1;
        // If the writer has ended, the delivery is sent again after the next start.
        let _ = self.notes.send(note);
    }

    /// Counts outcomes that were written, before anything else is done about them: the counts must
    /// stay right through a panic.
    pub(super) fn count_written(&mut self, written: &[Written]) {
        self.unwritten = self.unwritten.saturating_sub(written.len());
        for finished in written.iter().filter(|it| it.is_finished) {
            if let Some(subscription) = self.deps.registry.get(finished.queued.subscription) {
                subscription.add_waiting(-1);
            }
        }
    }

    /// Goes on with a subscription of which an outcome was written.
    pub(super) fn written(&mut self, written: &Written) {
        let id = written.queued.subscription;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let resumes = queue.outcome_written(&written.queued);
        if let Some(next) = written.next {
            queue.add(next.class, next.due);
            self.schedule(id, next.class, next.due);
        }
        if written.is_disabled || resumes {
            Class::ALL.into_iter().for_each(|class| self.wake(id, class));
        }
    }
}
