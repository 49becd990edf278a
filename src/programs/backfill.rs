//! Runs of a program on ledgers that were stored before it was deployed: the request, its progress
//! and its results. A backfill survives a restart of the process.

use serde::{Deserialize, Serialize};

use super::manifest::Progress;
use super::storage;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, ProgramId};
use orrery_store::{KindChanges, Store, StoreError};

/// State of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The backfill waits for its turn or is being worked on.
    Running,
    /// All its ledgers are done.
    Done,
    /// All its ledgers are done except the missing ones.
    Incomplete,
    /// The owner cancelled it.
    Cancelled,
    /// The backfill cannot continue; its message has the reason.
    Stopped,
}

impl State {
    /// Returns the name of the state in responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
        }
    }
}

/// A backfill with its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// Number of the program.
    pub program: ProgramId,
    /// Requested ledgers, up to the newest one that was stored at the time of the request.
    pub ledgers: LedgerRange,
    /// First ledger that has not been examined; the last ledger after all have been.
    pub next: LedgerSeq,
    /// Current state.
    pub state: State,
    /// The ledgers found so far on which the program could not be run in full: ledgers that are not
    /// stored or are newer than all that were stored at the time of the request, ledgers of which
    /// retention has removed transactions, and ledgers that were stored without the transactions of
    /// the program's contracts.
    pub missing_ledgers: LedgerSet,
    /// Those of them that are stored, but not in full, or no longer. They count as lost to the program
    /// until they are read.
    #[serde(default, skip_serializing_if = "LedgerSet::is_empty")]
    pub partial_ledgers: LedgerSet,
    /// Number of runs.
    pub executions: u64,
    /// Number of failed runs.
    pub errors: u64,
    /// Number of rows that were not stored before.
    pub rows: u64,
    /// Number of failed runs since the last successful one.
    pub errors_in_a_row: u32,
    /// The only ledgers to be processed; all of `ledgers` when `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<LedgerSet>,
    /// Ledgers that earlier backfills of the program have processed.
    #[serde(default, skip_serializing_if = "LedgerSet::is_empty")]
    pub earlier: LedgerSet,
    /// Application order of the first unprocessed transaction of `next`, when the transactions
    /// before it are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Status message of one sentence, or `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Backfill {
    /// Creates a backfill without progress. It does not wait for ledgers after `newest`, the newest
    /// stored one: the program runs on those when they are stored.
    pub(super) fn new(
        program: ProgramId,
        requested: LedgerRange,
        newest: Option<LedgerSeq>,
    ) -> Self {
        let last = newest
            .map_or(requested.first, |newest| newest.max(requested.first))
            .min(requested.last);
        let ledgers = LedgerRange { first: requested.first, last };
        let mut backfill = Self {
            program,
            ledgers,
            next: ledgers.first,
            state: State::Running,
            missing_ledgers: LedgerSet::default(),
            partial_ledgers: LedgerSet::default(),
            executions: 0,
            errors: 0,
            rows: 0,
            errors_in_a_row: 0,
            only: None,
            earlier: LedgerSet::default(),
            part: None,
            message: None,
        };
        if let Some(first) = last.next() {
            backfill.add_missing(LedgerRange { first, last: requested.last });
        }
        let missing = backfill.missing();
        backfill.message = (missing > 0)
            .then(|| format!("{missing} of the ledgers come after the newest stored ledger"));
        backfill
    }

    /// Creates a backfill of these ledgers, all of which are stored.
    pub(super) fn of_stored(program: ProgramId, only: LedgerSet) -> Self {
        let ranges = only.ranges();
        let hull = ranges.first().zip(ranges.last());
        // Without any ledger, one is examined, and passed over.
        let ledgers = hull.map_or(LedgerRange::new(0, 0), |(first, last)| LedgerRange {
            first: first.first,
            last: last.last,
        });
        Self { only: Some(only), ..Self::new(program, ledgers, Some(ledgers.last)) }
    }

    /// Returns the first ledger from `ledger` on that is to be processed.
    pub(super) fn next_wanted(&self, ledger: LedgerSeq) -> Option<LedgerSeq> {
        let Some(only) = &self.only else { return Some(ledger) };
        let after = only.ranges().iter().find(|range| range.last >= ledger)?;
        Some(after.first.max(ledger))
    }

    /// Returns the number of ledgers to be processed.
    pub fn wanted(&self) -> u64 {
        self.only.as_ref().map_or(self.ledgers.len(), LedgerSet::ledgers)
    }

    /// Returns the number of missing ledgers found so far.
    pub fn missing(&self) -> u64 {
        self.missing_ledgers.ledgers()
    }

    /// Returns the number of ledgers that are done.
    pub fn done(&self) -> u64 {
        self.done_ledgers().ledgers()
    }

    fn done_ledgers(&self) -> LedgerSet {
        let examined = match self.state {
            State::Done | State::Incomplete => self.ledgers,
            _ => match self.next.previous() {
                Some(last) => LedgerRange { first: self.ledgers.first, last },
                None => return LedgerSet::default(),
            },
        };
        let mut done = match &self.only {
            Some(only) => only.within(examined),
            None => LedgerSet::from(examined),
        };
        done.remove_all(&self.missing_ledgers);
        done
    }

    /// Returns the ledgers that the backfills of the program have processed or, while this one
    /// runs, will have processed.
    pub(super) fn covered(&self) -> LedgerSet {
        let mut covered = self.done_ledgers();
        if self.state == State::Running {
            covered.insert_all(self.only.as_ref().unwrap_or(&self.ledgers.into()));
        }
        covered.insert_all(&self.earlier);
        covered
    }

    /// Returns the ledgers that the backfills of the program have processed so far.
    pub(super) fn read_ledgers(&self) -> LedgerSet {
        let mut read = self.done_ledgers();
        read.insert_all(&self.earlier);
        read
    }

    /// Records ledgers on which the program cannot be run in full.
    pub(super) fn add_missing(&mut self, ledgers: LedgerRange) {
        self.missing_ledgers.insert(ledgers);
    }

    /// Records ledgers that are stored, or were when the backfill was begun, but on which the program
    /// cannot be run in full.
    pub(super) fn add_partial(&mut self, ledgers: LedgerRange) {
        let wanted = self.only.as_ref().map_or(ledgers.into(), |only| only.within(ledgers));
        self.missing_ledgers.insert_all(&wanted);
        self.partial_ledgers.insert_all(&wanted);
    }

    /// Returns the ledgers that have not been read in full and count as lost: those found so far, and
    /// of a backfill of stored ledgers that ended before its end those that it has not come to.
    fn unread_ledgers(&self) -> LedgerSet {
        let mut unread = self.partial_ledgers.clone();
        if let (State::Cancelled | State::Stopped, Some(only)) = (self.state, &self.only) {
            unread.insert_all(only);
            unread.remove_all(&self.done_ledgers());
        }
        unread
    }

    /// Returns the ledgers that are done, once the backfill is over; before that, none.
    pub(super) fn processed_ledgers(&self) -> LedgerSet {
        match self.state {
            State::Done | State::Incomplete => self.done_ledgers(),
            _ => LedgerSet::default(),
        }
    }

    /// Records that all ledgers before `next` have been examined.
    pub(super) fn advance_to(&mut self, next: Option<LedgerSeq>) {
        self.part = None;
        match next.filter(|next| *next <= self.ledgers.last) {
            Some(next) => self.next = next,
            None => {
                self.next = self.ledgers.last;
                self.finish();
            }
        }
    }

    fn finish(&mut self) {
        self.state = if self.missing() > 0 { State::Incomplete } else { State::Done };
        let partial = self.partial_ledgers.ledgers();
        let absent = self.missing().saturating_sub(partial);
        let mut sentences = Vec::new();
        if absent > 0 {
            sentences.push(format!(
                "{absent} of the ledgers that were asked for are not stored: fetch them with `orrery \
                 backfill`, then ask again"
            ));
        }
        if partial > 0 {
            sentences.push(format!(
                "{partial} of the ledgers that were asked for are stored in part only, because retention \
                 has removed data or `[index] contracts` left it out: what was in them is missing"
            ));
        }
        self.message = (!sentences.is_empty()).then(|| sentences.join("; "));
    }
}

/// Writes a backfill of a program with this progress. What it could not read, and the program has not
/// processed otherwise, counts as lost to the program. Once it is over, the ledgers that it has
/// processed no longer do.
pub(super) fn put_backfill(
    changes: &mut KindChanges<'_>,
    store: &Store,
    progress: &Progress,
    backfill: &Backfill,
) -> Result<(), StoreError> {
    let processed = backfill.processed_ledgers();
    if !processed.is_empty() {
        changes.put_seen(backfill.program, &processed, true);
    }
    let mut unread = backfill.unread_ledgers();
    if !unread.is_empty() {
        let others = match &backfill.only {
            // A project that reads for further contracts as well has processed none of these with
            // them, except those that are still to come.
            Some(_) => store.ledgers_after(progress.place),
            // When an earlier version deployed the program, it may have processed any ledger.
            None => store.ledgers_after(progress.deployed_at_place.unwrap_or(0)),
        };
        unread.remove_all(&others);
        if backfill.only.is_none() {
            unread.remove_all(&backfill.earlier);
        }
        changes.put_seen(backfill.program, &unread, false);
    }
    storage::put_json(changes, &storage::backfill(backfill.program), backfill)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: Option<LedgerSeq> = Some(LedgerSeq(9));

    #[test]
    fn a_backfill_is_done_after_its_last_ledger() {
        let mut backfill = Backfill::new(ProgramId(1), LedgerRange::new(5, 9), NEWEST);
        assert_eq!((backfill.done(), backfill.state), (0, State::Running));
        backfill.advance_to(Some(LedgerSeq(9)));
        assert_eq!((backfill.done(), backfill.state), (4, State::Running));
        let stored = serde_json::to_vec(&backfill).unwrap();
        assert_eq!(serde_json::from_slice::<Backfill>(&stored).unwrap(), backfill);
        backfill.advance_to(Some(LedgerSeq(10)));
        assert_eq!((backfill.done(), backfill.state, backfill.message), (5, State::Done, None));
    }

    #[test]
    fn missing_ledgers_are_reported() {
        let mut backfill = Backfill::new(ProgramId(1), LedgerRange::new(5, 109), NEWEST);
        assert_eq!((backfill.ledgers, backfill.missing()), (LedgerRange::new(5, 9), 100));
        assert!(backfill.message.as_ref().unwrap().starts_with("100 of the ledgers come after"));
        backfill.advance_to(Some(LedgerSeq(10)));
        let sentence = "100 of the ledgers that were asked for are not stored: fetch them with `orrery \
                        backfill`, then ask again";
        assert_eq!(backfill.message.as_deref(), Some(sentence));
        assert_eq!((backfill.state, backfill.done()), (State::Incomplete, 5));
        assert_eq!(backfill.missing_ledgers.ranges(), [LedgerRange::new(10, 109)]);
        let stored = serde_json::to_vec(&backfill).unwrap();
        assert_eq!(serde_json::from_slice::<Backfill>(&stored).unwrap(), backfill);
    }

    #[test]
    fn only_the_wanted_ledgers_of_a_backfill_count() {
        let only: LedgerSet =
            [LedgerRange::new(3, 4), LedgerRange::new(8, 9)].into_iter().collect();
        let mut backfill = Backfill::of_stored(ProgramId(1), only.clone());
        assert_eq!((backfill.ledgers, backfill.wanted()), (LedgerRange::new(3, 9), 4));
        assert_eq!(backfill.covered(), only, "it will be processed");
        let next = |from| backfill.next_wanted(LedgerSeq(from)).map(|next| next.0);
        assert_eq!([3, 4, 5, 9, 10].map(next), [Some(3), Some(4), Some(8), Some(9), None]);
        backfill.advance_to(Some(LedgerSeq(6)));
        assert_eq!(backfill.done(), 2);
        let stored = serde_json::to_vec(&backfill).unwrap();
        assert_eq!(serde_json::from_slice::<Backfill>(&stored).unwrap(), backfill);
        backfill.state = State::Cancelled;
        assert_eq!(backfill.covered(), LedgerRange::new(3, 4).into());
        backfill.earlier.insert(LedgerRange::new(1, 1));
        backfill.advance_to(None);
        let covered = [LedgerRange::new(1, 1), LedgerRange::new(3, 4), LedgerRange::new(8, 9)];
        assert_eq!(backfill.covered(), covered.into_iter().collect());
        let mut none = Backfill::of_stored(ProgramId(1), LedgerSet::default());
        assert_eq!((none.wanted(), none.next_wanted(LedgerSeq(0))), (0, None));
        none.advance_to(None);
        assert_eq!((none.state, none.done()), (State::Done, 0));
    }

    #[test]
    fn ledgers_that_are_stored_in_part_count_as_unread() {
        let only: LedgerSet =
            [LedgerRange::new(3, 4), LedgerRange::new(8, 9)].into_iter().collect();
        let mut backfill = Backfill::of_stored(ProgramId(1), only);
        backfill.add_partial(LedgerRange::new(4, 8));
        let partial: LedgerSet = [LedgerRange::only(LedgerSeq(4)), LedgerRange::only(LedgerSeq(8))]
            .into_iter()
            .collect();
        assert_eq!(
            (&backfill.missing_ledgers, backfill.unread_ledgers()),
            (&partial, partial.clone())
        );
        backfill.advance_to(Some(LedgerSeq(9)));
        let cancelled = Backfill { state: State::Cancelled, ..backfill.clone() };
        let rest = [LedgerRange::only(LedgerSeq(4)), LedgerRange::new(8, 9)].into_iter().collect();
        assert_eq!(cancelled.unread_ledgers(), rest, "it has not come to the last one");
        backfill.advance_to(None);
        assert_eq!((backfill.state, backfill.unread_ledgers()), (State::Incomplete, partial));
        let message = backfill.message.unwrap();
        assert!(message.starts_with("2 of the ledgers") && !message.contains("fetch"), "{message}");
    }

    #[test]
    fn a_backfill_entirely_in_the_future_examines_one_ledger() {
        for newest in [None, NEWEST] {
            let mut backfill = Backfill::new(ProgramId(1), LedgerRange::new(50, 149), newest);
            assert_eq!((backfill.ledgers, backfill.missing()), (LedgerRange::new(50, 50), 99));
            backfill.add_missing(backfill.ledgers);
            backfill.advance_to(None);
            assert!(backfill.message.unwrap().starts_with("100 of the ledgers"));
        }
    }
}
