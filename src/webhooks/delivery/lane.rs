//! The queue of one subscription as far as the dispatcher tracks it before reading deliveries: only
//! a few numbers and queue positions are held in memory.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::store::{ConsumerView, StoreError};
use crate::webhooks::rows::{Class, Number, QUEUE, Queued};
use crate::webhooks::subscription::Subscription;

/// Maximum number of queue rows that are read ahead.
const PAGE: usize = 64;
/// Maximum number of concurrent attempts of one subscription in the classes `Soon` and `Later`,
/// which are not sent one after the other.
const MAX_SOON: usize = 32;
const MAX_LATER: usize = 4;

/// The part of the queue that belongs to one subscription.
pub struct Lane {
    /// The subscription.
    pub subscription: Arc<Subscription>,
    /// The server that its deliveries go to.
    pub server: Arc<str>,
    parts: [Part; 4],
    /// Delivery that ends the subscription's deliveries: nothing more is sent until its outcome is
    /// written.
    last: Option<Queued>,
}

/// The part of a subscription's queue that has one class.
#[derive(Default)]
pub struct Part {
    /// Due time and delivery number from which the queue is read: every row before it is in `busy`.
    from: (u64, u64),
    /// Queue positions that were read ahead.
    page: VecDeque<Queued>,
    /// Deliveries that are being sent, or whose outcome is not written yet.
    busy: BTreeSet<(u64, Number)>,
    in_flight: usize,
    /// Whether the part waits for a turn at its server.
    pub is_waiting: bool,
    /// UNIX time in milliseconds of the timer that is set for it.
    pub timer: Option<u64>,
}

/// Next delivery of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This delivery, now. It is busy until [`Lane::outcome_written`] or [`Lane::put_back`].
    Now(Queued),
    /// A delivery that is due at this UNIX time in milliseconds.
    At(u64),
    /// Nothing, or nothing until an attempt has ended.
    Nothing,
}

impl Lane {
    /// Returns the lane of a subscription, of which no row has been read.
    pub fn new(subscription: Arc<Subscription>) -> Self {
        let server = subscription.endpoint.origin().into();
        Self { subscription, server, parts: Default::default(), last: None }
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
    ///
    /// # Errors
    /// Errors of the store.
    pub fn next(
        &mut self,
        class: Class,
        now: u64,
        ignore_limits: bool,
        view: &ConsumerView<'_>,
    ) -> Result<Next, StoreError> {
        let id = self.subscription.id;
        if self.last.is_some() {
            return Ok(Next::Nothing);
        }
        let part = self.part(class);
        if part.in_flight >= most_in_flight(class) && !ignore_limits {
            return Ok(Next::Nothing);
        }
        if part.page.is_empty() {
            part.read(id, class, view)?;
        }
        match part.page.front().copied() {
            None => Ok(Next::Nothing),
            Some(queued) if queued.due > now && !ignore_limits => Ok(Next::At(queued.due)),
            Some(queued) => {
                part.page.pop_front();
                part.busy.insert((queued.due, queued.number));
                if class == Class::First {
                    part.from = (0, queued.number.0.saturating_add(1));
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
            part.from = (0, queued.number.0);
        }
    }

    /// Counts an attempt that begins.
    pub fn attempt_started(&mut self, class: Class) {
        self.part(class).in_flight += 1;
    }

    /// Counts an attempt that has ended.
    pub fn attempt_ended(&mut self, class: Class) {
        let part = self.part(class);
        part.in_flight = part.in_flight.saturating_sub(1);
    }

    /// Sends nothing more until the outcome of this delivery is written.
    pub fn stop_after(&mut self, queued: Queued) {
        self.last = Some(queued);
    }

    /// Removes a delivery whose outcome is written, so that its row is no longer in the queue.
    /// Returns true when it was the one that held back all others ([`Lane::stop_after`]).
    pub fn outcome_written(&mut self, queued: &Queued) -> bool {
        self.part(queued.class).busy.remove(&(queued.due, queued.number));
        let was_last = self.last == Some(*queued);
        if was_last {
            self.last = None;
        }
        was_last
    }

    /// Records that a row that is due at `due` was added to the queue.
    pub fn add(&mut self, class: Class, due: u64) {
        if class != Class::First {
            let part = self.part(class);
            part.from = part.from.min((due, 0));
            // The new row may precede those that were read ahead.
            part.page.clear();
        }
    }
}

impl Part {
    fn read(&mut self, id: u32, class: Class, view: &ConsumerView<'_>) -> Result<(), StoreError> {
        let (due, number) = self.from;
        let from = Queued { subscription: id, class, due, number: Number(number) }.key();
        let (part, from) = from.split_at(Queued::PART_BYTES);
        let mut first = None;
        view.scan_prefix(QUEUE, part, from, |rest, _| {
            let Some(queued) = Queued::read(&[part, rest].concat()) else { return false };
            first.get_or_insert(queued);
            if !self.busy.contains(&(queued.due, queued.number)) {
                self.page.push_back(queued);
            }
            self.page.len() < PAGE
        })?;
        if let Some(first) = first {
            self.from = (first.due, first.number.0);
        }
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
