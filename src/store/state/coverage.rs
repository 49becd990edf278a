//! Tracks which ledgers are stored and in which order they were ingested.
//!
//! *Ranges* are the covered ledgers: ascending, never adjacent, each with the sum of its ledgers'
//! digests and with what trusted validators have signed in it. *Runs* record the order in which
//! ledgers were ingested: within one run, a range of ledgers is one range of event ids.

use std::collections::BTreeMap;

use orrery_ledger::domain::{
    Digest, Direction, EventId, LedgerRange, LedgerSeq, LedgerSet, NodeId,
};
use orrery_ledger::validators::Signed;

use super::contract_filters::{ContractFilter, ContractFilters};
use super::ingest_runs::{FedLedger, IngestRun, IngestRuns, Span};
use super::unused_ids;
use crate::db::database::Database;
use crate::encoding::bytes::{Malformed, Reader, put_varint};
use crate::encoding::columns::{Family, Key, LedgerKey, RunKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::indexed_as::Settings;

/// Aggregates over several ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    /// Number of events that were stored, including pruned ones.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: Digest,
    /// All settings under which the ledgers were indexed.
    pub settings: Settings,
}

impl Sums {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            digest: self.digest + other.digest,
            settings: self.settings.union(other.settings),
        }
    }
}

/// Consecutive ledgers that are stored; the ledgers before and after them are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CoveredRange {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// Aggregates over all its ledgers.
    pub sums: Sums,
    /// The newest ledger of the range that each trusted validator has signed.
    pub signed: Signed,
}

impl CoveredRange {
    /// Encodes the value of a row in `ranges`; its key is the first ledger. What validators have
    /// signed comes last, 36 bytes each, in the order of their keys: the row ends before it if that
    /// is nothing.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let signed = self.signed.iter();
        let mut out = Vec::with_capacity(48 + 36 * signed.len());
        out.extend_from_slice(&self.ledgers.last.0.to_be_bytes());
        put_varint(&mut out, self.sums.events);
        out.extend_from_slice(&self.sums.digest.to_bytes());
        out.push(self.sums.settings.0);
        for (validator, ledger) in signed {
            out.extend_from_slice(validator.as_bytes());
            out.extend_from_slice(&ledger.0.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(first: LedgerSeq, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let ledgers = LedgerRange::new(first, reader.u32()?);
        let events = reader.varint()?;
        let digest = Digest::from(*reader.array()?);
        let settings = Settings(reader.u8()?);
        let (mut signed, mut before) = (Signed::default(), None);
        while !reader.is_at_end() {
            let (validator, ledger) = (NodeId(*reader.array()?), LedgerSeq(reader.u32()?));
            if before.replace(validator) >= Some(validator) || !ledgers.contains(ledger) {
                return Err(Malformed);
            }
            signed.add(validator, ledger);
        }
        if ledgers.is_empty() {
            return Err(Malformed);
        }
        Ok(Self { ledgers, sums: Sums { events, digest, settings }, signed })
    }
}

/// Ranges and runs in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Coverage {
    /// By first ledger.
    ranges: BTreeMap<LedgerSeq, CoveredRange>,
    runs: IngestRuns,
    /// Ids before this one may have been given out; see [`super::unused_ids`].
    unused_from: EventId,
    /// Contracts to which ledgers were restricted.
    pub filters: ContractFilters,
}

/// Change to the families `ranges` and `runs` for one more ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CoverageChange {
    /// The range that the ledger now belongs to.
    pub range: CoveredRange,
    /// First ledger of the following range, if it was merged into this one.
    pub merged: Option<LedgerSeq>,
    /// Number and new state of the run that the ledger now belongs to.
    pub run: (u32, IngestRun),
}

/// Changes to the coverage for one more ledger.
pub(crate) struct Added {
    pub change: CoverageChange,
    /// Contracts to which the ledger was restricted, if they differ from those of the ledger
    /// before.
    pub filter: Option<ContractFilter>,
}

impl Coverage {
    /// Reads the stored ranges, runs and filters.
    pub(crate) fn load(database: &Database) -> Result<Self, StoreError> {
        let mut ranges = Vec::new();
        database.scan(Family::Ranges, |key, value| {
            let first = LedgerKey::decode(key).ok_or(Malformed);
            let range = first.and_then(|first| CoveredRange::decode(first.0, value));
            ranges.push(range.map_err(corrupt(Family::Ranges, key))?);
            Ok(())
        })?;
        let mut runs = IngestRuns::default();
        database.scan(Family::Runs, |key, value| {
            let number = RunKey::decode(key).filter(|key| key.0 as usize == runs.len());
            number.ok_or(Malformed).map_err(corrupt(Family::Runs, key))?;
            runs.push(IngestRun::decode(value).map_err(corrupt(Family::Runs, key))?);
            Ok(())
        })?;
        let unused_from = unused_ids::load(database)?;
        Ok(Self { unused_from, ..Self::new(ranges, runs, ContractFilters::load(database)?) })
    }

    pub(crate) fn new(
        ranges: Vec<CoveredRange>,
        runs: IngestRuns,
        filters: ContractFilters,
    ) -> Self {
        let ranges = ranges.into_iter().map(|range| (range.ledgers.first, range)).collect();
        Self { ranges, runs, unused_from: EventId(1), filters }
    }

    /// Covered ranges in ascending order.
    pub(crate) fn ranges(&self) -> impl DoubleEndedIterator<Item = &CoveredRange> {
        self.ranges.values()
    }

    /// All runs in the order of ingestion.
    pub(crate) fn runs(&self) -> &[IngestRun] {
        self.runs.list()
    }

    /// Splits a range of ledgers by run; the parts come in chain order. Scans all runs.
    pub(crate) fn pieces(&self, ledgers: LedgerRange) -> Vec<LedgerRange> {
        let within = |run: &IngestRun| LedgerRange {
            first: run.ledgers.first.max(ledgers.first),
            last: run.ledgers.last.min(ledgers.last),
        };
        let wanted = |piece: &LedgerRange| !piece.is_empty();
        let mut pieces: Vec<_> = self.runs().iter().map(within).filter(wanted).collect();
        pieces.sort_unstable_by_key(|piece| piece.first);
        pieces
    }

    /// Number of ingested ledgers, which is also the position of the last one in ingestion order.
    pub(crate) fn last_place(&self) -> u64 {
        self.runs.ledgers()
    }

    /// Returns the ledgers after a position in ingestion order.
    pub(crate) fn fed_after(&self, place: u64) -> impl Iterator<Item = FedLedger> {
        self.runs.after(place)
    }

    /// Returns the same ledgers as [`Self::fed_after`] as ranges.
    pub(crate) fn ranges_after(&self, place: u64) -> impl Iterator<Item = LedgerRange> {
        self.runs.ranges_after(place)
    }

    /// Returns the 1-based position of a ledger in ingestion order, if it is stored. Scans all
    /// runs.
    pub(crate) fn place_of(&self, ledger: LedgerSeq) -> Option<u64> {
        self.runs.place_of(ledger)
    }

    /// Newest covered ledger.
    pub(crate) fn latest(&self) -> Option<LedgerSeq> {
        self.ranges.last_key_value().map(|(_, range)| range.ledgers.last)
    }

    /// Returns whether every covered ledger is in this range.
    pub(crate) fn is_within(&self, range: LedgerRange) -> bool {
        let first = self.ranges.first_key_value().map(|(first, _)| *first);
        first.is_none_or(|first| range.first <= first)
            && self.latest().is_none_or(|latest| latest <= range.last)
    }

    /// Returns runs with ledgers of the range `wanted`, beginning with the one that holds event
    /// `id` or is the next in `direction`.
    pub(crate) fn span(&self, wanted: LedgerRange, id: u64, direction: Direction) -> Option<Span> {
        if wanted.is_empty() { None } else { self.runs.span(wanted, id, direction) }
    }

    /// Returns the range that contains a ledger.
    pub(crate) fn range_of(&self, sequence: LedgerSeq) -> Option<&CoveredRange> {
        let (_, range) = self.ranges.range(..=sequence).next_back()?;
        range.ledgers.contains(sequence).then_some(range)
    }

    /// Returns the covered ledgers.
    pub(crate) fn ledgers(&self) -> LedgerSet {
        let mut covered = LedgerSet::default();
        self.ranges.values().for_each(|range| covered.insert(range.ledgers));
        covered
    }

    /// Id that the next event will get.
    pub(crate) fn next_event(&self) -> EventId {
        self.runs.last().map_or(EventId(1), |run| run.end_event).max(self.unused_from)
    }

    /// Highest id that an event has or may have had; 0 before the first.
    pub(crate) fn last_event(&self) -> EventId {
        EventId(self.next_event().0.saturating_sub(1))
    }

    /// Returns the change that storing a ledger causes. The ledger must not be covered yet;
    /// `stored` describes what is stored of it, and `signer` is the trusted validator that signed
    /// it.
    pub(crate) fn change(
        &self,
        sequence: LedgerSeq,
        stored: Sums,
        signer: Option<NodeId>,
    ) -> CoverageChange {
        let before = sequence.previous().and_then(|previous| self.range_of(previous));
        let after = sequence.next().and_then(|next| self.range_of(next));
        let ledgers = LedgerRange::new(
            before.map_or(sequence, |range| range.ledgers.first),
            after.map_or(sequence, |range| range.ledgers.last),
        );
        let (mut sums, mut signed) = (stored, Signed::default());
        for neighbour in [before, after].into_iter().flatten() {
            sums = sums.and(neighbour.sums);
            signed.merge(&neighbour.signed);
        }
        if let Some(signer) = signer {
            signed.add(signer, sequence);
        }
        let first_event = self.next_event();
        let end_event = EventId(first_event.0 + stored.events);
        let continued = self.runs.last().filter(|run| {
            run.ledgers.last.next() == Some(sequence) && run.end_event == first_event
        });
        let run = match continued {
            Some(run) => {
                let ledgers = LedgerRange::new(run.ledgers.first, sequence);
                (self.runs.len() as u32 - 1, IngestRun { ledgers, end_event, ..*run })
            }
            None => {
                let ledgers = LedgerRange::new(sequence, sequence);
                (self.runs.len() as u32, IngestRun { ledgers, first_event, end_event })
            }
        };
        let merged = after.map(|range| range.ledgers.first);
        CoverageChange { range: CoveredRange { ledgers, sums, signed }, merged, run }
    }

    /// Forgets what validators have signed for which `is_kept` returns false.
    pub(crate) fn retain_signatures(&mut self, is_kept: impl Fn(&NodeId, LedgerSeq) -> bool) {
        for range in self.ranges.values_mut() {
            range.signed = range.signed.only(&is_kept);
        }
    }

    /// Records that a trusted validator has signed a covered ledger. Returns the range of the
    /// ledger if that was not recorded, and the validator has signed no newer ledger of the range.
    pub(crate) fn sign(&mut self, ledger: LedgerSeq, signer: NodeId) -> Option<&CoveredRange> {
        let (_, range) = self.ranges.range_mut(..=ledger).next_back()?;
        let is_new = range.signed.newest(&signer).is_none_or(|newest| newest < ledger);
        if !range.ledgers.contains(ledger) || !is_new {
            return None;
        }
        range.signed.add(signer, ledger);
        Some(range)
    }

    /// Applies the changes for one more ledger.
    pub(crate) fn add(&mut self, added: &Added) {
        self.apply(&added.change);
        if let Some(filter) = &added.filter {
            self.filters.push(self.last_place(), filter.clone());
        }
    }

    /// Applies the result of [`Self::change`].
    pub(crate) fn apply(&mut self, change: &CoverageChange) {
        if let Some(first) = change.merged {
            self.ranges.remove(&first);
        }
        self.ranges.insert(change.range.ledgers.first, change.range.clone());
        let (number, run) = change.run;
        self.runs.set(number as usize, run);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    /// For any ingestion order, ranges match a plain set of ledgers, the sums of its ledgers and
    /// their signatures, of which some are recorded later, and runs contain every ledger once, with
    /// ascending event ids.
    #[test]
    fn coverage_agrees_with_a_plain_set() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for _ in 0..200 {
            let mut order: Vec<u32> = (1..40).filter(|_| rng.random_bool(0.8)).collect();
            if rng.random_bool(0.7) {
                order.shuffle(&mut rng);
            }
            let mut coverage = Coverage::default();
            let mut stored = BTreeMap::new();
            let mut signatures = BTreeSet::new();
            for &sequence in &order {
                let sums = Sums {
                    events: rng.random_range(0..3u64),
                    digest: Digest::from(rng.random::<[u8; 32]>()),
                    settings: Settings(1 << rng.random_range(0..8)),
                };
                stored.insert(sequence, sums);
                let signer = rng.random_bool(0.7).then(|| NodeId([rng.random_range(1..6); 32]));
                signatures.extend(signer.map(|signer| (sequence, signer)));
                let change = coverage.change(LedgerSeq(sequence), sums, signer);
                assert_eq!(IngestRun::decode(&change.run.1.encode()), Ok(change.run.1));
                let first = change.range.ledgers.first;
                let decoded = CoveredRange::decode(first, &change.range.encode());
                assert_eq!(decoded.as_ref(), Ok(&change.range));
                coverage.apply(&change);
                // A signature of a ledger that is stored already, or is not stored yet.
                let ledger = order[rng.random_range(0..order.len())];
                let signer = NodeId([rng.random_range(1..6); 32]);
                let is_signed = coverage.sign(LedgerSeq(ledger), signer).is_some();
                assert!(!is_signed || stored.contains_key(&ledger));
                signatures.extend(stored.contains_key(&ledger).then_some((ledger, signer)));
            }
            let ranges: Vec<CoveredRange> = coverage.ranges().cloned().collect();
            assert!(ranges.windows(2).all(|w| w[0].ledgers.last.0 + 1 < w[1].ledgers.first.0));
            let covered = |range: &CoveredRange| range.ledgers.first.0..=range.ledgers.last.0;
            assert!(ranges.iter().flat_map(covered).eq(stored.keys().copied()));
            for range in &ranges {
                let of_range = stored.range(covered(range)).map(|(_, sums)| *sums);
                assert_eq!(of_range.fold(Sums::default(), Sums::and), range.sums);
                let within = signatures.iter().filter(|(at, _)| covered(range).contains(at));
                // Ascending, so that the newest ledger of a validator stays.
                let newest: BTreeMap<_, _> =
                    within.map(|(ledger, signer)| (*signer, LedgerSeq(*ledger))).collect();
                assert!(range.signed.iter().eq(newest));
            }
            let in_runs: Vec<u32> = coverage
                .runs()
                .iter()
                .flat_map(|run| run.ledgers.first.0..=run.ledgers.last.0)
                .collect();
            assert_eq!(in_runs, order);
            let ids = coverage.runs().windows(2).all(|w| w[0].end_event == w[1].first_event);
            assert!(ids, "ids follow one another");
        }
    }
}
