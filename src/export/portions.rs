//! Selects the ledgers that a continuous export takes now. Performs no I/O; the current time is a
//! parameter.
//!
//! A portion is taken once no more of its ledgers are expected: its last ledger is stored, or the
//! ledgers that follow the stored ones are already exported or were removed. In front of a gap that
//! has been there for [`GAP_SETTLE_TIME`], an incomplete portion is taken; when the gap is filled
//! later, the remaining ledgers follow. The newest ledgers wait until their portion is complete.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};

/// Time for which the end of a stored range before a gap has to stay unchanged until the gap is no
/// longer waited for. A backfill that fills a gap adds ledgers every few seconds.
const GAP_SETTLE_TIME: Duration = Duration::from_secs(600);

/// Splits a range into portions that end before multiples of `portion`.
pub fn portions(range: LedgerRange, portion: u32) -> impl Iterator<Item = LedgerRange> {
    let mut next = Some(range.first);
    std::iter::from_fn(move || {
        let first = next.filter(|first| *first <= range.last)?;
        let last = portion_end(first, portion).min(range.last);
        next = last.next();
        Some(LedgerRange { first, last })
    })
}

/// Returns the last ledger of the portion that `ledger` belongs to.
fn portion_end(ledger: LedgerSeq, portion: u32) -> LedgerSeq {
    let portion = portion.max(1);
    LedgerSeq((ledger.0 - ledger.0 % portion).saturating_add(portion - 1))
}

/// Last ledgers of the stored ranges, each with the time since which it has been the end of a
/// range.
#[derive(Debug, Default)]
pub struct RangeEnds(BTreeMap<LedgerSeq, Instant>);

impl RangeEnds {
    /// Updates the range ends to those of `stored`; an end that was there before keeps its time.
    pub fn update(&mut self, stored: &[LedgerRange], now: Instant) {
        let ends = stored.iter().map(|range| range.last);
        self.0 = ends.map(|end| (end, self.0.get(&end).copied().unwrap_or(now))).collect();
    }

    /// Returns whether the range that ends at `end` has been unchanged for [`GAP_SETTLE_TIME`].
    fn has_settled(&self, end: LedgerSeq, now: Instant) -> bool {
        let since = self.0.get(&end);
        since.is_some_and(|since| now.saturating_duration_since(*since) >= GAP_SETTLE_TIME)
    }
}

/// Returns the ledgers of the `stored` ranges, which have to ascend, that are to be exported now.
/// Leaves out the `settled` ledgers, which are already exported or were removed.
pub fn due(
    stored: &[LedgerRange],
    settled: &LedgerSet,
    portion: u32,
    ends: &RangeEnds,
    now: Instant,
) -> Vec<LedgerRange> {
    let newest = stored.last().map(|range| range.last);
    let mut due = Vec::new();
    for range in stored {
        let awaits_more =
            |last| last == range.last && (Some(last) == newest || !ends.has_settled(last, now));
        let mut left = LedgerSet::from(*range);
        left.remove_all(settled);
        let pieces = left.ranges().iter().flat_map(|left| portions(*left, portion));
        due.extend(pieces.filter(|piece| {
            piece.last == portion_end(piece.last, portion) || !awaits_more(piece.last)
        }));
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(u32, u32)]) -> Vec<LedgerRange> {
        list.iter().map(|(first, last)| LedgerRange::new(*first, *last)).collect()
    }

    #[test]
    fn portions_end_at_multiples_of_their_size() {
        let cut = |first, last, portion| -> Vec<_> {
            portions(LedgerRange::new(first, last), portion).collect()
        };
        assert_eq!(cut(7, 31, 10), ranges(&[(7, 9), (10, 19), (20, 29), (30, 31)]));
        assert_eq!(cut(7, 8, 1), ranges(&[(7, 7), (8, 8)]));
        let last = u32::MAX;
        assert_eq!(cut(last - 1, last, 4), ranges(&[(last - 1, last)]));
        assert_eq!(cut(5, 4, 10), []);
    }

    #[test]
    fn complete_portions_are_taken_and_incomplete_ones_wait() {
        let begun = Instant::now();
        let soon = begun + GAP_SETTLE_TIME / 2;
        let late = begun + GAP_SETTLE_TIME;
        for (stored, settled, now, expected) in [
            // The newest range waits for its portion, however long its end is unchanged.
            (&[(15, 27)][..], &[][..], late, &[(15, 19)][..]),
            (&[(15, 29)], &[], soon, &[(15, 19), (20, 29)]),
            (&[(15, 29)], &[(15, 19)], soon, &[(20, 29)]),
            (&[(15, 29)], &[(0, 29)], soon, &[]),
            // Ledgers that were stored before the exported ones.
            (&[(10, 29)], &[(15, 29)], soon, &[(10, 14)]),
            // A gap is waited for at first, and no longer after GAP_SETTLE_TIME.
            (&[(2, 14), (18, 25)], &[], soon, &[(2, 9), (18, 19)]),
            (&[(2, 14), (18, 25)], &[], late, &[(2, 9), (10, 14), (18, 19)]),
            (&[(2, 25)], &[(2, 14), (18, 19)], soon, &[(15, 17)]),
            // Removed ledgers are not waited for.
            (&[(2, 25)], &[(0, 6)], soon, &[(7, 9), (10, 19)]),
            (&[], &[], late, &[]),
        ] {
            let stored = ranges(stored);
            let settled: LedgerSet = ranges(settled).into_iter().collect();
            let mut ends = RangeEnds::default();
            ends.update(&stored, begun);
            assert_eq!(due(&stored, &settled, 10, &ends, now), ranges(expected), "{stored:?}");
        }
    }

    #[test]
    fn a_range_end_that_moves_has_not_settled() {
        let begun = Instant::now();
        let mut ends = RangeEnds::default();
        ends.update(&ranges(&[(2, 14), (20, 29)]), begun);
        let late = begun + GAP_SETTLE_TIME;
        ends.update(&ranges(&[(2, 15), (20, 29)]), late);
        assert!(!ends.has_settled(LedgerSeq(15), late) && !ends.has_settled(LedgerSeq(14), late));
        assert!(ends.has_settled(LedgerSeq(29), late));
    }
}
