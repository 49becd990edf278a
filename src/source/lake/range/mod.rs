//! Finds the newest and the oldest ledger of a lake with few requests: by listing, newest first, or
//! by probing whether files exist. Probing assumes that a lake has no gaps. [`Ends`] remembers what
//! was found, so that following a lake costs one or two requests.

use orrery_ledger::domain::{LedgerRange, LedgerSeq};

use super::batches::Lake;
use super::error::LakeError;
use super::others::Others;

/// Number of keys listed to find the newest ledger: some may belong to files that are still being
/// written.
const NEWEST_KEYS: usize = 16;

/// A newest file found more than this many files beyond the known one is read for verification:
/// some servers report every key as existing.
const MAX_UNVERIFIED_JUMP: u32 = 64;

/// Distances in files, one of which is probed beyond the newest file while nothing follows it: a
/// lake that continues after a gap must not look like one that waits.
const PROBE_DISTANCES: [u32; 4] = [2, 8, 64, 512];

/// Number of short searches, which probe only the most likely ledgers, after each full search that
/// found nothing.
const SHORT_SEARCHES: u32 = 15;

impl Lake {
    /// Returns the newest ledger, or `None` when the lake is empty; by listing where the store can,
    /// otherwise by probing from `near`, a ledger that the lake probably holds.
    ///
    /// # Errors
    /// [`LakeError::NothingNear`] when the lake cannot be listed and nothing was found.
    pub async fn newest(&self, near: LedgerSeq) -> Result<Option<LedgerSeq>, LakeError> {
        match self.newest_listed("").await? {
            Listed::Newest(newest) => Ok(newest),
            Listed::Impossible => self.newest_by_probing(near).await.map(Some),
        }
    }

    /// Returns the newest ledger that is not after `limit`; `None` when there is none.
    ///
    /// # Errors
    /// As [`Lake::newest`].
    pub async fn newest_until(&self, limit: LedgerSeq) -> Result<Option<LedgerSeq>, LakeError> {
        let after = self.layout.batch_of(limit).last.next();
        let after = after.map_or_else(String::new, |after| self.layout.key_of(after));
        let newest = match self.newest_listed(&after).await? {
            Listed::Newest(newest) => newest,
            Listed::Impossible => match self.nearest_before(limit).await? {
                Some(present) => self.last_from(present, Some(limit)).await?,
                None => None,
            },
        };
        Ok(newest.map(|newest| newest.min(limit)))
    }

    /// Returns the newest ledger after the key `after` in the listing.
    ///
    /// # Errors
    /// [`LakeError::OtherFiles`] when files of another layout hold newer ones.
    async fn newest_listed(&self, after: &str) -> Result<Listed, LakeError> {
        let Some(keys) = self.store.keys_after(after, NEWEST_KEYS).await? else {
            return Ok(Listed::Impossible);
        };
        let newest = keys.iter().find_map(|key| self.layout.range_at(key)).map(|range| range.last);
        let other = keys.iter().find(|key| {
            let other = self.layout.range_of_other(key);
            other.is_some_and(|other| newest.is_none_or(|newest| newest < other.last))
        });
        match other {
            Some(key) => Err(self.other_files(key)),
            None => Ok(Listed::Newest(newest)),
        }
    }

    /// Finds the newest ledger by probing from `near`. Reads a file to verify a ledger far from
    /// `near`.
    ///
    /// # Errors
    /// [`LakeError::NothingNear`]
    pub async fn newest_by_probing(&self, near: LedgerSeq) -> Result<LedgerSeq, LakeError> {
        let nothing = || self.nothing_near(near);
        let present = match self.nearest_before(near).await? {
            Some(present) => present,
            None => self.nearest_after(near).await?.ok_or_else(nothing)?,
        };
        let newest = self.last_from(present, None).await?.ok_or_else(nothing)?;
        self.verify_newest(near, newest).await?;
        Ok(newest)
    }

    /// Returns the nearest existing ledger among `near` and the ledgers at doubling distances
    /// before it, down to the first.
    async fn nearest_before(&self, near: LedgerSeq) -> Result<Option<LedgerSeq>, LakeError> {
        let size = self.layout.ledgers_per_batch();
        let mut distance = 0u32;
        loop {
            let probe = near.0.saturating_sub(distance.saturating_mul(size));
            let probe = LedgerSeq(probe).max(LedgerSeq::FIRST);
            if self.has(probe).await? {
                return Ok(Some(probe));
            }
            if self.layout.batch_of(probe).contains(LedgerSeq::FIRST) {
                return Ok(None);
            }
            distance = distance.saturating_mul(2).max(1);
        }
    }

    /// Returns the nearest existing ledger at doubling distances after `near`.
    async fn nearest_after(&self, near: LedgerSeq) -> Result<Option<LedgerSeq>, LakeError> {
        let mut distance = 1u32;
        while let Some(probe) = self.forward(near, distance) {
            if self.has(probe).await? {
                return Ok(Some(probe));
            }
            distance = distance.saturating_mul(2);
        }
        Ok(None)
    }

    /// Returns the last ledger of the files that follow that of `present` without a gap, ignoring
    /// files that begin after `limit`: doubling steps forward, then a binary search.
    pub(super) async fn last_from(
        &self,
        present: LedgerSeq,
        limit: Option<LedgerSeq>,
    ) -> Result<Option<LedgerSeq>, LakeError> {
        let within = |ledger: &LedgerSeq| limit.is_none_or(|limit| *ledger <= limit);
        let start = self.layout.batch_of(present).first;
        // Both count files from that of `present`: the file at `there` exists, the one at `absent`
        // does not.
        let (mut there, mut absent) = (0u32, 1u32);
        while let Some(probe) = self.forward(start, absent).filter(within)
            && self.has(probe).await?
        {
            there = absent;
            absent = absent.saturating_mul(2);
        }
        while absent - there > 1 {
            let middle = there + (absent - there) / 2;
            match self.forward(start, middle).filter(within) {
                Some(probe) if self.has(probe).await? => there = middle,
                _ => absent = middle,
            }
        }
        Ok(self.forward(start, there).map(|ledger| self.layout.batch_of(ledger).last))
    }

    /// Verifies a newest file that lies far from the known ledger: reads it, or the one before it,
    /// because the newest may be unfinished.
    async fn verify_newest(&self, known: LedgerSeq, newest: LedgerSeq) -> Result<(), LakeError> {
        let size = self.layout.ledgers_per_batch();
        if newest.0.saturating_sub(known.0) / size <= MAX_UNVERIFIED_JUMP {
            return Ok(());
        }
        if matches!(self.file_of(newest).await, Ok(Some(_))) {
            return Ok(());
        }
        let before = LedgerSeq(newest.0.saturating_sub(size)).max(LedgerSeq::FIRST);
        match self.file_of(before).await? {
            Some(_) => Ok(()),
            None => Err(LakeError::transport(
                &self.place(),
                format_args!(
                    "the server reports a file for ledger {before}, but does not have one"
                ),
            )),
        }
    }

    /// Finds the oldest ledger by a binary search between the beginning and `newest`, a ledger that
    /// the lake holds. Assumes that there is no gap.
    pub async fn oldest(&self, newest: LedgerSeq) -> Result<LedgerSeq, LakeError> {
        // Most lakes hold the whole history.
        if self.has(LedgerSeq::FIRST).await? {
            return Ok(LedgerSeq::FIRST);
        }
        let size = self.layout.ledgers_per_batch();
        let (mut low, mut high) = (LedgerSeq::FIRST.0 / size + 1, newest.0 / size);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.has(LedgerSeq(middle * size)).await? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(LedgerSeq(high * size).max(LedgerSeq::FIRST))
    }

    /// Returns the first ledger of the file that lies `files` files after that of `ledger`.
    fn forward(&self, ledger: LedgerSeq, files: u32) -> Option<LedgerSeq> {
        let distance = files.checked_mul(self.layout.ledgers_per_batch())?;
        self.layout.batch_of(ledger).first.0.checked_add(distance).map(LedgerSeq)
    }
}

/// Result of a listing.
enum Listed {
    /// The newest ledger, if there is any.
    Newest(Option<LedgerSeq>),
    /// The store cannot list.
    Impossible,
}

/// The known ends of a lake that is followed.
#[derive(Default)]
pub(super) struct Ends {
    newest: Option<LedgerSeq>,
    oldest: Option<LedgerSeq>,
    /// Whether the oldest ledger may have been removed since it was found.
    oldest_in_doubt: bool,
    /// The newest ledger at the last survey.
    surveyed: Option<LedgerSeq>,
    /// Number of surveys that found nothing new or nothing at all; selects the next probe.
    idle_surveys: u32,
    others: Others,
}

impl Ends {
    /// Returns the newest ledger that is known.
    pub fn newest(&self) -> Option<LedgerSeq> {
        self.newest
    }

    /// Forgets the ends of a lake that is opened again.
    pub fn forget(&mut self) {
        *self = Self { others: std::mem::take(&mut self.others), ..Self::default() };
    }

    /// Returns why `ledger`, which is missing, may never come: it lies in a file of another layout.
    pub async fn other_files(&self, lake: &Lake, ledger: LedgerSeq) -> Option<LakeError> {
        match &self.others.follow {
            Some(key) => Some(lake.other_files(key)),
            None if self.newest.is_some_and(|newest| ledger <= newest) => {
                lake.other_file_of(ledger).await
            }
            None => None,
        }
    }

    /// Records that the lake holds `ledger`.
    pub fn record_present(&mut self, ledger: LedgerSeq) {
        self.newest = self.newest.max(Some(ledger));
    }

    /// Records that `ledger` is missing. Returns the oldest ledger when the lake is known to begin
    /// after `ledger`.
    pub fn record_missing(&mut self, ledger: LedgerSeq) -> Option<LedgerSeq> {
        self.oldest_in_doubt |= self.newest.is_some_and(|newest| ledger <= newest);
        self.oldest.filter(|oldest| ledger < *oldest)
    }

    /// Finds both ends; returns `None` when the lake is empty.
    pub async fn survey(
        &mut self,
        lake: &Lake,
        wanted: Option<LedgerSeq>,
    ) -> Result<Option<LedgerRange>, LakeError> {
        let Some(last) = self.find_newest(lake, wanted).await? else { return Ok(None) };
        let first = self.find_oldest(lake, last, wanted).await?;
        (self.oldest, self.oldest_in_doubt) = (Some(first), false);
        Ok(Some(LedgerRange { first, last }))
    }

    /// Finds the newest ledger; returns `None` when the lake is empty.
    pub async fn find_newest(
        &mut self,
        lake: &Lake,
        wanted: Option<LedgerSeq>,
    ) -> Result<Option<LedgerSeq>, LakeError> {
        let before = self.surveyed;
        self.others.follow = None;
        let newest = match lake.newest_listed("").await {
            Ok(Listed::Newest(newest)) => newest,
            Ok(Listed::Impossible) => {
                let newest = self.probe(lake, wanted).await?;
                self.others.check_known(lake, newest, wanted).await?;
                Some(newest)
            }
            Err(LakeError::OtherFiles { key, .. }) => {
                // What fits is read first.
                let newest = lake.last_before_others(&key, wanted).await?;
                self.others.follow = Some(key);
                Some(newest)
            }
            Err(error) => return Err(error),
        };
        if newest.is_none() {
            lake.check_for_misnamed_files().await?;
            self.oldest = None;
        } else if newest == before {
            // A lake that does not grow may have been replaced after a reset.
            lake.check_for_reset().await?;
        }
        (self.newest, self.surveyed) = (newest, newest);
        Ok(newest)
    }

    async fn probe(
        &mut self,
        lake: &Lake,
        wanted: Option<LedgerSeq>,
    ) -> Result<LedgerSeq, LakeError> {
        let Some(known) = self.newest else { return self.search(lake, wanted).await };
        let (mut beyond, mut looks_for_others) = (1, false);
        if self.surveyed == Some(known) {
            if !lake.has(known).await? {
                // The lake was emptied or started again.
                self.newest = None;
                return self.search(lake, wanted).await;
            }
            let idle = self.idle_surveys as usize;
            self.idle_surveys = self.idle_surveys.wrapping_add(1);
            looks_for_others = idle % 2 == 1;
            beyond = PROBE_DISTANCES[idle / 2 % PROBE_DISTANCES.len()];
        }
        for distance in [1, beyond] {
            if let Some(next) = lake.forward(known, distance)
                && lake.has(next).await?
            {
                let newest = lake.last_from(next, None).await?.unwrap_or(next);
                lake.verify_newest(known, newest).await?;
                return Ok(newest);
            }
            if beyond == 1 {
                break;
            }
        }
        if looks_for_others {
            self.others.look_after(lake, known).await?;
        }
        Ok(known)
    }

    /// Searches for any ledger near the wanted one. One of `SHORT_SEARCHES` + 1 calls makes a full
    /// search; the others probe the likely ledgers first, and fail when none of them exists.
    async fn search(
        &mut self,
        lake: &Lake,
        wanted: Option<LedgerSeq>,
    ) -> Result<LedgerSeq, LakeError> {
        let near = wanted.unwrap_or(LedgerSeq::FIRST);
        let short = !self.idle_surveys.is_multiple_of(SHORT_SEARCHES + 1);
        self.idle_surveys = self.idle_surveys.wrapping_add(1);
        if short {
            let likely = [Some(near), near.previous(), Some(LedgerSeq::FIRST)];
            let mut found = false;
            for ledger in likely.into_iter().flatten() {
                found = found || lake.has(ledger).await?;
            }
            if !found {
                self.others.probe(lake, near).await?;
                return Err(lake.nothing_near(near));
            }
        }
        let newest = lake.newest_by_probing(near).await;
        match newest {
            Ok(_) => self.idle_surveys = 0,
            Err(LakeError::NothingNear(_)) => self.others.probe(lake, near).await?,
            Err(_) => {}
        }
        newest
    }

    /// Finds the oldest ledger. In a lake with gaps, searches back from the newest ledger that is
    /// not after `wanted`, so that a later gap is not mistaken for the beginning.
    async fn find_oldest(
        &self,
        lake: &Lake,
        newest: LedgerSeq,
        wanted: Option<LedgerSeq>,
    ) -> Result<LedgerSeq, LakeError> {
        let known = match self.oldest {
            Some(known) if !self.oldest_in_doubt || lake.has(known).await? => Some(known),
            _ => None,
        };
        let Some(wanted) = wanted.filter(|wanted| *wanted <= newest) else {
            return match known {
                Some(known) => Ok(known),
                None => lake.oldest(newest).await,
            };
        };
        match known {
            Some(known) if known <= wanted || !lake.has(wanted).await? => return Ok(known),
            Some(_) => return lake.oldest(wanted).await,
            None => {}
        }
        match lake.newest_until(wanted).await? {
            Some(present) => lake.oldest(present).await,
            None => lake.oldest(newest).await,
        }
    }
}

#[cfg(test)]
mod tests;
