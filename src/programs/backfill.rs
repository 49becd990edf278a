//! Running a program on ledgers that were stored before it was deployed: what was asked for, how far
//! it has got, and what came of it. A backfill outlives the process.

use serde::{Deserialize, Serialize};

use crate::domain::{LedgerRange, LedgerSeq, LedgerSet, ProgramId};

/// Where a backfill stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits or is under way.
    Running,
    /// All its ledgers are done.
    Done,
    /// All its ledgers are done but those that are missing.
    Incomplete,
    /// Somebody cancelled it.
    Cancelled,
    /// It cannot go on; its message says why.
    Stopped,
}

impl State {
    /// The word that answers use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
        }
    }
}

/// A backfill and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// The program.
    pub program: ProgramId,
    /// The ledgers that were asked for, up to the newest that was stored then.
    #[serde(with = "range")]
    pub ledgers: LedgerRange,
    /// The first ledger that was not looked at; the last one when all were.
    #[serde(with = "sequence")]
    pub next: LedgerSeq,
    /// Where it stands.
    pub state: State,
    /// How many ledgers were asked for and could not be run on.
    pub missing: u64,
    /// Which they are, so far: ledgers that are not stored, or came after all that were stored when the backfill
    /// came; of which retention has removed transactions; or of which those of the program's contracts were
    /// left out. An earlier version only counted them.
    #[serde(default, with = "ranges", skip_serializing_if = "LedgerSet::is_empty")]
    pub missing_ledgers: LedgerSet,
    /// Runs.
    pub executions: u64,
    /// Runs that failed.
    pub errors: u64,
    /// Rows that are new.
    pub rows: u64,
    /// Runs that failed since the last one that did not.
    #[serde(default)]
    pub errors_in_a_row: u32,
    /// Application order of the first transaction of `next` that is not done, when those before it are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// What there is to say about it, as one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Backfill {
    /// A backfill of which nothing is done. Nobody has to wait for ledgers after the `newest` that is stored:
    /// they are for the program as they come.
    pub(super) fn new(program: ProgramId, asked: LedgerRange, newest: Option<LedgerSeq>) -> Self {
        let last = newest.map_or(asked.first, |newest| newest.max(asked.first)).min(asked.last);
        let ledgers = LedgerRange { first: asked.first, last };
        let mut backfill = Self {
            program,
            ledgers,
            next: ledgers.first,
            state: State::Running,
            missing: 0,
            missing_ledgers: LedgerSet::default(),
            executions: 0,
            errors: 0,
            rows: 0,
            errors_in_a_row: 0,
            part: None,
            message: None,
        };
        if let Some(first) = last.next() {
            backfill.misses(LedgerRange { first, last: asked.last });
        }
        let missing = backfill.missing;
        backfill.message = (missing > 0)
            .then(|| format!("{missing} of the ledgers come after the newest that is stored"));
        backfill
    }

    /// Ledgers that are done.
    pub fn done(&self) -> u64 {
        let looked_at = match self.state {
            State::Done | State::Incomplete => self.ledgers,
            _ => match self.next.previous() {
                Some(last) => LedgerRange { first: self.ledgers.first, last },
                None => return 0,
            },
        };
        looked_at.len().saturating_sub(self.missing_ledgers.within(looked_at).ledgers())
    }

    /// These ledgers cannot be run on.
    pub(super) fn misses(&mut self, ledgers: LedgerRange) {
        let before = self.missing_ledgers.ledgers();
        self.missing_ledgers.insert(ledgers);
        self.missing += self.missing_ledgers.ledgers() - before;
    }

    /// The ledgers that are done, once the backfill is over.
    pub(super) fn seen(&self) -> LedgerSet {
        let mut seen = LedgerSet::default();
        if matches!(self.state, State::Done | State::Incomplete) {
            seen.insert(self.ledgers);
            seen.remove_all(&self.missing_ledgers);
        }
        seen
    }

    /// All ledgers before `next` were looked at.
    pub(super) fn reached(&mut self, next: Option<LedgerSeq>) {
        self.part = None;
        match next.filter(|next| *next <= self.ledgers.last) {
            Some(next) => self.next = next,
            None => {
                self.next = self.ledgers.last;
                self.ends();
            }
        }
    }

    /// An earlier version called a backfill done that was not.
    pub(super) fn revised(mut self) -> Self {
        if self.state == State::Done && self.missing > 0 {
            self.state = State::Incomplete;
        }
        self
    }

    fn ends(&mut self) {
        self.message = None;
        self.state = State::Done;
        if self.missing > 0 {
            self.state = State::Incomplete;
            self.message = Some(format!(
                "{} of the ledgers that were asked for are not stored in full: fetch them with \
                 `orrery backfill`, then ask again",
                self.missing
            ));
        }
    }
}

mod sequence {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::domain::LedgerSeq;

    pub(super) fn serialize<S: Serializer>(ledger: &LedgerSeq, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(ledger.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LedgerSeq, D::Error> {
        u32::deserialize(from).map(LedgerSeq)
    }
}

mod ranges {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::domain::{LedgerRange, LedgerSet};

    pub(super) fn serialize<S: Serializer>(set: &LedgerSet, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(set.ranges().iter().map(|range| [range.first.0, range.last.0]))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LedgerSet, D::Error> {
        let ranges = Vec::<[u32; 2]>::deserialize(from)?;
        Ok(ranges.into_iter().map(|[first, last]| LedgerRange::new(first, last)).collect())
    }
}

mod range {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::domain::LedgerRange;

    pub(super) fn serialize<S: Serializer>(range: &LedgerRange, to: S) -> Result<S::Ok, S::Error> {
        [range.first.0, range.last.0].serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LedgerRange, D::Error> {
        let [first, last] = <[u32; 2]>::deserialize(from)?;
        Ok(LedgerRange::new(first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: Option<LedgerSeq> = Some(LedgerSeq(9));

    #[test]
    fn an_order_ends_after_its_last_ledger() {
        let mut backfill = Backfill::new(ProgramId(1), LedgerRange::new(5, 9), NEWEST);
        assert_eq!((backfill.done(), backfill.state), (0, State::Running));
        backfill.reached(Some(LedgerSeq(9)));
        assert_eq!((backfill.done(), backfill.state), (4, State::Running));
        let stored = serde_json::to_vec(&backfill).unwrap();
        assert_eq!(serde_json::from_slice::<Backfill>(&stored).unwrap(), backfill);
        backfill.reached(Some(LedgerSeq(10)));
        assert_eq!((backfill.done(), backfill.state, backfill.message), (5, State::Done, None));
    }

    #[test]
    fn ledgers_that_were_not_there_are_told() {
        let mut backfill = Backfill::new(ProgramId(1), LedgerRange::new(5, 109), NEWEST);
        assert_eq!((backfill.ledgers, backfill.missing), (LedgerRange::new(5, 9), 100));
        assert!(backfill.message.as_ref().unwrap().starts_with("100 of the ledgers come after"));
        backfill.reached(Some(LedgerSeq(10)));
        let sentence = "100 of the ledgers that were asked for are not stored in full: fetch them with \
                        `orrery backfill`, then ask again";
        assert_eq!(backfill.message.as_deref(), Some(sentence));
        assert_eq!((backfill.state, backfill.done()), (State::Incomplete, 5));
        assert_eq!(backfill.missing_ledgers.ranges(), [LedgerRange::new(10, 109)]);
        let stored = serde_json::to_vec(&backfill).unwrap();
        assert_eq!(serde_json::from_slice::<Backfill>(&stored).unwrap(), backfill);
    }

    #[test]
    fn of_what_is_all_in_the_future_one_ledger_is_looked_at() {
        for newest in [None, NEWEST] {
            let mut backfill = Backfill::new(ProgramId(1), LedgerRange::new(50, 149), newest);
            assert_eq!((backfill.ledgers, backfill.missing), (LedgerRange::new(50, 50), 99));
            backfill.misses(backfill.ledgers);
            backfill.reached(None);
            assert!(backfill.message.unwrap().starts_with("100 of the ledgers"));
        }
    }
}
