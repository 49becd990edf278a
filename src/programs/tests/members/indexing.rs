//! Indexes of which projects with members know things, which tests advance themselves.

use super::*;
use orrery_contract_data::{Filling, fill_some, remove_some, scope, set_watched};

impl Parts {
    /// Advances the facts by so many steps at most.
    pub(super) fn learn(&self, most: usize) {
        for consumer in [&Membership as &dyn LedgerConsumer, &code_events()] {
            for _ in 0..most {
                if !self.store.step(consumer).unwrap() {
                    break;
                }
            }
        }
    }

    /// Advances the index of contract data by so many steps at most.
    pub(super) fn record(&self, most: usize) {
        for _ in 0..most {
            if !self.store.step(&ContractData as &dyn LedgerConsumer).unwrap() {
                return;
            }
        }
    }

    /// Watches what has to be, where not everything is recorded, and adds its rows of some ledgers.
    pub(super) fn fill(&self, most: usize) {
        if scope(&self.store).unwrap() == Scope::All {
            return;
        }
        let mut wanted = self.registry.watched_contracts();
        wanted.extend(self.registry.recorded_members());
        let facts = Facts::new(&self.store).unwrap();
        let first = |contract: &ContractId| {
            let creation = facts.creation(contract);
            creation.map(|found| found.map_or(LedgerSeq(0), |creation| creation.at.ledger))
        };
        // One that nobody watched for a while is watched again once its rows are gone.
        while !set_watched(&self.store, &wanted, first).unwrap() {
            while remove_some(&self.store).unwrap() {}
        }
        let mut left = most;
        while left > 0 && fill_some(&self.store).unwrap() != Filling::Done {
            left -= 1;
        }
    }
}
