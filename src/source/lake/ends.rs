//! The newest and the oldest ledger of a lake, found with few questions: by listing, newest first,
//! or by asking whether files exist. Such probing assumes that a lake has no gaps, and remembers what
//! it found, so that following a lake costs a question or two.

use super::{Lake, LakeError};
use crate::domain::{LedgerRange, LedgerSeq};

/// Keys that are looked at to find the newest: some may be files that are still being written.
const NEWEST_KEYS: usize = 16;

/// A newest file that was found so many files beyond what was known is read to be sure: some servers
/// answer to every key as if it were there.
const BELIEVED: u32 = 64;

/// Where nothing follows the newest file for a while, one of these distances beyond it is looked at,
/// in files: a lake that goes on behind a gap must not look like one that waits.
const BEYOND: [u32; 4] = [2, 8, 64, 512];

/// After a search far and wide that found nothing, so many look only where a ledger is most likely.
const SHORT_SEARCHES: u32 = 15;

impl Lake {
    /// The newest ledger in it, or none when there is none; by listing where the store can, else by
    /// probing from `near`, a ledger that it is thought to hold.
    ///
    /// # Errors
    /// [`LakeError::NothingNear`] when it cannot be listed and nothing was found.
    pub async fn newest(&self, near: LedgerSeq) -> Result<Option<LedgerSeq>, LakeError> {
        match self.newest_listed("").await? {
            Listed::Newest(newest) => Ok(newest),
            Listed::Impossible => self.newest_by_probing(near).await.map(Some),
        }
    }

    /// The newest ledger that is not after `limit`; none when there is none.
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

    /// The newest behind the key `after` in the listing.
    async fn newest_listed(&self, after: &str) -> Result<Listed, LakeError> {
        let Some(keys) = self.store.keys_after(after, NEWEST_KEYS).await? else {
            return Ok(Listed::Impossible);
        };
        let newest = keys.iter().find_map(|key| self.layout.range_at(key));
        Ok(Listed::Newest(newest.map(|range| range.last)))
    }

    /// The newest ledger, found from `near` by probing. The file is read when it is far from `near`.
    ///
    /// # Errors
    /// [`LakeError::NothingNear`]
    pub async fn newest_by_probing(&self, near: LedgerSeq) -> Result<LedgerSeq, LakeError> {
        let nothing = || LakeError::NothingNear { place: self.place(), near };
        let present = match self.nearest_before(near).await? {
            Some(present) => present,
            None => self.nearest_after(near).await?.ok_or_else(nothing)?,
        };
        let newest = self.last_from(present, None).await?.ok_or_else(nothing)?;
        self.believe(near, newest).await?;
        Ok(newest)
    }

    /// Of `near` and ledgers at doubling distances before it, down to the first, the nearest that is
    /// there.
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

    /// Of ledgers at doubling distances after `near`, the nearest that is there.
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

    /// The last ledger of the files that follow that of `present` without a gap, but none that begins
    /// after `limit`: doubling steps forward, then halving back.
    async fn last_from(
        &self,
        present: LedgerSeq,
        limit: Option<LedgerSeq>,
    ) -> Result<Option<LedgerSeq>, LakeError> {
        let within = |ledger: &LedgerSeq| limit.is_none_or(|limit| *ledger <= limit);
        let start = self.layout.batch_of(present).first;
        // Both count files from that of `present`: the first is there, the second is not.
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

    /// Reads the newest file when it lies far from what was known, or the one before it, because the
    /// newest may be unfinished.
    async fn believe(&self, known: LedgerSeq, newest: LedgerSeq) -> Result<(), LakeError> {
        let size = self.layout.ledgers_per_batch();
        if newest.0.saturating_sub(known.0) / size <= BELIEVED {
            return Ok(());
        }
        if matches!(self.file_of(newest).await, Ok(Some(_))) {
            return Ok(());
        }
        let before = LedgerSeq(newest.0.saturating_sub(size)).max(LedgerSeq::FIRST);
        match self.file_of(before).await? {
            Some(_) => Ok(()),
            None => Err(LakeError::transport(
                self.place(),
                format!("the server says that there is a file for ledger {before}, and has none"),
            )),
        }
    }

    /// The oldest ledger, found by halving between the beginning and `newest`, a ledger that it
    /// holds. Assumes that there is no gap.
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

    /// The first ledger of the file that lies `files` after that of `ledger`.
    fn forward(&self, ledger: LedgerSeq, files: u32) -> Option<LedgerSeq> {
        let distance = files.checked_mul(self.layout.ledgers_per_batch())?;
        self.layout.batch_of(ledger).first.0.checked_add(distance).map(LedgerSeq)
    }
}

/// What a listing says.
enum Listed {
    /// The newest ledger, if there is any.
    Newest(Option<LedgerSeq>),
    /// The store cannot list.
    Impossible,
}

/// What is known of the ends of a lake that is followed.
#[derive(Default)]
pub(super) struct Ends {
    newest: Option<LedgerSeq>,
    oldest: Option<LedgerSeq>,
    /// Whether the oldest may have been removed since it was found.
    doubted: bool,
    /// The newest when it was last looked for.
    surveyed: Option<LedgerSeq>,
    /// How often the lake stood still or nothing was found, which moves the next look.
    looks: u32,
}

impl Ends {
    /// The newest ledger that is known.
    pub fn newest(&self) -> Option<LedgerSeq> {
        self.newest
    }

    /// Takes note of a ledger that was read.
    pub fn holds(&mut self, ledger: LedgerSeq) {
        self.newest = self.newest.max(Some(ledger));
    }

    /// Takes note that a ledger is missing. When the lake is known to begin later, the first ledger.
    pub fn misses(&mut self, ledger: LedgerSeq) -> Option<LedgerSeq> {
        self.doubted |= self.newest.is_some_and(|newest| ledger <= newest);
        self.oldest.filter(|oldest| ledger < *oldest)
    }

    /// Looks for both ends; none when the lake is empty.
    pub async fn survey(
        &mut self,
        lake: &Lake,
        wanted: Option<LedgerSeq>,
    ) -> Result<Option<LedgerRange>, LakeError> {
        let Some(last) = self.look_for_newest(lake, wanted).await? else { return Ok(None) };
        let first = self.look_for_oldest(lake, last, wanted).await?;
        (self.oldest, self.doubted) = (Some(first), false);
        Ok(Some(LedgerRange { first, last }))
    }

    /// Looks for the newest ledger; none when the lake is empty.
    pub async fn look_for_newest(
        &mut self,
        lake: &Lake,
        wanted: Option<LedgerSeq>,
    ) -> Result<Option<LedgerSeq>, LakeError> {
        let before = self.surveyed;
        let newest = match lake.newest_listed("").await? {
            Listed::Newest(newest) => newest,
            Listed::Impossible => Some(self.probe(lake, wanted).await?),
        };
        if newest.is_none() {
            self.oldest = None;
        } else if newest == before {
            // A lake that stands still may have been left for a new one.
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
        let mut beyond = 1;
        if self.surveyed == Some(known) {
            if !lake.has(known).await? {
                // It was emptied, or begun anew.
                self.newest = None;
                return self.search(lake, wanted).await;
            }
            beyond = BEYOND[self.looks as usize % BEYOND.len()];
            self.looks = self.looks.wrapping_add(1);
        }
        for distance in [1, beyond] {
            if let Some(next) = lake.forward(known, distance)
                && lake.has(next).await?
            {
                let newest = lake.last_from(next, None).await?.unwrap_or(next);
                lake.believe(known, newest).await?;
                return Ok(newest);
            }
            if beyond == 1 {
                break;
            }
        }
        Ok(known)
    }

    /// Looks for any ledger, near the one that is wanted; far and wide only from time to time.
    async fn search(
        &mut self,
        lake: &Lake,
        wanted: Option<LedgerSeq>,
    ) -> Result<LedgerSeq, LakeError> {
        let near = wanted.unwrap_or(LedgerSeq::FIRST);
        let short = !self.looks.is_multiple_of(SHORT_SEARCHES + 1);
        self.looks = self.looks.wrapping_add(1);
        if short {
            let likely = [Some(near), near.previous(), Some(LedgerSeq::FIRST)];
            let mut found = false;
            for ledger in likely.into_iter().flatten() {
                found = found || lake.has(ledger).await?;
            }
            if !found {
                return Err(LakeError::NothingNear { place: lake.place(), near });
            }
        }
        let newest = lake.newest_by_probing(near).await;
        if newest.is_ok() {
            self.looks = 0;
        }
        newest
    }

    /// The oldest ledger, in a lake with a gap the oldest before the gap that `wanted` is in or after.
    async fn look_for_oldest(
        &self,
        lake: &Lake,
        newest: LedgerSeq,
        wanted: Option<LedgerSeq>,
    ) -> Result<LedgerSeq, LakeError> {
        let known = match self.oldest {
            Some(known) if !self.doubted || lake.has(known).await? => Some(known),
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
