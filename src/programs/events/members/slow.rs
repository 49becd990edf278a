//! Members whose changes take long to record, because they have changed their code often: all of them are looked at each
//! time, and how often is up to their authors. So this takes a small part of the time only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::events::pause::pause_after;
use orrery_ledger::domain::ContractId;

/// Time from which on the changes of a member take long to record.
const LONG: Duration = Duration::from_millis(5);
/// Maximum number of members that are remembered: a turn has time for some only.
const MOST: usize = 4_096;

/// When the changes of such members were recorded for the last time, and how long it took.
#[derive(Debug, Default)]
pub struct SlowMembers(BTreeMap<ContractId, (Instant, Duration)>);

impl SlowMembers {
    /// Notes how long it took to record the changes of a member, until now.
    pub fn note(&mut self, contract: ContractId, now: Instant, took: Duration) {
        if took < LONG {
            self.0.remove(&contract);
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, last| !pause_after(Some(*last), now).is_zero());
        }
        self.0.insert(contract, (now, took));
    }

    /// Whether the changes of a member are to be recorded later.
    pub fn must_wait(&self, contract: &ContractId, now: Instant) -> bool {
        !pause_after(self.0.get(contract).copied(), now).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_took_long_waits() {
        let (mut slow, begun) = (SlowMembers::default(), Instant::now());
        let contract = |byte| ContractId([byte; 32]);
        slow.note(contract(1), begun, LONG);
        slow.note(contract(2), begun, LONG - Duration::from_nanos(1));
        let pause = pause_after(Some((begun, LONG)), begun);
        assert_eq!(slow.must_wait(&contract(1), begun), !pause.is_zero());
        assert!(!slow.must_wait(&contract(1), begun + pause));
        assert!(!slow.must_wait(&contract(2), begun));
        slow.note(contract(1), begun + pause, Duration::ZERO);
        assert!(slow.0.is_empty());
    }
}
