//! How handlers that wait for others read the store in between: each read takes a place for as long as it lasts.

use parking_lot::Mutex;

use super::ApiError;
use super::allowance::{Allowance, ScanLimits};
use super::blocking::Watch;
use super::budgets::{Budgets, place, refused};
use super::client::Client;
use crate::budget::{Holder, Share};

/// A request's way to the store.
pub(super) struct Reading<'a> {
    pub budgets: &'a Budgets,
    pub watch: &'a Watch,
    pub limits: &'a ScanLimits,
    pub client: &'a Client,
    pub holder: Holder,
    /// The bytes of the request and its answer.
    pub share: &'a Mutex<Share>,
    /// Counts as a request more.
    pub count: &'a (dyn Fn() -> Result<(), ApiError> + Sync),
}

impl Reading<'_> {
    /// Has `work` read the store, in its turn.
    ///
    /// # Errors
    /// When there is no place for it, or nobody waits for the answer any more.
    pub(super) async fn read<T>(
        &self,
        work: impl FnOnce(&Allowance<'_>) -> T,
    ) -> Result<T, ApiError> {
        let _place = place(&self.budgets.readers, self.holder, self.client, "reads").await?;
        let mut share = self.share.lock();
        let allowance = Allowance::new(self.limits, self.client, &mut share);
        Ok(self.watch.during(|| work(&allowance)))
    }

    /// Has the request's share cover so many bytes before they are there.
    ///
    /// # Errors
    /// When there are none left for it.
    pub(super) fn hold(&self, bytes: usize) -> Result<(), ApiError> {
        let (mut share, bytes) = (self.share.lock(), bytes as u64);
        match bytes > share.amount() {
            true => share.grow_to(bytes).map_err(|refusal| refused(refusal, "bytes")),
            false => Ok(()),
        }
    }

    /// Counts so many requests more against the rate limit.
    ///
    /// # Errors
    /// When they are too many.
    pub(super) fn count(&self, more: usize) -> Result<(), ApiError> {
        (0..more).try_for_each(|_| (self.count)())
    }
}
