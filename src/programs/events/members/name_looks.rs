//! What is remembered of the looks at contracts with events that may turn out to have a name of a project (see
//! `naming`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::events::pause::{LOOK_AGAIN, pause_after};
use orrery_ledger::domain::ContractId;

/// What is remembered of the looks.
#[derive(Debug, Default)]
pub struct NameLooks {
    /// When the last one ended, and how long it took.
    pub last: Option<(Instant, Duration)>,
    /// The walk over these contracts that is in progress.
    pub walk: Option<NameWalk>,
    /// What was known of interfaces when the last walk began that came to its end.
    walked: Option<u64>,
    /// Whether that one has passed over contracts with joined spans that are to be read again.
    has_passed: bool,
    /// What was known of interfaces when the last walk began with which all contracts with joined spans were read again.
    read_with: Option<u64>,
    /// The contracts with joined spans that are being read again.
    reading: BTreeSet<ContractId>,
    /// How long that has taken so far.
    took: Duration,
    /// When this ended last, and how long it took.
    read: Option<(Instant, Duration)>,
}

/// A walk over the contracts, in the order of their ids.
#[derive(Debug, Clone, Copy)]
pub struct NameWalk {
    /// What was known of interfaces when it began.
    pub generation: u64,
    /// The last contract that it has passed.
    pub at: Option<ContractId>,
    /// What becomes of contracts with joined spans: in the middle of these something may have become known.
    pub of_joined: OfJoined,
    /// Whether it has passed over such contracts that are to be read again.
    pub has_passed: bool,
}

/// What becomes of contracts with joined spans of which nothing is known at the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfJoined {
    /// They are read again.
    Read,
    /// They are read again later: reading them takes a small part of the time.
    PassOver,
    /// They were read with all that is known.
    AreRead,
}

impl NameLooks {
    /// Forgets what was looked at, because contracts may have been added that a look has passed.
    pub fn forget(&mut self) {
        (self.walk, self.walked, self.read_with) = (None, None, None);
    }

    /// Returns the walk that is in progress or begins now, with what is known; the time to wait, or none, where there
    /// is nothing to walk for.
    pub fn begin(&mut self, generation: u64, now: Instant) -> Result<NameWalk, Option<Duration>> {
        if let Some(walk) = self.walk.take() {
            return Ok(walk);
        }
        let may_read = self.reading.is_empty() && pause_after(self.read, now).is_zero();
        if self.walked == Some(generation) && !(self.has_passed && may_read) {
            let wait = || pause_after(self.read, now).max(LOOK_AGAIN);
            return Err(self.has_passed.then(wait));
        }
        let of_joined = match self.read_with == Some(generation) {
            true => OfJoined::AreRead,
            false if may_read => OfJoined::Read,
            false => OfJoined::PassOver,
        };
        Ok(NameWalk { generation, at: None, of_joined, has_passed: false })
    }

    /// Ends a walk that has come to its end.
    pub fn end(&mut self, walk: NameWalk) {
        (self.walked, self.has_passed) = (Some(walk.generation), walk.has_passed);
        if walk.of_joined == OfJoined::Read {
            self.read_with = Some(walk.generation);
        }
    }

    /// Notes that contracts with joined spans are about to be read again.
    pub fn begin_reading(&mut self, contracts: BTreeSet<ContractId>) {
        self.reading.extend(contracts);
    }

    /// Forgets those that are being read for which `keep` does not hold.
    pub fn keep_reading(&mut self, keep: impl Fn(&ContractId) -> bool) {
        self.reading.retain(keep);
    }

    /// Notes for how long a contract was read again, and whether this is over.
    pub fn note_reading(&mut self, contract: &ContractId, time: Duration, is_over: bool) {
        if !self.reading.contains(contract) {
            return;
        }
        self.took += time;
        if is_over {
            self.reading.remove(contract);
        }
        if self.reading.is_empty() {
            self.read = Some((Instant::now(), std::mem::take(&mut self.took)));
        }
    }
}
