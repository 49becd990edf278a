//! The queue of one subscription as far as the dispatcher tracks it before reading deliveries: only
//! a few numbers and queue positions are held in memory.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::CONSUMER;
use crate::rows::{Class, Number, QUEUE, Queued};
use crate::schedule;
use crate::subscription::Subscription;
use orrery_runtime::budget::Holder;
use orrery_store::{ConsumerView, RowBounds, Store, StoreError};

/// Maximum number of queue rows that are read ahead.
const PAGE: usize = 64;
/// Maximum number of concurrent attempts of one subscription in the classes `Soon` and `Later`,
/// which are not sent one after the other.
const MAX_SOON: usize = 32;
const MAX_LATER: usize = 4;

/// The part of the queue that belongs to one subscription.
pub struct SubscriptionQueue {
    /// The subscription.
    pub subscription: Arc<Subscription>,
    /// The server that its deliveries go to.
    pub server: Arc<str>,
    /// Its owner, as a holder of places.
    pub owner: Holder,
    parts: [Part; 4],
    /// Delivery that ends the subscription's deliveries: nothing more is sent until its outcome is
    /// written.
    last: Option<Queued>,
}

/// The part of a subscription's queue that has one class.
pub struct Part {
    /// Due time and delivery number from which the queue is read: every row before it is in `busy`.
    from: (u64, Number),
    /// Next queue positions, without gaps.
    page: VecDeque<Queued>,
    /// Whether the queue had no further rows than those in `page` and `busy` when it was last read,
    /// or a message added them since. Only for first attempts, whose rows are added in order.
    is_complete: bool,
    /// Deliveries that are being sent, or whose outcome is not written yet.
    busy: BTreeSet<(u64, Number)>,
    in_flight: usize,
    /// Whether the part waits for a turn at its server.
    pub is_waiting: bool,
    /// UNIX time in milliseconds of the timer that is set for it.
    pub timer: Option<u64>,
    /// UNIX time in milliseconds from which on its chat takes the next message, as far as that is settled.
    pub place: Option<u64>,
}

/// Next delivery of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This delivery, now. It is busy until [`SubscriptionQueue::outcome_written`] or
    /// [`SubscriptionQueue::put_back`].
    Now(Queued),
    /// A delivery that is due at this UNIX time in milliseconds.
    At(u64),
    /// Nothing, or nothing until an attempt has ended.
    Nothing,
}

/// The consumer's rows at one moment, which is that of the first read.
pub struct LazyView<'s> {
    store: &'s Store,
    view: Option<ConsumerView<'s>>,
}

impl<'s> LazyView<'s> {
    /// Returns a view that has not been opened.
    pub fn new(store: &'s Store) -> Self {
        Self { store, view: None }
    }

    /// Returns the view, which the first call opens.
    pub fn get(&mut self) -> Result<&ConsumerView<'s>, StoreError> {
        let view = match self.view.take() {
            Some(view) => view,
            None => self.store.consumer_view(CONSUMER, RowBounds::none())?,
        };
        Ok(self.view.insert(view))
    }
}

impl SubscriptionQueue {
    /// Returns the queue of a subscription, of which no row has been read.
    pub fn new(subscription: Arc<Subscription>) -> Self {
        let server = subscription.server();
        let owner = Holder::of(&("webhooks", &subscription.definition.owner));
        Self { subscription, server, owner, parts: Default::default(), last: None }
    }

    /// Returns the part of a class.
    pub fn part(&mut self, class: Class) -> &mut Part {
        let [first, soon, later, requested] = &mut self.parts;
        match class {
            Class::First => first,
            Class::Soon => soon,
            Class::Later => later,
            Class::Requested => requested,
        }
    }

    /// Takes the next delivery of a class. `ignore_limits` ignores its due time and the number of
    /// attempts in progress.
    pub fn next(
        &mut self,
        class: Class,
        now: u64,
        ignore_limits: bool,
        view: &mut LazyView<'_>,
    ) -> Result<Next, StoreError> {
        let id = self.subscription.id;
        if self.last.is_some() {
            return Ok(Next::Nothing);
        }
        let part = self.part(class);
        if part.in_flight >= most_in_flight(class) && !ignore_limits {
            return Ok(Next::Nothing);
        }
        if part.page.is_empty() && !part.is_complete {
            part.read(id, class, view)?;
        }
        match part.page.front().copied() {
            None => Ok(Next::Nothing),
            Some(queued) if !schedule::is_due(queued.due, now) && !ignore_limits => {
                Ok(Next::At(queued.due))
            }
            Some(queued) => {
                part.page.pop_front();
                part.busy.insert((queued.due, queued.number));
                if class == Class::First {
                    part.from = (0, queued.number.next());
                }
                Ok(Next::Now(queued))
            }
        }
    }

    /// Returns a delivery that was taken but is not sent now.
    pub fn put_back(&mut self, queued: Queued) {
        let part = self.part(queued.class);
        part.busy.remove(&(queued.due, queued.number));
        part.page.push_front(queued);
        if queued.class == Class::First {
            part.from = (0, queued.number);
        }
    }

    /// Takes a delivery that is not being sent out of the queue, because it is given up. It is busy until
    /// [`Self::outcome_written`].
    pub fn take_out(&mut self, queued: Queued) {
        let part = self.part(queued.class);
        part.busy.insert((queued.due, queued.number));
        part.page.retain(|it| *it != queued);
    }

    /// Counts a job that begins.
    pub fn job_started(&mut self, class: Class) {
        self.part(class).in_flight += 1;
    }

    /// Counts a job that has ended.
    pub fn job_ended(&mut self, class: Class) {
        let part = self.part(class);
        part.in_flight = part.in_flight.saturating_sub(1);
    }

    /// Sends nothing more until the outcome of this delivery is written.
    pub fn stop_after(&mut self, queued: Queued) {
        self.last = Some(queued);
    }

    /// Removes a delivery whose outcome is written, so that its row is no longer in the queue.
    /// Returns true when it was the one that held back all others ([`SubscriptionQueue::stop_after`]).
    pub fn outcome_written(&mut self, queued: &Queued) -> bool {
        self.part(queued.class).busy.remove(&(queued.due, queued.number));
        let was_last = self.last == Some(*queued);
        if was_last {
            self.last = None;
        }
        was_last
    }

    /// Records that a row that is due at `due` was added to the queue, in another class than
    /// `First`.
    pub fn add(&mut self, class: Class, due: u64) {
        let part = self.part(class);
        part.from = part.from.min((due, Number::FIRST));
        // The new row may precede those that were read ahead.
        part.page.clear();
    }

    /// Records that first attempts were added to the queue, with these numbers, ascending. Without
    /// numbers, the queue is read again.
    pub fn add_first(&mut self, numbers: &[Number]) {
        let id = self.subscription.id;
        let part = self.part(Class::First);
        part.is_complete &= !numbers.is_empty();
        for number in numbers {
            // The row may have been read before this message came.
            let precedes = *number < part.from.1
                || part.page.back().is_some_and(|last| *number <= last.number);
            if part.busy.contains(&(0, *number)) {
                continue;
            }
            if precedes {
                // What has a place in the chain may precede what is there; ids of events only grow.
                if !number.is_of_event() && !part.page.iter().any(|it| it.number == *number) {
                    part.from = (0, part.from.1.min(*number));
                    part.page.clear();
                    part.is_complete = false;
                    return;
                }
                continue;
            }
            part.is_complete &= part.page.len() < PAGE;
            if !part.is_complete {
                return;
            }
            part.page.push_back(Queued::first(id, *number));
        }
    }

    /// Makes the next first attempts be read from the queue, because a replay may have taken rows
    /// out of it.
    pub fn reread_first(&mut self) {
        let part = self.part(Class::First);
        part.page.clear();
        part.is_complete = false;
    }
}

impl Default for Part {
    fn default() -> Self {
        Self {
            from: (0, Number::FIRST),
            place: None,
            page: VecDeque::new(),
            is_complete: false,
            busy: BTreeSet::new(),
            in_flight: 0,
            is_waiting: false,
            timer: None,
        }
    }
}

impl Part {
    /// Whether a delivery is being sent, or its outcome is not written yet.
    pub fn is_busy(&self, queued: &Queued) -> bool {
        self.busy.contains(&(queued.due, queued.number))
    }

    fn read(&mut self, id: u32, class: Class, view: &mut LazyView<'_>) -> Result<(), StoreError> {
        let (due, number) = self.from;
        let from = Queued { subscription: id, class, due, number };
        let mut first = None;
        QUEUE.scan(view.get()?, &(id, class), Some(&from), |queued, ()| {
            first.get_or_insert(queued);
            if !self.busy.contains(&(queued.due, queued.number)) {
                self.page.push_back(queued);
            }
            let is_full = self.page.len() >= PAGE;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if let Some(first) = first {
            self.from = (first.due, first.number);
        }
        self.is_complete = class == Class::First && self.page.len() < PAGE;
        Ok(())
    }
}

fn most_in_flight(class: Class) -> usize {
    match class {
        Class::First | Class::Requested => 1,
        Class::Soon => MAX_SOON,
        Class::Later => MAX_LATER,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::registry::Registry;
    use crate::subscription::sample;
    use crate::{WebhookConsumer, WebhookError};
    use orrery_ledger::domain::Network;
    use orrery_store::{Extensions, LedgerConsumer};

    const ID: u32 = 7;

    /// The stored queue of one subscription, and what is in memory of it.
    struct Scene {
        store: Store,
        queue: SubscriptionQueue,
        /// Number of the last first attempt that was added to the queue.
        last: u64,
        /// Messages that the queue has not received yet; `None` for a replay.
        messages: VecDeque<Option<Vec<Number>>>,
        /// Deliveries that a replay has taken out of the queue, and those of them that the queue may
        /// no longer return.
        replayed: Vec<u64>,
        gone: BTreeSet<u64>,
        /// Deliveries of a job that a replay has taken out of the queue: if they are not attempted,
        /// the queue may return them again.
        uncertain: BTreeSet<u64>,
        /// Deliveries of a job that has not ended.
        job: Vec<Queued>,
        taken: Vec<Queued>,
        unwritten: Vec<Queued>,
    }

    impl Scene {
        fn change(&self, put: Vec<Queued>, delete: Vec<Queued>) {
            let changed = self.store.change_consumer_rows(CONSUMER, move |effects| {
                for queued in &put {
                    QUEUE.put(effects, queued, &())?;
                }
                for queued in &delete {
                    QUEUE.delete(effects, queued)?;
                }
                Ok::<_, WebhookError>(())
            });
            changed.unwrap();
        }

        /// Adds first attempts to the queue, and a message about them that has no numbers if
        /// `is_over_limit` is set.
        fn create(&mut self, count: u64, is_over_limit: bool) {
            let numbers: Vec<_> = (1..=count).map(|at| Number::plain(self.last + at)).collect();
            self.last += count;
            self.change(numbers.iter().map(|it| Queued::first(ID, *it)).collect(), Vec::new());
            self.messages.push_back(Some(if is_over_limit { Vec::new() } else { numbers }));
        }

        /// Takes a first attempt out of the queue, as a replay does.
        fn replay(&mut self, number: u64) {
            self.change(Vec::new(), vec![Queued::first(ID, Number::plain(number))]);
            self.replayed.push(number);
            self.messages.push_back(None);
        }

        fn receive(&mut self) {
            match self.messages.pop_front() {
                Some(Some(numbers)) => self.queue.add_first(&numbers),
                Some(None) => {
                    self.queue.reread_first();
                    let number = self.replayed.remove(0);
                    let is_in = |deliveries: &[Queued]| {
                        deliveries.iter().any(|it| it.number.head() == number)
                    };
                    if is_in(&self.job) {
                        self.uncertain.insert(number);
                    } else if !is_in(&self.taken) {
                        self.gone.insert(number);
                    }
                }
                None => {}
            }
        }

        /// Takes up to `most` deliveries from the queue as a job, and reads one view at most.
        fn take(&mut self, most: usize, mut put_back: impl FnMut() -> bool) {
            let mut view = LazyView::new(&self.store);
            for _ in 0..most {
                match self.queue.next(Class::First, 0, false, &mut view).unwrap() {
                    Next::Nothing => return,
                    Next::At(due) => panic!("first attempts are due at once, not at {due}"),
                    Next::Now(queued) if put_back() => self.queue.put_back(queued),
                    Next::Now(queued) => self.job.push(queued),
                }
            }
        }

        /// Ends the job after `attempts` attempts.
        fn end_job(&mut self, attempts: usize) {
            for unsent in self.job.drain(attempts..).rev() {
                self.queue.put_back(unsent);
            }
            self.taken.extend(&self.job);
            self.unwritten.append(&mut self.job);
        }

        /// Writes the outcomes of deliveries that were taken.
        fn finish(&mut self, count: usize) {
            let written: Vec<_> = self.unwritten.drain(..count).collect();
            self.change(Vec::new(), written.clone());
            for queued in written {
                self.queue.outcome_written(&queued);
            }
        }
    }

    #[test]
    fn each_first_attempt_is_returned_once_and_in_order() {
        let consumer = WebhookConsumer::new(Arc::<Registry>::default());
        for seed in 0..15 {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let directory = tempfile::tempdir().unwrap();
            let network = Network::from_passphrase("queues");
            let extensions =
                Extensions { consumers: vec![consumer.spec()], ..Extensions::default() };
            let mut scene = Scene {
                store: Store::open_with(directory.path(), Some(&network), extensions).unwrap(),
                queue: SubscriptionQueue::new(sample(ID)),
                last: 0,
                messages: VecDeque::new(),
                replayed: Vec::new(),
                gone: BTreeSet::new(),
                uncertain: BTreeSet::new(),
                job: Vec::new(),
                taken: Vec::new(),
                unwritten: Vec::new(),
            };
            for _ in 0..150 {
                match rng.random_range(0..10) {
                    0..3 => {
                        let most = if rng.random_bool(0.1) { 200 } else { 5 };
                        let (count, is_over_limit) =
                            (rng.random_range(1..=most), rng.random_bool(0.1));
                        scene.create(count, is_over_limit);
                    }
                    3..6 => scene.receive(),
                    6..8 if scene.job.is_empty() => {
                        let most = rng.random_range(1..40);
                        scene.take(most, || rng.random_bool(0.1));
                    }
                    6..8 => {
                        let attempts = rng.random_range(0..=scene.job.len());
                        scene.end_job(attempts);
                    }
                    8 => scene.finish(rng.random_range(0..=scene.unwritten.len())),
                    _ => {
                        let last = scene.job.last().or(scene.taken.last());
                        let first = last.map_or(0, |it| it.number.head()) + 1;
                        if first <= scene.last {
                            let number = rng.random_range(first..=scene.last);
                            if !scene.gone.contains(&number) && !scene.replayed.contains(&number) {
                                scene.replay(number);
                            }
                        }
                    }
                }
            }
            while !scene.messages.is_empty() {
                scene.receive();
            }
            scene.end_job(scene.job.len());
            scene.take(usize::MAX, || false);
            scene.end_job(scene.job.len());
            let is_certain =
                |number: &u64| !scene.gone.contains(number) && !scene.uncertain.contains(number);
            let taken = scene.taken.iter().map(|it| it.number.head());
            let taken: Vec<_> = taken.filter(|it| !scene.uncertain.contains(it)).collect();
            let expected: Vec<_> = (1..=scene.last).filter(is_certain).collect();
            assert_eq!(taken, expected, "seed {seed}");
        }
    }
}
