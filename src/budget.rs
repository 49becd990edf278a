//! Shares of what many callers use at once: places for work, bytes in memory, connections. Knows
//! numbers and who holds how much, not what is shared.
//!
//! A [`Budget`] never gives out more than it has, nor more than its limit to one holder. Once more than
//! half is taken, what is left is kept for holders that have little: one that has something already may
//! then hold an eighth of the whole at the most. So the limits of a few holders together may well exceed
//! the whole, and yet a newcomer finds something left.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// Part of the whole that one holder may have, beside its first share, once half of the whole is taken.
const SCARCE_PART: u64 = 8;

/// Whoever holds shares, as a hash under a key of this process: nobody can choose whom to collide with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(u64);

impl Holder {
    /// The holder that a value stands for.
    pub fn of(value: &(impl Hash + ?Sized)) -> Self {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEYS.hash_one(value))
    }

    /// The thread that calls this, where what one user has is bounded elsewhere.
    pub fn this_thread() -> Self {
        Self::of(&std::thread::current().id())
    }
}

/// How much there is, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// What all holders together may have.
    pub all: u64,
    /// What one holder may have.
    pub one: u64,
    /// How many may wait for a share.
    pub waiting: usize,
    /// What one holder may have and be waiting for, together.
    pub one_with_waiting: u64,
}

impl Limits {
    /// Limits of something that nobody waits for.
    pub fn without_waiting(all: u64, one: u64) -> Self {
        Self { all, one, waiting: 0, one_with_waiting: one }
    }

    /// Limits of something that any number may wait for: threads of the service itself.
    pub fn with_any_waiting(all: u64, one: u64) -> Self {
        Self { all, one, waiting: usize::MAX, one_with_waiting: u64::MAX }
    }
}

/// Why there is no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Everything is taken, and too many wait.
    #[error("everything is taken")]
    All,
    /// The holder has, or waits for, as much as it may.
    #[error("one holder may not have more")]
    One,
}

/// What is taken of a budget, and how often there was nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Name of the budget.
    pub name: &'static str,
    /// What all holders together may have.
    pub most: u64,
    /// What they have.
    pub taken: u64,
    /// How many wait for a share.
    pub waiting: usize,
    /// Requests for a share that were refused because everything was taken.
    pub refused_all: u64,
    /// Requests for a share that were refused because of the holder's own limit.
    pub refused_one: u64,
}

/// Something that is shared.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

struct Shared {
    name: &'static str,
    limits: Limits,
    state: Mutex<State>,
    /// A share was given back, or somebody began to wait for one.
    changed: Condvar,
    refused_all: AtomicU64,
    refused_one: AtomicU64,
}

#[derive(Default)]
struct State {
    taken: u64,
    /// The most that was taken since somebody asked.
    peak: u64,
    /// Holders that have or want something.
    holders: HashMap<Holder, Held>,
    /// In the order of their coming. Whoever was served least recently is served next, so that a long queue
    /// of one holder keeps nobody else waiting; those who would exceed their own limit are passed over.
    queue: VecDeque<Waiter>,
    /// Number of the next waiter.
    next: u64,
    /// How many shares were given out.
    given: u64,
}

#[derive(Default, Clone, Copy)]
struct Held {
    taken: u64,
    wanted: u64,
    /// When it was given a share last, as [`State::given`] counts.
    served: u64,
}

struct Waiter {
    number: u64,
    holder: Holder,
    amount: u64,
    granted: Grant,
}

/// Takes the share to the one that waits.
type Grant = Box<dyn FnOnce(Share) + Send>;

/// What a holder has of a budget, until it is dropped.
pub struct Share {
    of: Arc<Shared>,
    holder: Holder,
    amount: u64,
}

impl Budget {
    /// A budget of which nothing is taken.
    pub fn new(name: &'static str, limits: Limits) -> Self {
        Self(Arc::new(Shared {
            name,
            limits,
            state: Mutex::default(),
            changed: Condvar::new(),
            refused_all: AtomicU64::new(0),
            refused_one: AtomicU64::new(0),
        }))
    }

    /// What is taken now.
    pub fn usage(&self) -> Usage {
        let Shared { name, limits, state, refused_all, refused_one, .. } = &*self.0;
        let state = state.lock();
        Usage {
            name,
            most: limits.all,
            taken: state.taken,
            waiting: state.queue.len(),
            refused_all: refused_all.load(Ordering::Relaxed),
            refused_one: refused_one.load(Ordering::Relaxed),
        }
    }

    /// The most that was taken at once since this was last asked.
    pub fn peak(&self) -> u64 {
        let mut state = self.0.state.lock();
        let now = state.taken;
        std::mem::replace(&mut state.peak, now)
    }

    /// A share, if there is one now.
    ///
    /// # Errors
    /// [`Refusal`], which counts as one.
    pub fn take_now(&self, holder: Holder, amount: u64) -> Result<Share, Refusal> {
        self.try_take(holder, amount).map_err(|refusal| self.0.counted(refusal))
    }

    /// A share, if there is one now. A refusal does not count: whoever asks may wait instead.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn try_take(&self, holder: Holder, amount: u64) -> Result<Share, Refusal> {
        let mut state = self.0.state.lock();
        state.fits(&self.0.limits, holder, amount)?;
        state.add(holder, amount);
        drop(state);
        Ok(self.share(holder, amount))
    }

    /// A share, as soon as there is one. Whoever stops waiting leaves the queue.
    ///
    /// # Errors
    /// [`Refusal`], at once, when too many wait, or the holder has or waits for as much as it may.
    pub async fn take(&self, holder: Holder, amount: u64) -> Result<Share, Refusal> {
        let (granted, grant) = oneshot::channel();
        // One that stopped waiting just now gives the share back by dropping it.
        let granted: Grant = Box::new(move |share| drop(granted.send(share)));
        let mut waiting = match self.take_or_wait(holder, amount, granted)? {
            Taken::Now(share) => return Ok(share),
            Taken::Later(waiting) => waiting,
        };
        let share = grant.await;
        waiting.number = None;
        // Who grants a share does so before it forgets the waiter, and a budget outlives its waiters.
        share.map_err(|_| self.0.counted(Refusal::All))
    }

    /// [`Self::take`] for a thread, which is blocked until `until` at the latest; without it as long as it
    /// takes.
    ///
    /// # Errors
    /// As [`Self::take`], and when the time is over.
    pub fn take_blocking(
        &self,
        holder: Holder,
        amount: u64,
        until: Option<Instant>,
    ) -> Result<Share, Refusal> {
        let (granted, grant) = sync_channel(1);
        let granted: Grant = Box::new(move |share| drop(granted.send(share)));
        let mut waiting = match self.take_or_wait(holder, amount, granted)? {
            Taken::Now(share) => return Ok(share),
            Taken::Later(waiting) => waiting,
        };
        let share = match until {
            Some(until) => grant.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => grant.recv().map_err(RecvTimeoutError::from),
        };
        if share.is_ok() {
            waiting.number = None;
        }
        // A share that is granted after the time is given back as the channel is dropped.
        share.map_err(|_| self.0.counted(Refusal::All))
    }

    fn take_or_wait(
        &self,
        holder: Holder,
        amount: u64,
        granted: Grant,
    ) -> Result<Taken<'_>, Refusal> {
        let limits = &self.0.limits;
        let mut state = self.0.state.lock();
        if state.fits(limits, holder, amount).is_ok() {
            state.add(holder, amount);
            drop(state);
            return Ok(Taken::Now(self.share(holder, amount)));
        }
        if amount > limits.all || state.queue.len() >= limits.waiting {
            return Err(self.0.counted(Refusal::All));
        }
        let held = state.held(holder);
        let asked = held.taken.saturating_add(held.wanted).saturating_add(amount);
        if asked > limits.one_with_waiting {
            return Err(self.0.counted(Refusal::One));
        }
        let number = state.next;
        state.next += 1;
        state.holders.entry(holder).or_default().wanted += amount;
        state.queue.push_back(Waiter { number, holder, amount, granted });
        drop(state);
        self.0.changed.notify_all();
        Ok(Taken::Later(Waiting { of: &self.0, number: Some(number) }))
    }

    /// How much has to be given back for all who wait.
    pub fn missing(&self) -> u64 {
        self.0.state.lock().missing(&self.0.limits)
    }

    /// Waits until [`Self::missing`] is not zero, or until `until`.
    pub fn wait_until_missing(&self, until: Instant) {
        let mut state = self.0.state.lock();
        while state.missing(&self.0.limits) == 0 {
            if self.0.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    fn share(&self, holder: Holder, amount: u64) -> Share {
        Share { of: Arc::clone(&self.0), holder, amount }
    }
}

impl State {
    fn held(&self, holder: Holder) -> Held {
        self.holders.get(&holder).copied().unwrap_or_default()
    }

    /// Whether a holder may have so much more now.
    fn fits(&self, limits: &Limits, holder: Holder, amount: u64) -> Result<(), Refusal> {
        let own = self.held(holder).taken;
        let (own_after, after) = (own.saturating_add(amount), self.taken.saturating_add(amount));
        if own_after > limits.one {
            return Err(Refusal::One);
        }
        if after > limits.all {
            return Err(Refusal::All);
        }
        let is_scarce = after > limits.all / 2;
        if is_scarce && own > 0 && own_after > (limits.all / SCARCE_PART).max(1) {
            return Err(Refusal::One);
        }
        Ok(())
    }

    fn missing(&self, limits: &Limits) -> u64 {
        let wanted = self.queue.iter().map(|waiter| waiter.amount).sum::<u64>();
        self.taken.saturating_add(wanted).saturating_sub(limits.all)
    }

    fn add(&mut self, holder: Holder, amount: u64) {
        self.taken += amount;
        self.peak = self.peak.max(self.taken);
        self.given += 1;
        let held = self.holders.entry(holder).or_default();
        held.taken += amount;
        held.served = self.given;
    }

    /// Takes back what a holder had or wanted.
    fn subtract(&mut self, holder: Holder, taken: u64, wanted: u64) {
        self.taken = self.taken.saturating_sub(taken);
        let Some(held) = self.holders.get_mut(&holder) else { return };
        held.taken = held.taken.saturating_sub(taken);
        held.wanted = held.wanted.saturating_sub(wanted);
        if held.taken == 0 && held.wanted == 0 {
            self.holders.remove(&holder);
        }
    }

    /// Takes out of the queue whoever can have a share now.
    fn served(&mut self, limits: &Limits) -> Vec<Waiter> {
        let mut served = Vec::new();
        while self.taken < limits.all {
            let waiters = self.queue.iter().enumerate();
            let fitting = waiters.filter(|(_, it)| self.fits(limits, it.holder, it.amount).is_ok());
            // The first of equals is the one that waits longest.
            let next = fitting.min_by_key(|(_, it)| self.held(it.holder).served).map(|(at, _)| at);
            let Some(waiter) = next.and_then(|at| self.queue.remove(at)) else { break };
            self.add(waiter.holder, waiter.amount);
            self.subtract(waiter.holder, 0, waiter.amount);
            served.push(waiter);
        }
        served
    }
}

impl Shared {
    fn counted(&self, refusal: Refusal) -> Refusal {
        let count = match refusal {
            Refusal::All => &self.refused_all,
            Refusal::One => &self.refused_one,
        };
        count.fetch_add(1, Ordering::Relaxed);
        refusal
    }

    /// Takes back what a holder had, and hands it on to those who wait.
    fn release(self: &Arc<Self>, holder: Holder, amount: u64) {
        let mut state = self.state.lock();
        state.subtract(holder, amount, 0);
        self.hand_on(state);
        self.changed.notify_all();
    }

    fn hand_on(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        if state.queue.is_empty() {
            return;
        }
        let served = state.served(&self.limits);
        drop(state);
        for Waiter { holder, amount, granted, .. } in served {
            let share = Share { of: Arc::clone(self), holder, amount };
            granted(share);
        }
    }
}

impl Share {
    /// How much it is.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Makes it at least so large.
    ///
    /// # Errors
    /// [`Refusal`]; then it stays as it is.
    pub fn grow_to(&mut self, amount: u64) -> Result<(), Refusal> {
        let Some(more) = amount.checked_sub(self.amount).filter(|more| *more > 0) else {
            return Ok(());
        };
        let mut state = self.of.state.lock();
        match state.fits(&self.of.limits, self.holder, more) {
            Ok(()) => state.add(self.holder, more),
            Err(refusal) => {
                drop(state);
                return Err(self.of.counted(refusal));
            }
        }
        self.amount = amount;
        Ok(())
    }

    /// Makes it exactly so large, whatever is left: for what exists already.
    pub fn set(&mut self, amount: u64) {
        if amount < self.amount {
            self.of.release(self.holder, self.amount - amount);
        } else if amount > self.amount {
            self.of.state.lock().add(self.holder, amount - self.amount);
        }
        self.amount = amount;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.release(self.holder, self.amount);
    }
}

/// What becomes of a request for a share.
enum Taken<'a> {
    Now(Share),
    Later(Waiting<'a>),
}

/// A place in the queue, until its number is taken away.
struct Waiting<'a> {
    of: &'a Arc<Shared>,
    number: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.of.state.lock();
        if let Some(at) = state.queue.iter().position(|waiter| waiter.number == number)
            && let Some(waiter) = state.queue.remove(at)
        {
            state.subtract(waiter.holder, 0, waiter.amount);
        }
    }
}

#[cfg(test)]
mod tests;
