//! Which ledgers are stored, and in which order they came.
//!
//! *Ranges* say what is covered: ascending, never touching. *Runs* say in which order ledgers were
//! ingested: within a run both sequence and event id ascend, so a range of ledgers is one range of
//! ids per run.

use std::collections::BTreeMap;

use super::bytes::{Malformed, Reader, put_varint};
use crate::domain::{EventId, LedgerRange, LedgerSeq};

/// Ledgers ingested one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// Id of the first event, or the next to be given out when there is none.
    pub first_event: EventId,
    /// Id after that of the last event.
    pub end_event: EventId,
}

impl Run {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20);
        out.extend_from_slice(&self.ledgers.first.0.to_be_bytes());
        out.extend_from_slice(&self.ledgers.last.0.to_be_bytes());
        put_varint(&mut out, self.first_event.0);
        put_varint(&mut out, self.end_event.0);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let ledgers = LedgerRange::new(reader.u32()?, reader.u32()?);
        let first_event = EventId(reader.varint()?);
        let end_event = EventId(reader.varint()?);
        reader.end()?;
        Ok(Self { ledgers, first_event, end_event })
    }
}

/// Ranges and runs, as kept in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Coverage {
    /// First ledger → last ledger.
    ranges: BTreeMap<LedgerSeq, LedgerSeq>,
    runs: Vec<Run>,
}

/// What one more ledger changes in the families `ranges` and `runs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CoverageChange {
    /// The range that the ledger now belongs to.
    pub range: LedgerRange,
    /// First ledger of a range that was merged into it.
    pub merged: Option<LedgerSeq>,
    /// Number and new state of the run that the ledger now belongs to.
    pub run: (u32, Run),
}

impl Coverage {
    pub(super) fn new(ranges: BTreeMap<LedgerSeq, LedgerSeq>, runs: Vec<Run>) -> Self {
        Self { ranges, runs }
    }

    /// Covered ranges in ascending order.
    pub(super) fn ranges(&self) -> Vec<LedgerRange> {
        self.ranges.iter().map(|(first, last)| LedgerRange::new(*first, *last)).collect()
    }

    /// Newest covered ledger.
    pub(super) fn latest(&self) -> Option<LedgerSeq> {
        self.ranges.last_key_value().map(|(_, last)| *last)
    }

    /// Runs that hold ledgers of a range, in the order of ingestion.
    pub(super) fn runs_within(&self, range: LedgerRange) -> Vec<Run> {
        let overlaps =
            |run: &&Run| run.ledgers.first <= range.last && range.first <= run.ledgers.last;
        if range.is_empty() {
            Vec::new()
        } else {
            self.runs.iter().filter(overlaps).copied().collect()
        }
    }

    /// The range that holds a ledger.
    pub(super) fn range_of(&self, sequence: LedgerSeq) -> Option<LedgerRange> {
        let (first, last) = self.ranges.range(..=sequence).next_back()?;
        let range = LedgerRange::new(*first, *last);
        range.contains(sequence).then_some(range)
    }

    /// Id of the next event.
    pub(super) fn next_event(&self) -> EventId {
        self.runs.last().map_or(EventId(1), |run| run.end_event)
    }

    /// What storing a ledger with this many events changes. The ledger must not be covered yet.
    pub(super) fn change(&self, sequence: LedgerSeq, events: u64) -> CoverageChange {
        let before = sequence.previous().and_then(|previous| self.range_of(previous));
        let after = sequence.next().and_then(|next| self.range_of(next));
        let range = LedgerRange::new(
            before.map_or(sequence, |range| range.first),
            after.map_or(sequence, |range| range.last),
        );
        let first_event = self.next_event();
        let end_event = EventId(first_event.0 + events);
        let continued = self.runs.last().filter(|run| run.ledgers.last.next() == Some(sequence));
        let run = match continued {
            Some(run) => {
                let ledgers = LedgerRange::new(run.ledgers.first, sequence);
                (self.runs.len() as u32 - 1, Run { ledgers, end_event, ..*run })
            }
            None => {
                let ledgers = LedgerRange::new(sequence, sequence);
                (self.runs.len() as u32, Run { ledgers, first_event, end_event })
            }
        };
        CoverageChange { range, merged: after.map(|range| range.first), run }
    }

    /// Takes over what [`Self::change`] said, once it is stored.
    pub(super) fn apply(&mut self, change: &CoverageChange) {
        if let Some(first) = change.merged {
            self.ranges.remove(&first);
        }
        self.ranges.insert(change.range.first, change.range.last);
        let (number, run) = change.run;
        match self.runs.get_mut(number as usize) {
            Some(slot) => *slot = run,
            None => self.runs.push(run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    /// Any order of ingestion gives the ranges of the plain set, and runs that hold every ledger
    /// once, with ascending ids.
    #[test]
    fn agrees_with_a_plain_set() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        for _ in 0..200 {
            let mut order: Vec<u32> = (1..40).filter(|_| rng.random_bool(0.8)).collect();
            if rng.random_bool(0.7) {
                order.shuffle(&mut rng);
            }
            let mut coverage = Coverage::default();
            let mut ids = BTreeMap::new();
            for &sequence in &order {
                let events = rng.random_range(0..3u64);
                ids.insert(sequence, (coverage.next_event().0, events));
                let change = coverage.change(LedgerSeq(sequence), events);
                assert_eq!(Run::decode(&change.run.1.encode()), Ok(change.run.1));
                coverage.apply(&change);
            }
            let covered: Vec<u32> =
                coverage.ranges().iter().flat_map(|range| range.first.0..=range.last.0).collect();
            let expected: Vec<u32> = ids.keys().copied().collect();
            assert_eq!(covered, expected);
            assert!(coverage.ranges().windows(2).all(|w| w[0].last.0 + 1 < w[1].first.0));
            let in_runs: Vec<u32> = coverage
                .runs_within(LedgerRange::new(0, 100))
                .iter()
                .flat_map(|run| run.ledgers.first.0..=run.ledgers.last.0)
                .collect();
            assert_eq!(in_runs, order);
        }
    }
}
