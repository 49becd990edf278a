//! Attempts, made by tasks of the runtime. A task makes several of them one after the other, because
//! a task for each would spend more on its start and on the message about its end than on the
//! attempt.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::job::{Attempted, Ended, Job, Progress, Ready};
use super::mailbox::Message;
use crate::Clock;
use crate::rows::Queued;
use crate::signature;
use crate::subscription::Subscription;
use crate::target::AttemptResult;

/// Time after which a task begins no further attempt, because other subscriptions wait for its place
/// at the server, and reports the attempts that have ended.
const MAX_DURATION: Duration = Duration::from_millis(20);

/// Makes one attempt with the subscription, the headers and the body.
pub type Post = Arc<
    dyn Fn(Arc<Subscription>, Headers, Bytes) -> BoxFuture<'static, AttemptResult> + Send + Sync,
>;

/// Names and values of the headers that sign a delivery.
pub type Headers = [(&'static str, String); 6];

/// Reports the end of a job when dropped, so also after an abort or a panic.
struct Guard {
    ended: Option<Ended>,
    mailbox: Sender<Message>,
}

impl Guard {
    /// Takes the next delivery, whose attempt begins at `now`.
    fn begin_next(&mut self, now: u64, public_url: Option<&str>) -> Option<(Queued, Bytes)> {
        let Ended { job, attempts } = self.ended.as_mut()?;
        let Ready { queued, delivery, body } = job.deliveries.pop_front()?;
        let body = job.subscription.written(body, &delivery.decimals, public_url);
        // Until there is a result, the attempt counts as aborted.
        attempts.push(Attempted { queued, delivery, began: now, result: None });
        Some((queued, body))
    }

    /// Reports all but the attempt in progress, which becomes the last one.
    fn report_progress(&mut self) {
        let Some(Ended { job, attempts }) = &mut self.ended else { return };
        let current = attempts.pop();
        if attempts.is_empty() && job.deliveries.is_empty() {
            attempts.extend(current);
            return;
        }
        let progress = Progress {
            subscription: job.subscription.id,
            server: Arc::clone(&job.server),
            owner: job.owner,
            attempts: std::mem::replace(attempts, current.into_iter().collect()),
            unsent: std::mem::take(&mut job.deliveries),
        };
        // As in `drop`.
        let _ = self.mailbox.send(Message::Progress(Box::new(progress)));
    }

    fn set_result(&mut self, result: AttemptResult) {
        if let Some(attempt) = self.ended.as_mut().and_then(|it| it.attempts.last_mut()) {
            attempt.result = Some(result);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            // If the dispatcher has ended, the deliveries are sent again after the next start.
            let _ = self.mailbox.send(Message::Ended(Box::new(ended)));
        }
    }
}

/// Returns a future that attempts the deliveries of a job, until one attempt fails, much time has
/// passed, or the subscription is disabled, or its secrets cannot be read. `mailbox` receives the end
/// of the job even when the future is dropped before it completes or is never polled.
pub fn make(
    job: Job,
    post: Post,
    clock: Clock,
    public_url: Option<Arc<str>>,
    mailbox: Sender<Message>,
) -> impl Future<Output = ()> + Send + 'static {
    let subscription = Arc::clone(&job.subscription);
    let mut guard = Guard { ended: Some(Ended { job, attempts: Vec::new() }), mailbox };
    async move {
        let (begun, mut time_is_up) = (Instant::now(), pin!(sleep(MAX_DURATION)));
        let mut now = clock();
        while let Some((queued, body)) = guard.begin_next(now, public_url.as_deref()) {
            // Of each attempt, so that a secret that has ended signs no other.
            let Some(secrets) = subscription.secrets() else { return };
            let id = queued.number.id(&subscription.definition.tag);
            let headers = signature::headers(&secrets, &id, now, &body);
            let mut attempt = post(Arc::clone(&subscription), headers, body);
            let result = tokio::select! {
                biased;
                result = &mut attempt => result,
                () = &mut time_is_up => {
                    guard.report_progress();
                    attempt.await
                }
            };
            let has_succeeded = result.succeeded();
            guard.set_result(result);
            let may_continue = has_succeeded
                && begun.elapsed() < MAX_DURATION
                && subscription.is_enabled()
                && !subscription.is_deleted();
            if !may_continue {
                return;
            }
            now = clock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::mpsc::{Receiver, channel};

    use futures_util::FutureExt;
    use parking_lot::Mutex;
    use tokio::runtime::Builder;

    use super::*;
    use crate::rows::{Class, Delivery, Number};
    use crate::subscription::{State, sample};
    use crate::time::Moment;
    use orrery_runtime::budget::{Budget, Holder, Limits};

    fn answer(status: u16) -> AttemptResult {
        AttemptResult {
            status: Some(status),
            duration: Duration::ZERO,
            excerpt: String::new(),
            retry_after: None,
            error: None,
        }
    }

    /// Returns a job with deliveries 1 to `count`.
    fn job(subscription: &Arc<Subscription>, count: u64) -> Job {
        let ready = |number| Ready {
            queued: Queued::first(subscription.id, Number::plain(number)),
            delivery: Delivery::new(1, Moment::default()),
            body: Bytes::from(number.to_string()),
        };
        let slots = Budget::new("attempts", Limits::without_waiting(1, 1));
        Job {
            id: 1,
            class: Class::First,
            subscription: Arc::clone(subscription),
            server: "https://example.com".into(),
            owner: Holder::of(&"ana"),
            deliveries: (1..=count).map(ready).collect(),
            slot: slots.try_take(Holder::of(&"ana"), 1).unwrap(),
        }
    }

    /// Numbers of the attempted deliveries with the statuses of the responses, and of the deliveries
    /// that were not attempted.
    type Outcome = (Vec<(u64, Option<u16>)>, Vec<u64>);

    fn outcome(attempts: Vec<Attempted>, unsent: VecDeque<Ready>) -> Outcome {
        let of = |it: Attempted| (it.queued.number.head(), it.result.and_then(|it| it.status));
        let unsent = unsent.into_iter().map(|it| it.queued.number.head());
        (attempts.into_iter().map(of).collect(), unsent.collect())
    }

    fn received(messages: &Receiver<Message>) -> Outcome {
        let Ok(Message::Ended(ended)) = messages.try_recv() else {
            panic!("the job has not ended")
        };
        assert!(messages.try_recv().is_err(), "a job ends once");
        outcome(ended.attempts, ended.job.deliveries)
    }

    fn runtime() -> tokio::runtime::Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
    }

    /// Runs a job of ten deliveries, `status` returning the status of each response.
    fn run(
        subscription: &Arc<Subscription>,
        status: impl Fn(u64) -> u16 + Send + Sync + 'static,
    ) -> Outcome {
        let (mailbox, messages) = channel();
        let post: Post = Arc::new(move |_, _, body| {
            let number = String::from_utf8_lossy(&body).parse().unwrap();
            let answer = answer(status(number));
            async { answer }.boxed()
        });
        let task = make(job(subscription, 10), post, Arc::new(|| 0), None, mailbox);
        runtime().block_on(task);
        received(&messages)
    }

    fn attempts(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u64, Option<u16>)> {
        numbers.map(|number| (number, Some(200))).collect()
    }

    #[test]
    fn a_task_attempts_deliveries_in_order_until_one_fails() {
        let subscription = sample(7);
        assert_eq!(run(&subscription, |_| 200), (attempts(1..=10), vec![]));
        for failed in [300, 404, 410, 500] {
            let outcome = run(&subscription, move |number| if number == 4 { failed } else { 200 });
            let expected = [attempts(1..=3), vec![(4, Some(failed))]].concat();
            assert_eq!(outcome, (expected, vec![5, 6, 7, 8, 9, 10]), "{failed}");
        }
    }

    #[test]
    fn a_task_stops_once_its_subscription_is_disabled_or_deleted() {
        let subscription = sample(7);
        let own = Arc::clone(&subscription);
        let disable_at_three = move |number| {
            if number == 3 {
                own.set_state(State { enabled: false, ..own.state() });
            }
            200
        };
        let rest = vec![4, 5, 6, 7, 8, 9, 10];
        assert_eq!(run(&subscription, disable_at_three), (attempts(1..=3), rest.clone()));
        let subscription = sample(7);
        let own = Arc::clone(&subscription);
        let delete_at_three = move |number| {
            own.set_deleted(number == 3);
            200
        };
        assert_eq!(run(&subscription, delete_at_three), (attempts(1..=3), rest));
    }

    #[test]
    fn a_task_ends_after_the_attempt_that_exceeds_its_time() {
        let slow = |number| {
            if number == 2 {
                std::thread::sleep(MAX_DURATION);
            }
            200
        };
        let (attempted, rest) = run(&sample(7), slow);
        // On a busy machine, the time may be up earlier.
        assert!(attempted == attempts(1..=2) || attempted == attempts(1..=1), "{attempted:?}");
        assert_eq!(attempted.len() + rest.len(), 10);
    }

    #[test]
    fn finished_attempts_are_reported_while_another_one_hangs() {
        let subscription = sample(7);
        let hanging = Duration::from_secs(15);
        let post: Post = Arc::new(move |_, _, body| {
            async move {
                if body == "3" {
                    sleep(hanging).await;
                }
                answer(200)
            }
            .boxed()
        });
        let (mailbox, messages) = channel();
        let task = make(job(&subscription, 10), post, Arc::new(|| 0), None, mailbox);
        runtime().block_on(async {
            let task = tokio::spawn(task);
            sleep(2 * MAX_DURATION).await;
            let Ok(Message::Progress(progress)) = messages.try_recv() else { panic!("no report") };
            let reported = outcome(progress.attempts, progress.unsent);
            assert_eq!(reported, (attempts(1..=2), vec![4, 5, 6, 7, 8, 9, 10]));
            assert!(messages.try_recv().is_err(), "the third attempt is in progress");
            task.await.unwrap();
        });
        assert_eq!(received(&messages), (attempts(3..=3), vec![]));
    }

    #[test]
    fn a_job_with_one_delivery_reports_no_progress() {
        let subscription = sample(7);
        let post: Post = Arc::new(move |_, _, _| {
            async {
                sleep(2 * MAX_DURATION).await;
                answer(200)
            }
            .boxed()
        });
        let (mailbox, messages) = channel();
        let task = make(job(&subscription, 1), post, Arc::new(|| 0), None, mailbox);
        runtime().block_on(task);
        assert_eq!(received(&messages), (attempts(1..=1), vec![]));
    }

    #[test]
    fn an_aborted_task_returns_its_unattempted_deliveries() {
        let (runtime, subscription) = (runtime(), sample(7));
        let hanging = Arc::new(Mutex::new(0));
        let begun = Arc::clone(&hanging);
        let post: Post = Arc::new(move |_, _, _| {
            *begun.lock() += 1;
            match *begun.lock() {
                3 => std::future::pending().boxed(),
                _ => async { answer(200) }.boxed(),
            }
        });
        let task = |mailbox| {
            let (job, post) = (job(&subscription, 10), Arc::clone(&post));
            make(job, post, Arc::new(|| 0), None, mailbox)
        };
        let (mailbox, messages) = channel();
        drop(task(mailbox));
        assert_eq!(received(&messages), (vec![], (1..=10).collect()), "it was never polled");
        let (mailbox, messages) = channel();
        let _entered = runtime.enter();
        assert_eq!(task(mailbox).now_or_never(), None, "the third attempt hangs");
        let expected = [attempts(1..=2), vec![(3, None)]].concat();
        assert_eq!(received(&messages), (expected, (4..=10).collect()));
    }
}
