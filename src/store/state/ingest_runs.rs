//! Order of ingestion: a list of runs of ledgers, and a search for the runs of a range of ledgers
//! that does not visit the others.
//!
//! A backfill while a live source is followed leaves two runs for every live ledger. So there are
//! levels of nodes above the list: a node holds, in ascending order, the ledgers of [`FAN_OUT`]
//! neighbours of the level below, and a walk skips all of them at once when none is wanted. Only
//! the last run ever grows; a node is built once all its runs are final.

use orrery_ledger::domain::{Direction, EventId, LedgerRange, LedgerSeq};

use crate::encoding::bytes::{Malformed, Reader, put_varint};

/// Number of runs or nodes under one node.
const FAN_OUT: usize = 32;
/// Maximum number of neighbouring runs joined into one span, after which the walk checks its
/// progress.
const MAX_JOINED_RUNS: usize = 64;

/// A ledger of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FedLedger {
    /// Its 1-based position in the order of ingestion.
    pub place: u64,
    /// The ledger.
    pub ledger: LedgerSeq,
    /// Whether it was newer than all ledgers stored before.
    pub arrival: Arrival,
}

/// How a ledger relates to those stored before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was newer than all stored ledgers.
    Live,
    /// A newer ledger was stored already.
    Backfilled,
}

/// Ledgers ingested one after the other: both sequence and event id ascend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IngestRun {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// Id of the first event; when there is none, the next id to be assigned.
    pub first_event: EventId,
    /// Id after that of the last event.
    pub end_event: EventId,
}

impl IngestRun {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20);
        out.extend_from_slice(&self.ledgers.first.0.to_be_bytes());
        out.extend_from_slice(&self.ledgers.last.0.to_be_bytes());
        put_varint(&mut out, self.first_event.0);
        put_varint(&mut out, self.end_event.0);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let ledgers = LedgerRange::new(reader.u32()?, reader.u32()?);
        let first_event = EventId(reader.varint()?);
        let end_event = EventId(reader.varint()?);
        reader.end()?;
        Ok(Self { ledgers, first_event, end_event })
    }

    fn has_events(&self) -> bool {
        self.first_event < self.end_event
    }
}

/// Consecutive runs with wanted ledgers: all ids from the first wanted ledger of `first` to the
/// last wanted one of `last` belong to wanted ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The run with the lowest ids.
    pub first: IngestRun,
    /// The run with the highest ids.
    pub last: IngestRun,
}

/// All runs in the order of ingestion.
#[derive(Debug, Clone, Default)]
pub(crate) struct IngestRuns {
    list: Vec<IngestRun>,
    /// For each run, what was ingested before it.
    before: Vec<IngestedBefore>,
    /// On level `l`, node `n` holds the ledgers of the runs that have events, among the
    /// `FAN_OUT^(l+1)` runs from number `n*FAN_OUT^(l+1)` on.
    levels: Vec<Vec<Box<[LedgerRange]>>>,
}

/// What was ingested before a run.
#[derive(Debug, Clone, Copy)]
struct IngestedBefore {
    /// Number of ledgers.
    ledgers: u64,
    /// The newest ledger; 0 when there is none.
    newest: LedgerSeq,
}

impl IngestRuns {
    /// Returns the number of ingested ledgers, which is the place of the last one.
    pub(crate) fn ledgers(&self) -> u64 {
        let last = self.before.last().zip(self.list.last());
        last.map_or(0, |(before, run)| before.ledgers + run.ledgers.len())
    }

    /// Returns the number of the run that holds the ledger after a place.
    fn run_after(&self, place: u64) -> usize {
        self.before.partition_point(|before| before.ledgers <= place).saturating_sub(1)
    }

    /// Returns the ledgers after a place, in the order of ingestion.
    pub(crate) fn after(&self, place: u64) -> impl Iterator<Item = FedLedger> {
        let runs = self.list.iter().zip(&self.before).skip(self.run_after(place));
        runs.flat_map(move |(run, before)| {
            let IngestedBefore { ledgers, newest } = *before;
            let first = u64::from(run.ledgers.first.0);
            // `first + offset` is at most the sequence of the run's last ledger, which fits into
            // `u32`.
            (place.saturating_sub(ledgers)..run.ledgers.len()).map(move |offset| {
                let ledger = LedgerSeq((first + offset) as u32);
                let arrival = if ledger > newest { Arrival::Live } else { Arrival::Backfilled };
                FedLedger { place: ledgers + offset + 1, ledger, arrival }
            })
        })
    }

    /// Returns the ledgers after a place as ranges, in the order of ingestion.
    pub(crate) fn ranges_after(&self, place: u64) -> impl Iterator<Item = LedgerRange> {
        let runs = self.list.iter().zip(&self.before).skip(self.run_after(place));
        let ranges = runs.map(move |(run, before)| {
            let seen = place.saturating_sub(before.ledgers).min(run.ledgers.len());
            let first = u64::from(run.ledgers.first.0) + seen;
            match u32::try_from(first) {
                Ok(first) => LedgerRange { first: LedgerSeq(first), last: run.ledgers.last },
                Err(_) => LedgerRange::new(1, 0),
            }
        });
        ranges.filter(|range| !range.is_empty())
    }

    /// Returns the place of a ledger, if it is stored. Searches all runs, newest first.
    pub(crate) fn place_of(&self, ledger: LedgerSeq) -> Option<u64> {
        let mut runs = self.list.iter().zip(&self.before).rev();
        let (run, before) = runs.find(|(run, _)| run.ledgers.contains(ledger))?;
        Some(before.ledgers + u64::from(ledger.0 - run.ledgers.first.0) + 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn last(&self) -> Option<&IngestRun> {
        self.list.last()
    }

    pub(crate) fn list(&self) -> &[IngestRun] {
        &self.list
    }

    /// Replaces the run with this number, or appends a run when there is none.
    pub(crate) fn set(&mut self, number: usize, run: IngestRun) {
        match self.list.get_mut(number) {
            Some(slot) => *slot = run,
            None => self.push(run),
        }
    }

    pub(crate) fn push(&mut self, run: IngestRun) {
        // The runs before this one are final.
        let mut below = self.list.len();
        let newest = self.before.last().map_or(LedgerSeq(0), |before| before.newest);
        let newest = self.list.last().map_or(newest, |last| newest.max(last.ledgers.last));
        self.before.push(IngestedBefore { ledgers: self.ledgers(), newest });
        self.list.push(run);
        for level in 0.. {
            if below == 0 || !below.is_multiple_of(FAN_OUT) {
                return;
            }
            let mut node: Vec<LedgerRange> = if level == 0 {
                let runs = self.list[below - FAN_OUT..below].iter();
                runs.filter(|run| run.has_events()).map(|run| run.ledgers).collect()
            } else {
                let nodes = self.levels[level - 1][below - FAN_OUT..below].iter();
                nodes.flat_map(|node| node.iter().copied()).collect()
            };
            node.sort_unstable_by_key(|ledgers| ledgers.first);
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(node.into());
            below /= FAN_OUT;
        }
    }

    /// Returns the runs with wanted ledgers that hold `id` or come next in this direction.
    pub(crate) fn span(&self, wanted: LedgerRange, id: u64, direction: Direction) -> Option<Span> {
        let start = match direction {
            Direction::OldestFirst => self.list.partition_point(|run| run.end_event.0 <= id),
            Direction::NewestFirst => {
                self.list.partition_point(|run| run.first_event.0 <= id).checked_sub(1)?
            }
        };
        let mut number = self.next(wanted, start, direction)?;
        let mut span = Span { first: self.list[number], last: self.list[number] };
        for _ in 1..MAX_JOINED_RUNS {
            let Some(following) =
                step(number, 1, direction).and_then(|at| self.next(wanted, at, direction))
            else {
                break;
            };
            let run = self.list[following];
            let (before, after) = match direction {
                Direction::OldestFirst => (&span.last, &run),
                Direction::NewestFirst => (&run, &span.first),
            };
            let joined = before.end_event == after.first_event
                && before.ledgers.last <= wanted.last
                && wanted.first <= after.ledgers.first;
            if !joined {
                break;
            }
            match direction {
                Direction::OldestFirst => span.last = run,
                Direction::NewestFirst => span.first = run,
            }
            number = following;
        }
        Some(span)
    }

    /// Returns the first run from `at` on in walking order that has events and wanted ledgers.
    fn next(&self, wanted: LedgerRange, mut at: usize, direction: Direction) -> Option<usize> {
        while at < self.list.len() {
            match self.skippable_runs(wanted, at, direction) {
                0 => return Some(at),
                count => at = step(at, count, direction)?,
            }
        }
        None
    }

    /// Returns the number of runs from `at` on in walking order that can be skipped; 0 when run
    /// `at` has wanted events.
    fn skippable_runs(&self, wanted: LedgerRange, at: usize, direction: Direction) -> usize {
        let run = &self.list[at];
        if run.has_events() && overlaps(&run.ledgers, wanted) {
            return 0;
        }
        let (mut count, mut size) = (1, FAN_OUT);
        for level in &self.levels {
            let edge = match direction {
                Direction::OldestFirst => at,
                Direction::NewestFirst => at + 1,
            };
            let node = if edge.is_multiple_of(size) { level.get(at / size) } else { None };
            if node.is_none_or(|node| any_overlaps(node, wanted)) {
                break;
            }
            (count, size) = (size, size * FAN_OUT);
        }
        count
    }
}

fn step(at: usize, count: usize, direction: Direction) -> Option<usize> {
    match direction {
        Direction::OldestFirst => Some(at + count),
        Direction::NewestFirst => at.checked_sub(count),
    }
}

fn overlaps(ledgers: &LedgerRange, wanted: LedgerRange) -> bool {
    ledgers.first <= wanted.last && wanted.first <= ledgers.last
}

/// Returns whether any of ascending, disjoint ranges overlaps `wanted`.
fn any_overlaps(node: &[LedgerRange], wanted: LedgerRange) -> bool {
    let at = node.partition_point(|ledgers| ledgers.last < wanted.first);
    node.get(at).is_some_and(|ledgers| overlaps(ledgers, wanted))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const DIRECTIONS: [Direction; 2] = [Direction::NewestFirst, Direction::OldestFirst];

    /// Creates one run per element of `order`, each with a random number of ledgers and events.
    fn runs(rng: &mut ChaCha8Rng, order: &[u32]) -> IngestRuns {
        let mut runs = IngestRuns::default();
        let mut next = 1;
        for &ledger in order {
            let end = next + rng.random_range(0..3u64);
            let ledgers = LedgerRange::new(ledger * 10, ledger * 10 + rng.random_range(0..10));
            runs.push(IngestRun { ledgers, first_event: EventId(next), end_event: EventId(end) });
            next = end;
        }
        runs
    }

    /// Walks all spans and returns their runs that have events.
    fn walked(runs: &IngestRuns, wanted: LedgerRange, direction: Direction) -> Vec<IngestRun> {
        let mut found = Vec::new();
        let mut id = if direction == Direction::OldestFirst { 0 } else { u64::MAX };
        while let Some(span) = runs.span(wanted, id, direction) {
            let of_span = |run: &&IngestRun| {
                span.first.first_event <= run.first_event && run.end_event <= span.last.end_event
            };
            let mut some: Vec<IngestRun> =
                runs.list.iter().filter(|run| run.has_events()).filter(of_span).copied().collect();
            assert!(some.len() <= MAX_JOINED_RUNS && !some.is_empty());
            match direction {
                Direction::OldestFirst => id = span.last.end_event.0,
                Direction::NewestFirst => {
                    some.reverse();
                    id = span.first.first_event.0 - 1;
                }
            }
            found.extend(some);
        }
        found
    }

    #[test]
    fn walks_agree_with_a_linear_scan() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for count in [0, 1, 31, 32, 33, 64, 65, 1024, 1025, 2500] {
            let mut order: Vec<u32> = (0..count).collect();
            if rng.random_bool(0.7) {
                order.shuffle(&mut rng);
            }
            let mut runs = runs(&mut rng, &order);
            if let Some(last) = runs.last().copied() {
                // Only the last run grows.
                let end_event = EventId(last.end_event.0 + 2);
                runs.set(runs.len() - 1, IngestRun { end_event, ..last });
            }
            for _ in 0..30 {
                let first = rng.random_range(0..10 * count + 10);
                let wanted = LedgerRange::new(first, first + rng.random_range(0..10 * count + 1));
                let mut expected: Vec<IngestRun> = runs
                    .list
                    .iter()
                    .filter(|run| run.has_events() && overlaps(&run.ledgers, wanted))
                    .copied()
                    .collect();
                assert_eq!(walked(&runs, wanted, Direction::OldestFirst), expected);
                expected.reverse();
                assert_eq!(walked(&runs, wanted, Direction::NewestFirst), expected);
            }
        }
    }

    #[test]
    fn places_count_ledgers_in_the_order_of_ingestion() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..50 {
            let mut order: Vec<u32> = (1..rng.random_range(2..40)).collect();
            order.shuffle(&mut rng);
            let runs = runs(&mut rng, &order);
            let mut expected = Vec::new();
            let mut newest = 0;
            for run in runs.list() {
                for ledger in run.ledgers.first.0..=run.ledgers.last.0 {
                    let place = expected.len() as u64 + 1;
                    let is_live = ledger > newest;
                    newest = newest.max(ledger);
                    let arrival = if is_live { Arrival::Live } else { Arrival::Backfilled };
                    expected.push(FedLedger { place, ledger: LedgerSeq(ledger), arrival });
                }
            }
            assert_eq!(runs.ledgers(), expected.len() as u64);
            for place in 0..expected.len() + 2 {
                let left = expected.get(place..).unwrap_or_default();
                assert_eq!(runs.after(place as u64).collect::<Vec<_>>(), left);
                let ranges: Vec<_> = runs.ranges_after(place as u64).collect();
                let ledgers = ranges.iter().flat_map(|range| range.first.0..=range.last.0);
                assert!(ledgers.eq(left.iter().map(|fed| fed.ledger.0)), "{ranges:?}");
            }
            let of = |fed: &FedLedger| runs.place_of(fed.ledger) == Some(fed.place);
            assert!(expected.iter().all(of));
            assert_eq!(runs.place_of(LedgerSeq(5)), None);
        }
    }

    /// With the runs of a backfill behind a live source, finding one run visits few nodes.
    #[test]
    fn finding_a_run_visits_few_nodes() {
        const LEDGERS: u32 = 200_000;
        let mut runs = IngestRuns::default();
        for number in 0..LEDGERS {
            for ledger in [1_000_000 + number, number] {
                let first_event = runs.last().map_or(EventId(1), |run| run.end_event);
                let ledgers = LedgerRange::new(ledger, ledger);
                runs.push(IngestRun {
                    ledgers,
                    first_event,
                    end_event: EventId(first_event.0 + 1),
                });
            }
        }
        let mut looks = 0;
        for direction in DIRECTIONS {
            for ledger in [0, 77_777, LEDGERS - 1, 500_000, 1_000_000, 1_199_999] {
                let wanted = LedgerRange::new(ledger, ledger);
                let mut at = if direction == Direction::OldestFirst { 0 } else { runs.len() - 1 };
                while at < runs.len() {
                    looks += 1;
                    let count = runs.skippable_runs(wanted, at, direction);
                    let Some(next) = step(at, count, direction).filter(|_| count > 0) else {
                        break;
                    };
                    at = next;
                }
            }
        }
        println!("{} looks at {} runs for 12 ledgers", looks, runs.len());
        assert!(looks < 12 * 4 * FAN_OUT, "{looks} looks");
        // The first page of a wide range visits only its first runs.
        let start = Instant::now();
        let wide = LedgerRange::new(1, LEDGERS);
        assert!(runs.span(wide, u64::MAX, Direction::NewestFirst).is_some());
        assert!(start.elapsed() < Duration::from_millis(100), "it is built as it is needed");
    }
}
