//! Store reads of asynchronous handlers. Each read holds a readers slot only while it lasts.

use parking_lot::Mutex;

use super::ApiError;
use super::allowance::{Allowance, GROWTH_STEP, ReserveError, reserve, reserve_one};
use super::blocking::Watch;
use super::budgets::{Budgets, acquire_slot, refused};
use super::client::Client;
use super::shared_limit::SharedLimit;
use orrery_runtime::budget::{Holder, Share};
use orrery_settings::Limits;

/// Access to the store for one request of an asynchronous handler.
pub(super) struct Reading<'a> {
    pub budgets: &'a Budgets,
    pub watch: &'a Watch,
    pub limits: &'a Limits,
    pub client: &'a Client,
    pub holder: Holder,
    /// Share of the byte budget that covers the request and its response.
    pub share: Mutex<&'a mut Share>,
    /// Rate limit of forwarded calls.
    pub forwarding: &'a SharedLimit,
    /// Counts one more request against the rate limit.
    pub count: &'a (dyn Fn() -> Result<(), ApiError> + Sync),
}

impl Reading<'_> {
    /// Waits for a readers slot and runs `work`, which reads the store, on the current thread.
    ///
    /// # Errors
    /// When no slot is granted, or the client hangs up while waiting.
    pub(super) async fn read<T>(
        &self,
        work: impl FnOnce(&Allowance<'_>) -> T,
    ) -> Result<T, ApiError> {
        let _slot = acquire_slot(&self.budgets.readers, self.holder, self.client, "reads").await?;
        let mut share = self.share.lock();
        let allowance = Allowance::new(self.limits, self.client, &mut share);
        Ok(self.watch.run_read(|| work(&allowance)))
    }

    /// Reserves bytes before they are allocated: grows the request's share to at least `bytes`.
    ///
    /// # Errors
    /// When the byte budget refuses them, now or always.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), ReserveError> {
        reserve(&mut self.share.lock(), bytes)
    }

    /// Like [`Self::reserve`], for a response that cannot be made smaller: of one that is larger than
    /// what a client can have, all of that is reserved.
    ///
    /// # Errors
    /// When the byte budget refuses them now.
    pub(super) fn reserve_one(&self, bytes: usize) -> Result<(), ReserveError> {
        reserve_one(&mut self.share.lock(), bytes)
    }

    /// Reserves the first bytes of the answer to a forwarded call.
    ///
    /// # Errors
    /// When the budget of forwarded calls refuses them.
    pub(super) fn begin_forwarding(&self) -> Result<Share, ApiError> {
        let share = self.budgets.forwarded_bytes.take_now(self.holder, GROWTH_STEP);
        share.map_err(|refusal| refused(refusal, "forwarded calls"))
    }

    /// Counts a forwarded call against the rate limit that all clients share.
    ///
    /// # Errors
    /// When the rate limit is exceeded, or this client's part of it and little is left.
    pub(super) fn count_forwarded(&self) -> Result<(), ApiError> {
        self.forwarding.count(self.holder)
    }

    /// Waits for a slot for a simulation on the state of a stored ledger.
    ///
    /// # Errors
    /// When no slot is granted, or the client hangs up while waiting.
    pub(super) async fn begin_simulation(&self) -> Result<Share, ApiError> {
        acquire_slot(&self.budgets.simulations, self.holder, self.client, "simulations").await
    }

    /// Counts `more` additional requests against the rate limit.
    ///
    /// # Errors
    /// When the rate limit is exceeded.
    pub(super) fn count(&self, more: usize) -> Result<(), ApiError> {
        (0..more).try_for_each(|_| (self.count)())
    }
}
