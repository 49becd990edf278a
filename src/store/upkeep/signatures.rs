//! Recomputes from stored raw ledgers what trusted validators have signed, after the validators
//! were changed, or for ledgers that were stored before signatures were recorded.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use orrery_ledger::decode::decode;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, NodeId};
use orrery_ledger::validators::{Signed, Validators};
use orrery_ledger::verify::{Policy, verify};

use crate::db::writes::BatchEnds;
use crate::encoding::columns::{Family, LedgerKey};
use crate::encoding::error::StoreError;
use crate::ingest::commit::last_ingested;
use crate::state::marks::Marks;
use crate::state::store::Store;

/// Progress of a search for signatures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SignatureSearch {
    /// Number of raw ledgers that were read.
    pub read: u64,
    /// Number of raw ledgers that may have to be read; at the end, of those that had to be.
    pub of: u64,
    /// Covered ledgers that were passed over, because their raw form is not stored.
    pub without_raw: LedgerSet,
}

/// The newest ledgers that trusted validators have signed, as found in raw ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundSignatures {
    /// All trusted validators.
    keys: BTreeSet<NodeId>,
    signatures: Vec<(LedgerSeq, NodeId)>,
}

fn newest_first(ledgers: &LedgerSet) -> impl Iterator<Item = LedgerSeq> {
    let parts = ledgers.ranges().iter().rev();
    parts.flat_map(|part| (part.first.0..=part.last.0).rev()).map(LedgerSeq)
}

impl Store {
    /// Looks for the newest ledger that each trusted validator has signed, in each covered range:
    /// raw ledgers are verified and read from the newest on, until all validators are found; with `enough`,
    /// at most so many ledgers of a range once it is attested, because older signatures change nothing then.
    /// `progress` is called after each ledger and at the end, and may end the search, which then
    /// returns
    /// `None`.
    ///
    /// # Errors
    /// When a stored raw ledger is not what the network agreed on; errors of
    /// the database.
    pub fn find_signatures(
        &self,
        validators: &Validators,
        policy: Policy,
        enough: Option<u32>,
        mut progress: impl FnMut(&SignatureSearch) -> ControlFlow<()>,
    ) -> Result<Option<FoundSignatures>, StoreError> {
        let keys = validators.organisations().iter().flat_map(|it| it.validators.iter().copied());
        let keys: BTreeSet<NodeId> = keys.collect();
        let ranges: Vec<LedgerRange> =
            self.coverage.read().ranges().map(|range| range.ledgers).collect();
        let removed = self.removed.read().raw_ledgers.clone();
        let raw_of = |range: &LedgerRange| {
            let mut raw = LedgerSet::from(*range);
            raw.remove_all(&removed);
            raw
        };
        let of = ranges.iter().map(|range| raw_of(range).ledgers()).sum();
        let mut search = SignatureSearch { of, ..SignatureSearch::default() };
        let mut signatures = Vec::new();
        for range in ranges.iter().rev() {
            let raw = raw_of(range);
            let mut ledgers = newest_first(&raw);
            let (mut left, mut signed, mut read) = (keys.clone(), Signed::default(), 0);
            let is_enough = |read: u32, signed: &Signed| {
                enough.is_some_and(|enough| read >= enough)
                    && validators.attested(*range, signed).is_ok()
            };
            while !left.is_empty()
                && !is_enough(read, &signed)
                && let Some(ledger) = ledgers.next()
            {
                if let Some(signer) = self.signer_of(ledger, policy)?.filter(|it| left.remove(it)) {
                    signatures.push((ledger, signer));
                    signed.add(signer, ledger);
                }
                read += 1;
                search.read += 1;
                if progress(&search).is_break() {
                    return Ok(None);
                }
            }
            if !left.is_empty() {
                search.without_raw.insert_all(&removed.within(*range));
            }
        }
        search.of = search.read;
        let found = FoundSignatures { keys, signatures };
        Ok(progress(&search).is_continue().then_some(found))
    }

    /// Verifies a stored raw ledger and returns its signer; `None` when it is not stored.
    fn signer_of(&self, ledger: LedgerSeq, policy: Policy) -> Result<Option<NodeId>, StoreError> {
        let Some(xdr) = self.raw_ledger(ledger)? else { return Ok(None) };
        let wrong = |reason: String| {
            StoreError::Other(format!(
                "the stored raw form of ledger {ledger} cannot be used: {reason}"
            ))
        };
        let network = self.network.id();
        let view = decode(&xdr, network).map_err(|error| wrong(error.to_string()))?;
        let verified = verify(&view, network, policy).map_err(|error| wrong(error.to_string()))?;
        Ok(verified.signer)
    }

    /// Records what [`Self::find_signatures`] has found, and forgets what others than the trusted
    /// validators have signed. What is recorded of a trusted validator holds on although its ledger
    /// is no longer stored in raw form. Must not be called by a thread of low priority.
    pub fn record_signatures(&self, found: &FoundSignatures) -> Result<(), StoreError> {
        self.record(found, &Marks::default(), |key, _| found.keys.contains(key))
    }

    /// Does the same for a store that was restored from a backup, whose signatures are only claims: they
    /// are forgotten. Ledgers whose raw form is not stored get a mark, and the claims about them stay.
    pub fn record_restored(&self, found: &FoundSignatures) -> Result<(), StoreError> {
        let mut from_backup = self.coverage.read().ledgers();
        let mut raw = from_backup.clone();
        raw.remove_all(&self.removed.read().raw_ledgers);
        from_backup.remove_all(&raw);
        let marks = Marks { from_backup, ..Marks::default() };
        self.record(found, &marks, |_, ledger| marks.from_backup.contains(ledger))
    }

    /// Records marks and signatures, and forgets the signatures for which `is_kept` returns false.
    fn record(
        &self,
        found: &FoundSignatures,
        added: &Marks,
        is_kept: impl Fn(&NodeId, LedgerSeq) -> bool,
    ) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        self.reload_if_in_doubt(&mut writer)?;
        let mut coverage = self.coverage.read().clone();
        coverage.retain_signatures(is_kept);
        for (ledger, signer) in &found.signatures {
            coverage.sign(*ledger, *signer);
        }
        let mut batch = self.database.batch();
        for range in coverage.ranges() {
            batch.put(Family::Ranges, &LedgerKey(range.ledgers.first), range.encode())?;
        }
        let marks = self.marks_with(added, &mut batch)?;
        let (last, next_event) = (last_ingested(&coverage), coverage.next_event());
        batch.set_stored(BatchEnds { last, next_event });
        let change = self.generations.change();
        if let Err(error) = self.database.write_synced(batch) {
            drop(change);
            self.mark_in_doubt(&mut writer);
            return Err(error);
        }
        writer.coverage = None;
        let last = coverage.last_event();
        *self.coverage.write() = coverage;
        if let Some(marks) = marks {
            *self.marks.write() = marks;
        }
        drop((change, writer));
        if self.durable_events.advance_to(last) {
            self.notify_listeners();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use orrery_ledger::validators::Organisation;
    use orrery_sandbox::network::Sandbox;
    use orrery_testkit::sandbox::local;

    use super::*;
    use crate::ingest::commit::{Committed, Durability};
    use crate::ingest::prepare::IndexOptions;
    use crate::sample_ledgers::{chain, commit, everything, store_of};

    /// Seed of the network.
    const SEED: u64 = 6;

    fn trusting(keys: &[NodeId]) -> Validators {
        let organisation =
            |key: &NodeId| Organisation { name: key.to_string(), validators: vec![*key] };
        Validators::new(keys.iter().map(organisation).collect(), 1).unwrap()
    }

    /// Returns the number of ledgers that were read.
    fn recompute(store: &Store, validators: &Validators) -> u64 {
        let mut last = SignatureSearch::default();
        let progress = |search: &SignatureSearch| {
            last = search.clone();
            ControlFlow::Continue(())
        };
        let found = store.find_signatures(validators, Policy::default(), None, progress).unwrap();
        store.record_signatures(&found.unwrap()).unwrap();
        assert_eq!(last.read, last.of);
        last.read
    }

    #[test]
    fn signatures_of_stored_ledgers_are_found_and_those_of_others_forgotten() {
        let ledgers = chain(SEED, 0..=3, 30);
        let directory = tempfile::tempdir().unwrap();
        // Ledgers 2 to 11, and 20 to 31.
        let stored = ledgers[..10].iter().chain(&ledgers[18..]);
        let store = store_of(directory.path(), stored, &everything());
        let own = trusting(&[Sandbox::validator(SEED)]);
        let attested = |store: &Store, validators: &Validators| -> Vec<_> {
            let ranges = store.signed().into_iter();
            ranges.map(|(range, signed)| validators.attested(range, &signed).ok()).collect()
        };
        assert_eq!(attested(&store, &own), [None, None]);
        assert_eq!(recompute(&store, &own), 2, "the newest of each range is enough");
        let expected = [Some(LedgerSeq(10)), Some(LedgerSeq(30))];
        assert_eq!(attested(&store, &own), expected);
        drop(store);
        let store = Store::open(directory.path(), Some(&local())).unwrap();
        assert_eq!(attested(&store, &own), expected);

        let both = trusting(&[Sandbox::validator(SEED), NodeId([1; 32])]);
        let read = recompute(&store, &both);
        assert_eq!(read, 22, "a validator that never signed is looked for everywhere");
        assert_eq!(attested(&store, &both), expected);
        recompute(&store, &trusting(&[NodeId([1; 32])]));
        assert!(store.signed().iter().all(|(_, signed)| signed.iter().len() == 0));
    }

    /// What a backup claims is forgotten where raw ledgers can be read, and marked where they cannot.
    #[test]
    fn claims_of_a_backup_are_read_again() {
        let ledgers = chain(SEED, 0..=3, 30);
        let directory = tempfile::tempdir().unwrap();
        let (own, forger) = (Sandbox::validator(SEED), NodeId([9; 32]));
        let store = store_of(directory.path(), &ledgers[..10], &everything());
        for xdr in &ledgers[18..] {
            let options = IndexOptions { raw_ledgers: false, ..everything() };
            commit(&store, xdr, &options);
        }
        let claims = FoundSignatures {
            keys: [own, forger].into(),
            signatures: vec![(LedgerSeq(11), forger), (LedgerSeq(31), forger)],
        };
        store.record_signatures(&claims).unwrap();
        let validators = trusting(&[own, forger]);
        let progress = |_: &SignatureSearch| ControlFlow::Continue(());
        let found = store.find_signatures(&validators, Policy::default(), Some(3), progress);
        store.record_restored(&found.unwrap().unwrap()).unwrap();
        drop(store);
        let store = Store::open(directory.path(), Some(&local())).unwrap();
        let signed: Vec<Vec<_>> =
            store.signed().iter().map(|(_, signed)| signed.iter().collect()).collect();
        assert_eq!(signed, [vec![(own, LedgerSeq(11))], vec![(forger, LedgerSeq(31))]]);
        let from_backup = store.marks().from_backup;
        assert_eq!(from_backup.ranges(), [LedgerRange::new(20, 31)]);
    }

    /// Ledgers that were stored before signatures were recorded get theirs when they are delivered
    /// again.
    #[test]
    fn a_ledger_that_is_stored_again_records_its_signature() {
        let ledgers = chain(SEED, 0..=3, 6);
        let directory = tempfile::tempdir().unwrap();
        let store = store_of(directory.path(), &ledgers, &everything());
        let key = Sandbox::validator(SEED);
        let again = |at: usize| {
            let view = decode(&ledgers[at], local().id()).unwrap();
            let prepared = store.prepare(&view, None, &everything()).unwrap();
            let outcome = store.commit(prepared.signed_by(Some(key)), Durability::Synced);
            assert_eq!(outcome.unwrap(), Committed::AlreadyStored);
            store.signed()[0].1.newest(&key)
        };
        assert_eq!(again(2), Some(LedgerSeq(4)));
        assert_eq!(again(1), Some(LedgerSeq(4)));
        assert_eq!(again(5), Some(LedgerSeq(7)));
        drop(store);
        let store = Store::open(directory.path(), Some(&local())).unwrap();
        let (newest, signed) = store.newest_signed().unwrap();
        assert_eq!(trusting(&[key]).attested(newest, &signed), Ok(LedgerSeq(6)));
    }
}
