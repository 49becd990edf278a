//! When recorded changes of members are replaced: all rows are derived anew then, so this takes a small part of
//! the time only.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::events::pause::pause_after;
use orrery_ledger::domain::ContractId;

/// What is remembered of the replacement of recorded changes of one project.
#[derive(Debug, Default)]
pub struct Replacing {
    /// Since when changes are being replaced, and whether some were.
    pass: Option<(Instant, bool)>,
    /// When the last pass began that has replaced some, while rows are derived from it.
    derived_since: Option<Instant>,
    /// When these rows were derived, and how long all of it took.
    last: Option<(Instant, Duration)>,
    /// Contracts of which changes have to be replaced later.
    put_off: BTreeSet<ContractId>,
}

impl Replacing {
    /// Whether changes may be replaced now. `must_derive` says whether the rows have yet to be derived anew.
    pub fn may_begin(&mut self, must_derive: bool, now: Instant) -> bool {
        if self.pass.is_some() {
            return true;
        }
        if let Some(since) = self.derived_since {
            if must_derive {
                return false;
            }
            (self.derived_since, self.last) = (None, Some((now, now - since)));
        }
        let may = pause_after(self.last, now).is_zero();
        if may {
            self.pass = Some((now, false));
            self.put_off.clear();
        }
        may
    }

    /// Puts contracts off.
    pub fn put_off(&mut self, contracts: impl Iterator<Item = ContractId>) {
        self.put_off.extend(contracts);
    }

    /// Whether a contract was put off.
    pub fn has_put_off(&self, contract: &ContractId) -> bool {
        self.put_off.contains(contract)
    }

    /// Notes that some were replaced.
    pub fn note(&mut self) {
        if let Some((_, has_replaced)) = &mut self.pass {
            *has_replaced = true;
        }
    }

    /// Notes that all were looked at.
    pub fn end(&mut self) {
        if let Some((since, true)) = self.pass.take() {
            self.derived_since = Some(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_while_rows_are_derived_from_the_last_time() {
        let (mut replacing, begun) = (Replacing::default(), Instant::now());
        assert!(replacing.may_begin(true, begun), "another reason to derive them");
        replacing.end();
        assert!(replacing.may_begin(true, begun), "none was replaced");
        replacing.note();
        assert!(replacing.may_begin(true, begun), "the same time");
        replacing.end();
        assert!(!replacing.may_begin(true, begun));
        let later = begun + Duration::from_secs(3);
        assert!(
            replacing.may_begin(false, later)
                == pause_after(Some((later, later - begun)), later).is_zero()
        );
        assert!(replacing.may_begin(false, later + Duration::from_secs(3_600)));
    }
}
