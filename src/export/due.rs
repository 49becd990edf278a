//! Which ledgers a continuous export takes now. Pure.
//!
//! A portion is taken when nothing more of it is to come: its last ledger is stored, or what follows what is stored of
//! it is exported already or gone. Before a gap that has been there for a while, what is there is taken; when the gap
//! is filled, the rest follows. What is newest waits until its portion is whole.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::domain::{LedgerRange, LedgerSeq, LedgerSet};

/// How long the end of stored ledgers before a gap stays where it is until nothing more is awaited there: whoever fills
/// in ledgers adds some every few seconds.
const SETTLES_WITHIN: Duration = Duration::from_secs(600);

/// The portions of a range, which end at multiples of `portion`.
pub fn portions(range: LedgerRange, portion: u32) -> impl Iterator<Item = LedgerRange> {
    let mut next = Some(range.first);
    std::iter::from_fn(move || {
        let first = next.filter(|first| *first <= range.last)?;
        let last = portion_end(first, portion).min(range.last);
        next = last.next();
        Some(LedgerRange { first, last })
    })
}

/// The last ledger of the portion that a ledger belongs to.
fn portion_end(ledger: LedgerSeq, portion: u32) -> LedgerSeq {
    let portion = portion.max(1);
    LedgerSeq((ledger.0 - ledger.0 % portion).saturating_add(portion - 1))
}

/// Since when stored ledgers end where they do, in front of gaps.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<LedgerSeq, Instant>);

impl Ends {
    /// Takes note of the ranges that are stored now.
    pub fn are_now(&mut self, stored: &[LedgerRange], now: Instant) {
        let ends = stored.iter().map(|range| range.last);
        self.0 = ends.map(|end| (end, self.0.get(&end).copied().unwrap_or(now))).collect();
    }

    /// Whether nothing more is awaited after this ledger.
    fn has_settled(&self, end: LedgerSeq, now: Instant) -> bool {
        let since = self.0.get(&end);
        since.is_some_and(|since| now.saturating_duration_since(*since) >= SETTLES_WITHIN)
    }
}

/// Those ledgers of the stored ranges, which ascend, that are to be taken now: not those that are `settled`, which are
/// exported or gone.
pub fn due(
    stored: &[LedgerRange],
    settled: &LedgerSet,
    portion: u32,
    ends: &Ends,
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
    fn portions_end_at_multiples() {
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
    fn takes_what_is_complete_and_waits_for_the_rest() {
        let begun = Instant::now();
        let soon = begun + SETTLES_WITHIN / 2;
        let late = begun + SETTLES_WITHIN;
        for (stored, settled, now, expected) in [
            // The newest waits for its portion, and never settles.
            (&[(15, 27)][..], &[][..], late, &[(15, 19)][..]),
            (&[(15, 29)], &[], soon, &[(15, 19), (20, 29)]),
            (&[(15, 29)], &[(15, 19)], soon, &[(20, 29)]),
            (&[(15, 29)], &[(0, 29)], soon, &[]),
            // Ledgers that came before those that are exported.
            (&[(10, 29)], &[(15, 29)], soon, &[(10, 14)]),
            // A gap may be filled, and after a while is not waited for.
            (&[(2, 14), (18, 25)], &[], soon, &[(2, 9), (18, 19)]),
            (&[(2, 14), (18, 25)], &[], late, &[(2, 9), (10, 14), (18, 19)]),
            (&[(2, 25)], &[(2, 14), (18, 19)], soon, &[(15, 17)]),
            // What is gone is not waited for either.
            (&[(2, 25)], &[(0, 6)], soon, &[(7, 9), (10, 19)]),
            (&[], &[], late, &[]),
        ] {
            let stored = ranges(stored);
            let settled: LedgerSet = ranges(settled).into_iter().collect();
            let mut ends = Ends::default();
            ends.are_now(&stored, begun);
            assert_eq!(due(&stored, &settled, 10, &ends, now), ranges(expected), "{stored:?}");
        }
    }

    #[test]
    fn an_end_that_moves_has_not_settled() {
        let begun = Instant::now();
        let mut ends = Ends::default();
        ends.are_now(&ranges(&[(2, 14), (20, 29)]), begun);
        let late = begun + SETTLES_WITHIN;
        ends.are_now(&ranges(&[(2, 15), (20, 29)]), late);
        assert!(!ends.has_settled(LedgerSeq(15), late) && !ends.has_settled(LedgerSeq(14), late));
        assert!(ends.has_settled(LedgerSeq(29), late));
    }
}
