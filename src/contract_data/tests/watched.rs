//! Where only watched contracts are recorded: contracts come and go at any moment, several of them at
//! different places of their filling. One that is watched at the end has the answers, and rows under the keys,
//! that it would have if it always had been; of the others nothing is known, and no row is left.

use std::cell::Cell;
use std::ops::ControlFlow;

use orrery_ledger::domain::LedgerSeq;
use orrery_store::{RowCodec, Rows, StoreError};
use rand::rngs::StdRng;
use rand::seq::{IteratorRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::found::{found, state_of};
use super::*;
use crate::consumer::read;
use crate::found::FOUND;
use crate::recording::Recording;
use crate::removal::{BY_CONTRACT, remove_some, remove_up_to};
use crate::scope::{Scope, are_recorded, scope, set_scope, set_watched, watched};
use crate::{Filling, fill_some};

const SIZE: (u64, u64) = (60, 10_000);

/// The rows of a contract, by family and the rest of their keys.
type OwnRows = BTreeSet<(&'static str, Vec<u8>)>;

/// Any stored ledger may say something of a contract.
fn from_the_beginning(_: &ContractId) -> Result<LedgerSeq, StoreError> {
    Ok(LedgerSeq(0))
}

impl World {
    /// Watches these contracts, and no others. Returns whether all of them are watched.
    fn watch(&mut self, wanted: &BTreeSet<ContractId>) -> bool {
        let first = |contract: &ContractId| self.first_of(contract);
        let is_settled = set_watched(&self.store, wanted, first).unwrap();
        let filled = watched(&self.store).unwrap();
        assert!(filled.is_subset(wanted));
        self.watched = Some(filled);
        is_settled
    }

    /// Returns the first stored ledger that may say anything of a contract.
    fn first_of(&self, contract: &ContractId) -> Result<LedgerSeq, StoreError> {
        for range in self.store.status().ranges {
            for ledger in (range.first.0..=range.last.0).map(LedgerSeq) {
                let is_whole = self.store.has_all_transactions(ledger)?;
                let evicted = self.store.evicted(ledger)?.unwrap_or_default();
                if !is_whole
                    || read(&self.store, ledger)?.iter().any(|seen| seen.contract == *contract)
                    || evicted.iter().any(|evicted| evicted.contract == *contract)
                {
                    return Ok(ledger);
                }
            }
        }
        Ok(LedgerSeq(u32::MAX))
    }

    /// Watches another contract, or one less.
    fn watch_others(&mut self, history: &StorageHistory, rng: &mut StdRng) -> BTreeSet<ContractId> {
        let mut wanted = self.wanted();
        let one = history.contracts.keys().choose(rng).map(|it| ContractId(*it)).unwrap();
        if !wanted.remove(&one) {
            wanted.insert(one);
        }
        self.watch(&wanted);
        wanted
    }

    /// The contracts that are watched, with those that lack rows.
    fn wanted(&self) -> BTreeSet<ContractId> {
        let mut wanted = BTreeSet::new();
        let view = self.store.consumer_view(crate::CONSUMER, RowBounds::none()).unwrap();
        let scanned = crate::scope::WATCHED.scan_all(&view, None, |contract, watch| {
            if watch.state != crate::scope::WatchState::Leaving {
                wanted.insert(contract);
            }
            Ok(ControlFlow::Continue(()))
        });
        scanned.unwrap();
        wanted
    }

    /// Does some of what the thread does that keeps watched contracts up.
    fn keep_up(&mut self, rng: &mut StdRng) {
        if rng.random_bool(0.5) {
            remove_up_to(&self.store, rng.random_range(1..20)).unwrap();
        }
        if rng.random_bool(0.5) {
            fill_some(&self.store).unwrap();
        }
    }

    /// Does all of it.
    fn settle(&mut self, wanted: &BTreeSet<ContractId>) {
        while !self.watch(wanted) {
            while remove_some(&self.store).unwrap() {}
        }
        while remove_some(&self.store).unwrap() {}
        while fill_some(&self.store).unwrap() != Filling::Done {}
        assert!(are_recorded(&self.store, wanted).unwrap());
        assert_eq!(watched(&self.store).unwrap(), *wanted);
        self.watched = Some(wanted.clone());
    }

    /// Nothing is known of contracts that nobody watches, or that lack rows.
    fn assert_unknown(&self, history: &StorageHistory, case: &str) {
        let Some(newest) = self.store.status().latest() else { return };
        let lookup = Lookup::new(&self.store, newest, RowBounds::none()).unwrap();
        let known = watched(&self.store).unwrap();
        for contract in history.contracts.keys().map(|it| ContractId(*it)) {
            if known.contains(&contract) {
                continue;
            }
            assert_eq!(lookup.range(&contract).unwrap(), None, "{case}, {contract}");
            assert_eq!(lookup.names(&contract).unwrap(), (0, Vec::new()), "{case}, {contract}");
            assert_eq!(lookup.known_elsewhere(&contract).unwrap(), None, "{case}, {contract}");
        }
        for (hash, key) in history.keys.iter().filter(|(_, key)| is_recorded(key)) {
            let Some(contract) = contract_of(key).map(ContractId) else { continue };
            if !known.contains(&contract) {
                let held = lookup.held((contract, KeyTag::of(&Hash32(*hash)))).unwrap();
                assert_eq!(held, Held::Unknown { live_until: None }, "{case}, {key:?}");
            }
        }
    }

    fn rows_of(&self, contract: &ContractId) -> OwnRows {
        let view = self.store.consumer_view(crate::CONSUMER, RowBounds::none()).unwrap();
        let mut rows = OwnRows::new();
        for family in BY_CONTRACT {
            let mut add = |key: &[u8], _: &[u8]| {
                rows.insert((family, key.to_vec()));
                Ok(ControlFlow::Continue(()))
            };
            view.scan_prefix(family, &contract.encode(), &[], &mut add).map(drop).unwrap();
        }
        view.scan(FOUND.family, |key, _| {
            if key[4..].starts_with(&contract.0) {
                rows.insert((FOUND.family, key.to_vec()));
            }
        })
        .unwrap();
        rows
    }
}

#[test]
fn contracts_that_come_and_go_are_known_as_if_they_always_had_been_watched_or_not_at_all() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed ^ 0x3a7c);
        let mut order: Vec<u32> = (history.first()..=history.last()).collect();
        order.retain(|_| rng.random_bool(0.95));
        if rng.random_bool(0.5) {
            order.shuffle(rng);
        }
        let (mut world, mut always) = (World::new(&history), World::new(&history));
        let begins_with_all = rng.random_bool(0.3);
        if !begins_with_all {
            assert!(set_scope(&world.store, Scope::Watched).unwrap());
        }
        let watched_at = rng.random_range(0..order.len());
        let case = format!("seed {seed}, {order:?}, watched at {watched_at}");
        for (at, sequence) in order.iter().enumerate() {
            let is_raw = rng.random_bool(0.7) || history.origin == Some(*sequence);
            world.add(&history.ledger(*sequence).xdr, is_raw);
            always.add(&history.ledger(*sequence).xdr, is_raw);
            if rng.random_bool(0.5) {
                world.step();
            }
            if at == watched_at {
                assert_eq!(set_scope(&world.store, Scope::Watched).unwrap(), begins_with_all);
                let wanted = world.watch_others(&history, rng);
                assert!(!are_recorded(&world.store, &wanted).unwrap());
            }
            if at >= watched_at {
                for _ in 0..rng.random_range(0..3) {
                    if rng.random_bool(0.4) {
                        world.watch_others(&history, rng);
                        world.assert_unknown(&history, &format!("{case} up to {at}"));
                    }
                    world.keep_up(rng);
                    if rng.random_bool(0.1) {
                        world = world.reopened();
                    }
                }
                world.assert_unknown(&history, &format!("{case} up to {at}"));
            }
        }
        let wanted = world.wanted();
        world.settle(&wanted);
        world.step();
        always.step();
        world.compare(&history, 0, &case);
        world.compare_histories(&history, rng, &case);
        world.assert_unknown(&history, &case);
        for contract in history.contracts.keys().map(|it| ContractId(*it)) {
            let expected = match wanted.contains(&contract) {
                true => always.rows_of(&contract),
                false => OwnRows::new(),
            };
            assert_eq!(world.rows_of(&contract), expected, "{case}, {contract}");
        }
        // All again.
        assert!(set_scope(&world.store, Scope::All).unwrap());
        assert_eq!(scope(&world.store).unwrap(), Scope::All);
        world.watched = None;
        world.step();
        world.compare(&history, 0, &format!("{case}, all again"));
    });
}

#[test]
fn what_retention_removes_while_a_contract_is_not_watched_is_not_known_and_nothing_is_wrong() {
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
            if at == watched_at || (at > watched_at && rng.random_bool(0.1)) {
                world.watch_others(&history, rng);
            }
            if at >= watched_at && rng.random_bool(0.3) {
                world.keep_up(rng);
            }
            if rng.random_bool(0.2) {
                let kept = rng.random_range(4..20);
                let retention = Retention { transactions: Some(kept), ..Retention::default() };
                while !world.store.prune(&retention).unwrap().is_nothing() {}
                let latest = order[..=at].iter().max().unwrap();
                floor = floor.max((latest + 1).saturating_sub(kept));
            }
        }
        let wanted = world.wanted();
        world.settle(&wanted);
        world.assert_unknown(&history, &format!("seed {seed}, {order:?}"));
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

/// The state at a checkpoint is recorded of watched contracts. Where one ceases to be watched before, while or
/// after that is done, none of it is left, and none of it counts when the contract is watched again.
#[test]
fn a_checkpoint_leaves_nothing_of_a_contract_that_nobody_watches() {
    histories::run(SIZE.0 / 2, SIZE.1 / 10, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed ^ 0x77aa);
        let mut world = World::new(&history);
        set_scope(&world.store, Scope::Watched).unwrap();
        // Without the first ledgers, the archive knows more than they say.
        let first = history.first() + rng.random_range(1..4);
        for sequence in first..=history.last() {
            world.add(&history.ledger(sequence).xdr, true);
        }
        world.step();
        let all: BTreeSet<_> = history.contracts.keys().map(|it| ContractId(*it)).collect();
        world.settle(&all);
        let gone = *all.iter().choose(rng).unwrap();
        let others: BTreeSet<_> = all.iter().copied().filter(|it| *it != gone).collect();
        let at = rng.random_range(first..=history.last());
        let state = state_of(&history, at, None);
        let (comes_back, has_left) = (rng.random_bool(0.5), Cell::new(false));
        let leave = || {
            if !has_left.replace(true) {
                set_watched(&world.store, &others, from_the_beginning).unwrap();
                while remove_some(&world.store).unwrap() {}
                if comes_back {
                    assert!(set_watched(&world.store, &all, from_the_beginning).unwrap());
                    while fill_some(&world.store).unwrap() != Filling::Done {}
                }
            }
        };
        let (is_during, store) = (rng.random_bool(0.7), Arc::clone(&world.store));
        let recording = Recording {
            store: &store,
            ledger: LedgerSeq(at),
            contracts: Some(&all),
            is_attested: true,
            observe: &|_| {
                if is_during {
                    leave();
                }
                true
            },
        };
        recording.record(found(&state).into_iter()).unwrap();
        leave();
        let case = format!("seed {seed}, at {at}, {gone}, during {is_during}, back {comes_back}");
        let of_archive = [FOUND.family, "checked"];
        let left = world.rows_of(&gone);
        let from_archive = left.iter().filter(|(family, _)| of_archive.contains(family)).count();
        assert_eq!(from_archive, 0, "{case}");
        assert!(comes_back || left.is_empty(), "{case}");
        let lookup = Lookup::new(&world.store, LedgerSeq(at), RowBounds::none()).unwrap();
        for (hash, key) in world.keys(&history) {
            let contract = ContractId(contract_of(key).unwrap());
            if contract == gone {
                let held = lookup.held((contract, KeyTag::of(&Hash32(*hash)))).unwrap();
                match comes_back {
                    true => {
                        let case = || format!("{case}, {key:?}");
                        assert_same(&held, &world.model.at(key, at), &case);
                    }
                    false => assert_eq!(held, Held::Unknown { live_until: None }, "{case}"),
                }
            }
        }
    });
}

/// Rows beyond the number that one piece reads are removed, too, many of them by their range.
#[test]
fn a_contract_with_many_rows_is_removed_in_pieces() {
    let history = StorageHistory::small(1);
    let mut world = World::new(&history);
    set_scope(&world.store, Scope::Watched).unwrap();
    let (large, small) = (ContractId([7; 32]), ContractId([8; 32]));
    world.settle(&BTreeSet::from([large, small]));
    for first in 0..30 {
        let put = world.store.change_consumer_rows(crate::CONSUMER, move |effects| {
            for number in 0..100_u32 {
                let name = (first * 100 + number).to_be_bytes().to_vec();
                let row = crate::rows::NameRow::default();
                crate::rows::NAMES.put(effects, &(large, name.clone()), &row)?;
                if number < 50 {
                    crate::rows::NAMES.put(effects, &(small, name), &row)?;
                }
            }
            Ok::<_, StoreError>(())
        });
        put.unwrap();
    }
    world.watch(&BTreeSet::from([small]));
    let mut pieces = 1;
    while remove_up_to(&world.store, 400).unwrap() {
        pieces += 1;
        world = world.reopened();
    }
    assert!(pieces > 7, "{pieces}");
    assert_eq!((world.rows_of(&large).len(), world.rows_of(&small).len()), (0, 1500));
    // By its range.
    world.watch(&BTreeSet::new());
    while remove_some(&world.store).unwrap() {}
    assert!(world.rows_of(&small).is_empty() && world.wanted().is_empty());
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
