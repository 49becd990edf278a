//! Shares of limited resources: slots for work, bytes in memory, connections. Does not depend on
//! what is shared.
//!
//! A [`Budget`] never grants more than its total, or more than its limit to one holder. Once more
//! than half of the total is taken, the rest is reserved for holders with little: a holder that has
//! a share already may then have half of the total if it is the only one with a share, a quarter if
//! there are two, and an eighth if there are more. So a few holders' limits together may exceed the
//! total, and a new holder still gets a share: the second one half of what it would have alone.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// How often the total is halved at most: an eighth is left to a holder, whatever there is of others.
const MOST_HALVINGS: u32 = 3;

/// A holder of shares, as a keyed hash. The key is random for each process, so clients cannot
/// provoke collisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(u64);

impl Holder {
    /// Returns the holder that a value identifies.
    pub fn of(value: &(impl Hash + ?Sized)) -> Self {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEYS.hash_one(value))
    }

    /// Returns the holder that stands for the calling thread, for budgets whose users are limited
    /// elsewhere.
    pub fn this_thread() -> Self {
        Self::of(&std::thread::current().id())
    }
}

/// Limits of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum amount of all holders together.
    pub all: u64,
    /// Maximum amount of one holder.
    pub one: u64,
    /// Maximum number of requests that may wait for a share.
    pub waiting: usize,
    /// Maximum amount that one holder may have and wait for together.
    pub one_with_waiting: u64,
}

impl Limits {
    /// Returns limits for which requests never wait.
    pub fn without_waiting(all: u64, one: u64) -> Self {
        Self { all, one, waiting: 0, one_with_waiting: one }
    }

    /// Returns limits for which any number of requests may wait, as for the service's own threads.
    pub fn with_any_waiting(all: u64, one: u64) -> Self {
        Self { all, one, waiting: usize::MAX, one_with_waiting: u64::MAX }
    }
}

/// Why a share was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too much is taken, and the request may not wait or has waited too long.
    #[error("the budget is used up")]
    All,
    /// The holder has or waits for as much as it may.
    #[error("this holder has reached its limit")]
    One,
}

/// Current usage of a budget, and its refusals so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Name of the budget.
    pub name: &'static str,
    /// Maximum amount of all holders together.
    pub most: u64,
    /// Amount that is taken.
    pub taken: u64,
    /// Number of requests that wait for a share.
    pub waiting: usize,
    /// Number of requests that were refused because everything was taken.
    pub refused_all: u64,
    /// Number of requests that were refused because of the holder's own limit.
    pub refused_one: u64,
}

/// A limited resource. Clones share the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

struct Shared {
    name: &'static str,
    limits: Limits,
    state: Mutex<State>,
    /// Notified when a share is released or a request begins to wait.
    changed: Condvar,
    refused_all: AtomicU64,
    refused_one: AtomicU64,
}

#[derive(Default)]
struct State {
    taken: u64,
    /// Maximum of `taken` since [`Budget::peak`] was last called.
    peak: u64,
    /// Holders that have or wait for a share.
    holders: HashMap<Holder, HolderUsage>,
    /// Number of holders that have a share of more than zero.
    sharing: u32,
    /// Waiting requests in order of arrival. The holder that was served least recently is served
    /// first, so that a long queue of one holder does not delay others; requests that would exceed
    /// their holder's limit are skipped.
    queue: VecDeque<Waiter>,
    /// Number of the next waiting request.
    next: u64,
    /// Number of grants so far.
    grants: u64,
}

#[derive(Default, Clone, Copy)]
struct HolderUsage {
    taken: u64,
    queued: u64,
    /// Value of [`State::grants`] when the holder was last granted a share.
    last_grant: u64,
}

struct Waiter {
    number: u64,
    holder: Holder,
    amount: u64,
    granted: Grant,
}

/// Passes the granted share to the waiting request.
type Grant = Box<dyn FnOnce(Share) + Send>;

/// Part of a budget that a holder has until this is dropped.
pub struct Share {
    of: Arc<Shared>,
    holder: Holder,
    amount: u64,
    /// Share of another budget that always has the same amount ([`Share::joined_with`]).
    joined: Option<Box<Share>>,
}

impl Budget {
    /// Creates a budget of which nothing is taken.
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

    /// Returns the current usage.
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

    /// Returns the maximum amount taken since the last call.
    pub fn peak(&self) -> u64 {
        let mut state = self.0.state.lock();
        let now = state.taken;
        std::mem::replace(&mut state.peak, now)
    }

    /// Takes a share if one is available now.
    ///
    /// # Errors
    /// [`Refusal`], which counts in [`Usage`].
    pub fn take_now(&self, holder: Holder, amount: u64) -> Result<Share, Refusal> {
        self.try_take(holder, amount).map_err(|refusal| self.0.count_refusal(refusal))
    }

    /// Takes a share if one is available now. A refusal does not count, because the caller may wait
    /// instead.
    pub fn try_take(&self, holder: Holder, amount: u64) -> Result<Share, Refusal> {
        let mut state = self.0.state.lock();
        state.fits(&self.0.limits, holder, amount)?;
        state.add(holder, amount);
        drop(state);
        Ok(self.share(holder, amount))
    }

    /// Takes a share if one is available now, and as much as `left` beside it.
    ///
    /// # Errors
    /// [`Refusal`], which counts in [`Usage`].
    pub fn take_leaving(&self, holder: Holder, amount: u64, left: u64) -> Result<Share, Refusal> {
        let mut state = self.0.state.lock();
        let is_last = state.taken.saturating_add(amount).saturating_add(left) > self.0.limits.all;
        let fits = state.fits(&self.0.limits, holder, amount);
        let fits = if is_last { fits.and(Err(Refusal::All)) } else { fits };
        fits.map_err(|refusal| self.0.count_refusal(refusal))?;
        state.add(holder, amount);
        drop(state);
        Ok(self.share(holder, amount))
    }

    /// Waits for a share. Dropping the future removes the request from the queue.
    ///
    /// # Errors
    /// [`Refusal`], at once, when too many requests wait, or the holder has or waits for as much as
    /// it may.
    pub async fn take(&self, holder: Holder, amount: u64) -> Result<Share, Refusal> {
        let (granted, grant) = oneshot::channel();
        // If the receiver has stopped waiting meanwhile, dropping the share releases it.
        let granted: Grant = Box::new(move |share| drop(granted.send(share)));
        let mut waiting = match self.take_or_wait(holder, amount, granted)? {
            TakeOutcome::Granted(share) => return Ok(share),
            TakeOutcome::Queued(waiting) => waiting,
        };
        let share = grant.await;
        waiting.number = None;
        // Never fails: a grant is sent before its sender is dropped, and a budget outlives its
        // waiters.
        share.map_err(|_| self.0.count_refusal(Refusal::All))
    }

    /// Blocks the calling thread until a share is granted, or until `until` if it is given.
    ///
    /// # Errors
    /// Like [`Self::take`], and [`Refusal::All`] when `until` has passed.
    pub fn take_blocking(
        &self,
        holder: Holder,
        amount: u64,
        until: Option<Instant>,
    ) -> Result<Share, Refusal> {
        let (granted, grant) = sync_channel(1);
        let granted: Grant = Box::new(move |share| drop(granted.send(share)));
        let mut waiting = match self.take_or_wait(holder, amount, granted)? {
            TakeOutcome::Granted(share) => return Ok(share),
            TakeOutcome::Queued(waiting) => waiting,
        };
        let share = match until {
            Some(until) => grant.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => grant.recv().map_err(RecvTimeoutError::from),
        };
        if share.is_ok() {
            waiting.number = None;
        }
        // A share that is granted after `until` is released when the channel is dropped.
        share.map_err(|_| self.0.count_refusal(Refusal::All))
    }

    fn take_or_wait(
        &self,
        holder: Holder,
        amount: u64,
        granted: Grant,
    ) -> Result<TakeOutcome<'_>, Refusal> {
        let limits = &self.0.limits;
        let mut state = self.0.state.lock();
        if state.fits(limits, holder, amount).is_ok() {
            state.add(holder, amount);
            drop(state);
            return Ok(TakeOutcome::Granted(self.share(holder, amount)));
        }
        if amount > limits.all || state.queue.len() >= limits.waiting {
            return Err(self.0.count_refusal(Refusal::All));
        }
        let usage = state.usage_of(holder);
        let requested = usage.taken.saturating_add(usage.queued).saturating_add(amount);
        if requested > limits.one_with_waiting {
            return Err(self.0.count_refusal(Refusal::One));
        }
        let number = state.next;
        state.next += 1;
        state.holders.entry(holder).or_default().queued += amount;
        state.queue.push_back(Waiter { number, holder, amount, granted });
        drop(state);
        self.0.changed.notify_all();
        Ok(TakeOutcome::Queued(QueuedRequest { of: &self.0, number: Some(number) }))
    }

    /// Returns how much must be released so that all waiting requests can be granted.
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
        Share { of: Arc::clone(&self.0), holder, amount, joined: None }
    }
}

impl State {
    fn usage_of(&self, holder: Holder) -> HolderUsage {
        self.holders.get(&holder).copied().unwrap_or_default()
    }

    /// Checks whether a holder may have this much more now.
    fn fits(&self, limits: &Limits, holder: Holder, amount: u64) -> Result<(), Refusal> {
        let own = self.usage_of(holder).taken;
        let (own_after, after) = (own.saturating_add(amount), self.taken.saturating_add(amount));
        if own_after > limits.one {
            return Err(Refusal::One);
        }
        if after > limits.all {
            return Err(Refusal::All);
        }
        let is_scarce = after > limits.all / 2;
        if is_scarce && own > 0 && own_after > self.scarce_limit(limits) {
            return Err(Refusal::One);
        }
        Ok(())
    }

    /// Returns the amount that a holder with a share may have once half of the total is taken.
    fn scarce_limit(&self, limits: &Limits) -> u64 {
        limits.all.div_ceil(1 << self.sharing.min(MOST_HALVINGS))
    }

    fn missing(&self, limits: &Limits) -> u64 {
        let queued = self.queue.iter().map(|waiter| waiter.amount).sum::<u64>();
        self.taken.saturating_add(queued).saturating_sub(limits.all)
    }

    fn add(&mut self, holder: Holder, amount: u64) {
        self.taken += amount;
        self.peak = self.peak.max(self.taken);
        self.grants += 1;
        let usage = self.holders.entry(holder).or_default();
        self.sharing += u32::from(usage.taken == 0 && amount > 0);
        usage.taken += amount;
        usage.last_grant = self.grants;
    }

    /// Subtracts from what a holder has and waits for.
    fn subtract(&mut self, holder: Holder, taken: u64, queued: u64) {
        self.taken = self.taken.saturating_sub(taken);
        let Some(usage) = self.holders.get_mut(&holder) else { return };
        self.sharing -= u32::from(usage.taken > 0 && usage.taken <= taken);
        usage.taken = usage.taken.saturating_sub(taken);
        usage.queued = usage.queued.saturating_sub(queued);
        if usage.taken == 0 && usage.queued == 0 {
            self.holders.remove(&holder);
        }
    }

    /// Removes all requests from the queue that can be granted now.
    fn take_grantable(&mut self, limits: &Limits) -> Vec<Waiter> {
        let mut grantable = Vec::new();
        while self.taken < limits.all {
            let waiters = self.queue.iter().enumerate();
            let fitting = waiters.filter(|(_, it)| self.fits(limits, it.holder, it.amount).is_ok());
            // Among equals, `min_by_key` returns the first, which has waited longest.
            let next =
                fitting.min_by_key(|(_, it)| self.usage_of(it.holder).last_grant).map(|(at, _)| at);
            let Some(waiter) = next.and_then(|at| self.queue.remove(at)) else { break };
            self.add(waiter.holder, waiter.amount);
            self.subtract(waiter.holder, 0, waiter.amount);
            grantable.push(waiter);
        }
        grantable
    }
}

impl Shared {
    fn count_refusal(&self, refusal: Refusal) -> Refusal {
        let count = match refusal {
            Refusal::All => &self.refused_all,
            Refusal::One => &self.refused_one,
        };
        count.fetch_add(1, Ordering::Relaxed);
        refusal
    }

    /// Releases what a holder had, and grants it to waiting requests.
    fn release(self: &Arc<Self>, holder: Holder, amount: u64) {
        let mut state = self.state.lock();
        state.subtract(holder, amount, 0);
        self.grant_waiting(state);
        self.changed.notify_all();
    }

    fn grant_waiting(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        if state.queue.is_empty() {
            return;
        }
        let grantable = state.take_grantable(&self.limits);
        drop(state);
        for Waiter { holder, amount, granted, .. } in grantable {
            let share = Share { of: Arc::clone(self), holder, amount, joined: None };
            granted(share);
        }
    }
}

impl Share {
    /// Returns the size of the share.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns the largest size that the share can have when nothing else is taken.
    pub fn most(&self) -> u64 {
        let own = self.of.limits.one.min(self.of.limits.all);
        self.joined.as_ref().map_or(own, |joined| own.min(joined.most()))
    }

    /// Grows the share to at least `amount`.
    ///
    /// # Errors
    /// [`Refusal`]; the share is then unchanged.
    pub fn grow_to(&mut self, amount: u64) -> Result<(), Refusal> {
        let Some(more) = amount.checked_sub(self.amount).filter(|more| *more > 0) else {
            return Ok(());
        };
        let before = self.amount;
        if let Some(joined) = &mut self.joined {
            joined.grow_to(amount)?;
        }
        let mut state = self.of.state.lock();
        if let Err(refusal) = state.fits(&self.of.limits, self.holder, more) {
            drop(state);
            if let Some(joined) = &mut self.joined {
                joined.set(before);
            }
            return Err(self.of.count_refusal(refusal));
        }
        state.add(self.holder, more);
        self.amount = amount;
        Ok(())
    }

    /// Returns the share together with one of another budget, of the same amount. From now on both
    /// grow and shrink together, so each budget limits the other.
    #[must_use]
    pub fn joined_with(mut self, other: Self) -> Self {
        self.joined = Some(Box::new(other));
        self
    }

    /// Sets the size of the share without checking limits, for something that exists already.
    pub fn set(&mut self, amount: u64) {
        if amount < self.amount {
            self.of.release(self.holder, self.amount - amount);
        } else if amount > self.amount {
            self.of.state.lock().add(self.holder, amount - self.amount);
        }
        self.amount = amount;
        if let Some(joined) = &mut self.joined {
            joined.set(amount);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.release(self.holder, self.amount);
    }
}

/// Outcome of a request for a share that may wait.
enum TakeOutcome<'a> {
    Granted(Share),
    Queued(QueuedRequest<'a>),
}

/// A request in the queue. Dropping it removes the request, unless `number` is `None`.
struct QueuedRequest<'a> {
    of: &'a Arc<Shared>,
    number: Option<u64>,
}

impl Drop for QueuedRequest<'_> {
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
