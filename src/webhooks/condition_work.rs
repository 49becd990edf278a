//! The work that conditions take, on the account of the owners of their subscriptions: hostile ones must cost
//! their owner alone.

use std::collections::HashMap;

use orrery_ledger::domain::Owner;

/// The work on one ledger, by owner. Its steps share it.
#[derive(Debug, Default)]
pub struct ConditionWork {
    /// Place of the ledger in the feed.
    place: u64,
    by_owner: HashMap<Owner, OwnWork>,
}

/// The work for the subscriptions of one owner.
#[derive(Debug, Default)]
struct OwnWork {
    steps: u64,
    by_subscription: HashMap<u32, u64>,
    /// Those of searches of older ledgers, which are not among the others.
    searched: u64,
}

impl ConditionWork {
    /// Adds steps of a subscription's condition. Returns the subscription that has taken the most, if those
    /// of the owner together have taken more than `most`: it is to be disabled, and does not count further.
    pub fn add(
        &mut self,
        place: u64,
        owner: &Owner,
        (subscription, steps): (u32, u64),
        most: u64,
    ) -> Option<u32> {
        self.begin(place);
        let own = match self.by_owner.get_mut(owner) {
            Some(own) => own,
            None => self.by_owner.entry(owner.clone()).or_default(),
        };
        own.steps = own.steps.saturating_add(steps);
        let of_it = own.by_subscription.entry(subscription).or_default();
        *of_it = of_it.saturating_add(steps);
        if own.steps <= most {
            return None;
        }
        // Of equal ones the older.
        let greatest = own.by_subscription.iter().max_by_key(|(id, steps)| (**steps, !**id));
        let (greatest, steps) = greatest.map(|(id, steps)| (*id, *steps))?;
        own.by_subscription.remove(&greatest);
        own.steps = own.steps.saturating_sub(steps);
        Some(greatest)
    }

    /// Adds steps of a search of older ledgers: they disable nothing.
    pub fn add_searched(&mut self, place: u64, owner: &Owner, steps: u64) {
        self.begin(place);
        let own = self.by_owner.entry(owner.clone()).or_default();
        own.searched = own.searched.saturating_add(steps);
    }

    /// Returns the steps of an owner, with those of searches.
    pub fn steps(&self, place: u64, owner: &Owner) -> u64 {
        let own = self.by_owner.get(owner).filter(|_| self.place == place);
        own.map_or(0, |own| own.steps.saturating_add(own.searched))
    }

    /// Begins anew at another place in the feed.
    fn begin(&mut self, place: u64) {
        if self.place != place {
            self.place = place;
            self.by_owner.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_of_an_owner_goes_and_others_keep_what_they_have() {
        let (ana, bob) = (Owner("ana".to_owned()), Owner("bob".to_owned()));
        let mut work = ConditionWork::default();
        for _ in 0..3 {
            assert_eq!(work.add(1, &ana, (1, 10), 100), None);
            assert_eq!(work.add(1, &bob, (3, 33), 100), None);
        }
        assert_eq!(work.add(1, &ana, (2, 70), 100), None);
        // The heavy one goes, although a light one is over the limit.
        assert_eq!(work.add(1, &ana, (1, 1), 100), Some(2));
        assert_eq!(work.add(1, &ana, (1, 60), 100), None);
        assert_eq!(work.add(1, &bob, (3, 2), 100), Some(3));
        assert_eq!(work.add(1, &bob, (4, u64::MAX), 100), Some(4));
        // Another ledger begins anew.
        assert_eq!(work.add(2, &ana, (1, 100), 100), None);
        assert_eq!(work.add(2, &ana, (1, 1), 100), Some(1));
    }

    #[test]
    fn searches_take_part_of_what_an_owner_may_and_disable_nothing() {
        let (ana, bob) = (Owner("ana".to_owned()), Owner("bob".to_owned()));
        let mut work = ConditionWork::default();
        assert_eq!(work.add(1, &ana, (1, 10), 100), None);
        work.add_searched(1, &ana, 500);
        assert_eq!((work.steps(1, &ana), work.steps(1, &bob)), (510, 0));
        assert_eq!(work.add(1, &ana, (1, 90), 100), None);
        assert_eq!(work.steps(2, &ana), 0);
        work.add_searched(2, &ana, 5);
        assert_eq!((work.steps(2, &ana), work.steps(1, &ana)), (5, 0));
    }
}
