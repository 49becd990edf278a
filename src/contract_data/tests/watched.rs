//! Where only watched contracts are recorded: one that is watched at some moment has the same answers as if
//! it had been from the beginning.

use std::collections::BTreeMap;

use orrery_ledger::domain::LedgerSeq;
use orrery_store::Retention;
use rand::rngs::StdRng;
use rand::seq::{IteratorRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::*;
use crate::fill_some;
use crate::scope::{Scope, are_recorded, scope, set_scope, watch, watched};

const SIZE: (u64, u64) = (60, 10_000);

impl World {
    /// Watches some contract of the history.
    fn watch(&mut self, history: &StorageHistory, rng: &mut StdRng) {
        let contract = history.contracts.keys().choose(rng).map(|it| ContractId(*it)).unwrap();
        watch(&self.store, &BTreeMap::from([(contract, LedgerSeq(0))])).unwrap();
        self.watched = Some(contract);
    }

    fn fill(&self) {
        while fill_some(&self.store).unwrap() {}
        let contract = self.watched.unwrap();
        assert!(are_recorded(&self.store, [&contract]).unwrap());
        assert!(watched(&self.store).unwrap().contains(&contract));
    }
}

#[test]
fn a_contract_that_is_watched_at_some_moment_is_known_as_if_it_always_had_been() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed ^ 0x3a7c);
        let mut order: Vec<u32> = (history.first()..=history.last()).collect();
        order.retain(|_| rng.random_bool(0.95));
        if rng.random_bool(0.5) {
            order.shuffle(rng);
        }
        let mut world = World::new(&history);
        let begins_with_all = rng.random_bool(0.3);
        if !begins_with_all {
            assert!(set_scope(&world.store, Scope::Watched).unwrap());
        }
        let watched_at = rng.random_range(0..order.len());
        for (at, sequence) in order.iter().enumerate() {
            let is_raw = rng.random_bool(0.7) || history.origin == Some(*sequence);
            world.add(&history.ledger(*sequence).xdr, is_raw);
            if rng.random_bool(0.5) {
                world.step();
            }
            if at == watched_at {
                assert_eq!(set_scope(&world.store, Scope::Watched).unwrap(), begins_with_all);
                world.watch(&history, rng);
                assert!(!are_recorded(&world.store, &world.watched).unwrap());
            }
            // Ledgers are stored and processed between the steps of the filling.
            if at >= watched_at && rng.random_bool(0.2) {
                fill_some(&world.store).unwrap();
            }
        }
        world.fill();
        world.step();
        let case = format!("seed {seed}, {order:?}, watched at {watched_at}");
        world.compare(&history, 0, &case);
        world.compare_histories(&history, rng, &case);
        // All again.
        assert!(set_scope(&world.store, Scope::All).unwrap());
        assert_eq!(scope(&world.store).unwrap(), Scope::All);
        world.watched = None;
        world.step();
        world.compare(&history, 0, &format!("{case}, all again"));
    });
}

#[test]
fn what_retention_removes_before_a_contract_is_watched_is_not_known_and_nothing_else_changes() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed ^ 0x51de);
        let mut order: Vec<u32> = (history.first()..=history.last()).collect();
        if rng.random_bool(0.3) {
            order.shuffle(rng);
        }
        let mut world = World::new(&history);
        set_scope(&world.store, Scope::Watched).unwrap();
        let watched_at = rng.random_range(0..order.len());
        let mut floor = 0;
        for (at, sequence) in order.iter().enumerate() {
            world.add(&history.ledger(*sequence).xdr, true);
            world.step();
            if at == watched_at {
                world.watch(&history, rng);
            }
            if at >= watched_at && rng.random_bool(0.3) {
                fill_some(&world.store).unwrap();
            }
            if rng.random_bool(0.2) {
                let kept = rng.random_range(4..20);
                let retention = Retention { transactions: Some(kept), ..Retention::default() };
                while !world.store.prune(&retention).unwrap().is_nothing() {}
                let latest = order[..=at].iter().max().unwrap();
                floor = floor.max((latest + 1).saturating_sub(kept));
            }
        }
        world.fill();
        for ledger in floor.max(history.first())..=history.last() {
            let lookup = Lookup::new(&world.store, LedgerSeq(ledger), RowBounds::none()).unwrap();
            for (hash, key) in world.keys(&history) {
                let of = (ContractId(contract_of(key).unwrap()), KeyTag::of(&Hash32(*hash)));
                let held = lookup.held(of).unwrap();
                let case = || format!("seed {seed}, {order:?}, ledger {ledger}, key {key:?}");
                assert_not_wrong(&held, &world.model.at(key, ledger), &case);
            }
        }
    });
}

/// Asserts that what is said is right, although not all may be known.
fn assert_not_wrong(held: &Held, expected: &Answer, case: &dyn Fn() -> String) {
    let entry = match (held, expected) {
        (Held::Unknown { .. }, _) | (Held::Absent, Answer::Absent { .. }) => return,
        (Held::Present(entry), Answer::Present(expected)) => (entry, expected),
        _ => panic!("{held:?} and not {expected:?}: {}", case()),
    };
    let (entry, expected) = entry;
    assert_eq!(&value(&entry.entry), expected.value.data().unwrap(), "{}", case());
    assert_eq!(entry.modified.0, expected.modified_ledger, "{}", case());
    let live_until = entry.live_until.map(|it| it.0);
    assert!(live_until.is_none() || live_until == expected.live_until, "{}", case());
    assert!(entry.archived.is_none() || entry.archived == expected.archived, "{}", case());
    if let Some(updated) = entry.updated {
        assert_eq!(Some(updated.tx.0), expected.updated_tx.map(|it| it.hash), "{}", case());
    }
}
