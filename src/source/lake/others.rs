//! Finds files of a lake that its layout does not lead to: a wrong manifest or setting, or an exporter
//! whose sizes were changed. Such a lake must not look like one that waits for its next ledger.

use orrery_ledger::domain::LedgerSeq;

use super::batches::Lake;
use super::error::LakeError;
use super::layout::{self, Layout};

/// Number of other layouts that are probed for at a time where a store cannot list.
pub(super) const OTHERS_AT_ONCE: usize = 4;
/// Number of keys listed to find the file that holds a missing ledger.
const KEYS_NEARBY: usize = 16;
/// Key of a file that no lake has.
const NO_FILE: &str = "no-lake-has-this-file.xdr.zst";

/// What is known of files of other layouts.
#[derive(Default)]
pub(super) struct Others {
    /// Key of such a file that comes after the newest ledger.
    pub follow: Option<String>,
    /// Number of layouts that were probed for.
    tried: usize,
    /// The layout that probing found last.
    found: Option<Layout>,
}

impl Others {
    /// Probes for `ledger` in the next few of the layouts that lakes also have, where the store cannot
    /// list.
    ///
    /// # Errors
    /// [`LakeError::OtherFiles`] when there is such a file.
    pub async fn probe(&mut self, lake: &Lake, ledger: LedgerSeq) -> Result<(), LakeError> {
        match self.find(lake, ledger).await? {
            Some(key) => Err(lake.other_files(&key)),
            None => Ok(()),
        }
    }

    /// Returns the key of `ledger` in the first of the next few other layouts in which it is there.
    async fn find(&mut self, lake: &Lake, ledger: LedgerSeq) -> Result<Option<String>, LakeError> {
        let mut tried = 0;
        for other in lake.layout.others().skip(self.tried).take(OTHERS_AT_ONCE) {
            let key = other.key_of(ledger);
            tried += 1;
            if lake.has_other(&key).await? {
                self.found = Some(other);
                return Ok(Some(key));
            }
        }
        self.tried = if tried < OTHERS_AT_ONCE { 0 } else { self.tried + tried };
        Ok(None)
    }

    /// Looks whether a lake that cannot be listed and does not grow goes on in another layout after
    /// `known`; [`check_known`](Self::check_known) tells what becomes of it.
    pub async fn look_after(&mut self, lake: &Lake, known: LedgerSeq) -> Result<(), LakeError> {
        let Some(next) = known.next() else { return Ok(()) };
        match lake.other_manifest().await? {
            Some(other) if lake.has_other(&other.key_of(next)).await? => {
                self.found = Some(other);
                Ok(())
            }
            _ => self.find(lake, next).await.map(drop),
        }
    }

    /// Looks whether the layout that probing found last still follows after `newest`.
    pub async fn check_known(
        &mut self,
        lake: &Lake,
        newest: LedgerSeq,
        wanted: Option<LedgerSeq>,
    ) -> Result<(), LakeError> {
        let Some(next) = newest.next() else { return Ok(()) };
        let is_other = |other: &&Layout| other.key_of(next) != lake.layout.key_of(next);
        let Some(layout) = self.found.as_ref().filter(is_other) else { return Ok(()) };
        let key = layout.key_of(next);
        if !lake.has_other(&key).await? {
            self.found = None;
            return Ok(());
        }
        match wanted {
            Some(wanted) if wanted <= newest => {
                self.follow = Some(key);
                Ok(())
            }
            _ => Err(lake.other_files(&key)),
        }
    }
}

impl Lake {
    /// Returns whether a store that cannot list has a file. A server that answers every request alike,
    /// with a page for people, has none.
    async fn has_other(&self, key: &str) -> Result<bool, LakeError> {
        Ok(self.store.exists(key).await? && !self.store.exists(NO_FILE).await?)
    }

    /// Returns the last ledger before the files of another layout, to one of which `key` belongs, if the
    /// file with `wanted` is there.
    ///
    /// # Errors
    /// [`LakeError::OtherFiles`] when it is not.
    pub(super) async fn last_before_others(
        &self,
        key: &str,
        wanted: Option<LedgerSeq>,
    ) -> Result<LedgerSeq, LakeError> {
        let Some(wanted) = wanted else { return Err(self.other_files(key)) };
        let last = match self.has(wanted).await? {
            true => self.last_from(wanted, None).await?,
            false => None,
        };
        last.ok_or_else(|| self.other_files(key))
    }

    /// Returns an error about a file of another layout that holds `ledger`, as far as the listing near
    /// it shows one.
    pub(super) async fn other_file_of(&self, ledger: LedgerSeq) -> Option<LakeError> {
        let next = self.layout.key_of(self.layout.batch_of(ledger).last.next()?);
        let (_, name) = next.rsplit_once('/').unwrap_or(("", &next));
        for after in [&*next, name] {
            // A lake that fails here says so when it is asked for the ledger again.
            let keys = self.store.keys_after(after, KEYS_NEARBY).await.ok().flatten()?;
            let holds = |key: &&String| {
                self.layout.range_of_other(key).is_some_and(|range| range.contains(ledger))
            };
            if let Some(key) = keys.iter().find(holds) {
                return Some(self.other_files(key));
            }
        }
        None
    }

    /// Fails when a lake without batch files has others that may hold ledgers.
    pub(super) async fn check_for_misnamed_files(&self) -> Result<(), LakeError> {
        match self.store.misnamed().await? {
            Some(key) => Err(LakeError::Other(format!(
                "the lake {} has {key}, but no file of ledgers that is named as SEP-54 says, at its \
                 root or in a directory of it: give the directory or prefix that the exporter writes \
                 to",
                self.place()
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn nothing_near(&self, near: LedgerSeq) -> LakeError {
        let (place, expected) = (self.place(), self.layout.words());
        let advice = self.layout_of.advice();
        LakeError::NothingNear(format!(
            "the lake {place} cannot be listed, and no ledger was found near {near} in {expected}: \
             wait until there is one, say with which ledger of the lake to start (--start LEDGER, or \
             `start` in [source]), or correct {advice} if its files have other sizes"
        ))
    }

    pub(super) fn other_files(&self, key: &str) -> LakeError {
        let (place, files, expected) = (self.place(), layout::words_of(key), self.layout.words());
        let (source_of_layout, advice) = (self.layout_of.words(), self.layout_of.advice());
        let sentence = format!(
            "the lake {place} has {key}, {files}, but {source_of_layout} says {expected}: correct \
             {advice}, or follow a lake of which all files have the same sizes"
        );
        LakeError::OtherFiles { key: key.to_owned(), sentence }
    }
}

#[cfg(test)]
mod tests;
