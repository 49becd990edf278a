//! What one subscription has to send, as far as it has to be known before it is read: nothing of it is held
//! in memory but a few numbers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::store::{ConsumerView, StoreError};
use crate::webhooks::rows::{Class, Number, QUEUE, Queued};
use crate::webhooks::subscription::Subscription;

/// Rows that are read ahead.
const PAGE: usize = 64;
/// Attempts of one subscription at a time, of the classes that are not sent one after the other.
const MOST_SOON: usize = 32;
const MOST_LATER: usize = 4;

/// A subscription's part of the queue.
pub struct Lane {
    /// The subscription.
    pub subscription: Arc<Subscription>,
    /// The server that its deliveries go to.
    pub server: Arc<str>,
    parts: [Part; 4],
    /// What has to be noted before anything more is sent: it ends the subscription's deliveries.
    last: Option<Queued>,
}

/// What of it is of one class.
#[derive(Default)]
pub struct Part {
    /// Nothing that is not busy lies before this: when it is due, and which number.
    from: (u64, u64),
    /// What was read ahead.
    page: VecDeque<Queued>,
    /// What is being sent, or was sent and is not noted yet.
    busy: BTreeSet<(u64, Number)>,
    in_flight: usize,
    /// Whether it waits for its turn at its server.
    pub is_waiting: bool,
    /// When it is to be looked at again, in UNIX milliseconds.
    pub timer: Option<u64>,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This, now. It is busy until [`Lane::noted`], or [`Lane::put_back`].
    Now(Queued),
    /// Something, at that time.
    At(u64),
    /// Nothing, or nothing before an attempt has ended.
    Nothing,
}

impl Lane {
    /// Of a subscription of which nothing has been read.
    pub fn new(subscription: Arc<Subscription>) -> Self {
        let server = subscription.endpoint.origin().into();
        Self { subscription, server, parts: Default::default(), last: None }
    }

    /// What is of a class.
    pub fn part(&mut self, class: Class) -> &mut Part {
        let [first, soon, later, asked] = &mut self.parts;
        match class {
            Class::First => first,
            Class::Soon => soon,
            Class::Later => later,
            Class::Asked => asked,
        }
    }

    /// Takes what comes next of a class. `whenever` says that it does not matter when it is due, nor what
    /// else is being sent.
    ///
    /// # Errors
    /// What the store says.
    pub fn next(
        &mut self,
        class: Class,
        now: u64,
        whenever: bool,
        view: &ConsumerView<'_>,
    ) -> Result<Next, StoreError> {
        let id = self.subscription.id;
        if self.last.is_some() {
            return Ok(Next::Nothing);
        }
        let part = self.part(class);
        if part.in_flight >= most_in_flight(class) && !whenever {
            return Ok(Next::Nothing);
        }
        if part.page.is_empty() {
            part.read(id, class, view)?;
        }
        match part.page.front().copied() {
            None => Ok(Next::Nothing),
            Some(queued) if queued.due > now && !whenever => Ok(Next::At(queued.due)),
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

    /// What was taken is not sent now.
    pub fn put_back(&mut self, queued: Queued) {
        let part = self.part(queued.class);
        part.busy.remove(&(queued.due, queued.number));
        part.page.push_front(queued);
        if queued.class == Class::First {
            part.from = (0, queued.number.0);
        }
    }

    /// An attempt begins.
    pub fn begins(&mut self, class: Class) {
        self.part(class).in_flight += 1;
    }

    /// An attempt has ended.
    pub fn ended(&mut self, class: Class) {
        let part = self.part(class);
        part.in_flight = part.in_flight.saturating_sub(1);
    }

    /// Nothing more is sent until what came of this is noted.
    pub fn ends_with(&mut self, queued: Queued) {
        self.last = Some(queued);
    }

    /// What came of something is noted: it is not in the queue any more. Says whether more is sent from now
    /// on.
    pub fn noted(&mut self, queued: &Queued) -> bool {
        self.part(queued.class).busy.remove(&(queued.due, queued.number));
        let was_last = self.last == Some(*queued);
        if was_last {
            self.last = None;
        }
        was_last
    }

    /// Something is in the queue that was not there before, and is due at that time.
    pub fn add(&mut self, class: Class, due: u64) {
        if class != Class::First {
            let part = self.part(class);
            part.from = part.from.min((due, 0));
            // It may belong before what was read ahead.
            part.page.clear();
        }
    }
}

impl Part {
    fn read(&mut self, id: u32, class: Class, view: &ConsumerView<'_>) -> Result<(), StoreError> {
        let (due, number) = self.from;
        let from = Queued { subscription: id, class, due, number: Number(number) };
        let mut first = None;
        view.scan(QUEUE, &from.key(), |key, _| {
            let queued = Queued::read(key).filter(|it| (it.subscription, it.class) == (id, class));
            let Some(queued) = queued else { return false };
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
        Class::First | Class::Asked => 1,
        Class::Soon => MOST_SOON,
        Class::Later => MOST_LATER,
    }
}
