//! The comparison of `state` on incomplete stores: gaps, other orders of ingestion, pruning, listed
//! contracts. Fewer entries are known then, and no result is wrong.

use orrery::domain::ContractId;
use orrery::store::{IndexOptions, Retention, Store};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::state::{Answers, check, timeline};
use crate::state_sections::{Section, core_tests, local_network, public};
use orrery_testkit::size;

/// Ledgers to store, in order of ingestion.
fn some_order(rng: &mut ChaCha8Rng, section: &Section) -> Vec<u32> {
    let (first, last) = (section.first(), section.last());
    let mut gap = || {
        let from = rng.random_range(first..=last);
        from..(from + rng.random_range(1..6)).min(last)
    };
    let gaps = [gap(), gap()];
    let mut pieces: Vec<Vec<u32>> = vec![Vec::new()];
    for sequence in first..=last {
        if gaps.iter().any(|gap| gap.contains(&sequence)) {
            pieces.push(Vec::new());
        } else {
            pieces.last_mut().unwrap().push(sequence);
        }
    }
    match rng.random_range(0..3) {
        0 => {}
        // Newer ledgers first, then older ones.
        1 => pieces.reverse(),
        _ => pieces.shuffle(rng),
    }
    let mut order: Vec<u32> = pieces.into_iter().flatten().collect();
    if rng.random_bool(0.3) {
        // The gaps are filled last.
        order.extend(
            (first..=last).filter(|sequence| gaps.iter().any(|gap| gap.contains(sequence))),
        );
        order.dedup();
        let mut seen = std::collections::BTreeSet::new();
        order.retain(|sequence| seen.insert(*sequence));
    }
    order
}

fn prune(rng: &mut ChaCha8Rng, store: &Store, ledgers: u32) {
    let mut kept =
        |probability| rng.random_bool(probability).then(|| rng.random_range(1..=ledgers));
    let retention = Retention {
        raw_ledgers: kept(0.5),
        events: kept(0.2),
        transactions: kept(0.5),
        ..Retention::default()
    };
    while !store.prune(&retention).unwrap().is_nothing() {}
}

#[test]
fn incomplete_stores_give_no_wrong_entries() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut sum = Answers::default();
    let sections = core_tests().into_iter().chain(local_network()).chain(public());
    for section in sections.filter(|section| section.ledgers.len() > 3) {
        let timeline = timeline(&section);
        for _ in 0..size::choose(2, 12) {
            let options =
                IndexOptions { raw_ledgers: rng.random_bool(0.6), ..IndexOptions::default() };
            let order = some_order(&mut rng, &section);
            let stored = section.store(order, &options);
            if rng.random_bool(0.5) {
                prune(&mut rng, &stored.store, section.ledgers.len() as u32);
            }
            sum.add(&check(&section, &timeline, &stored.store, None));
        }
    }
    eprintln!("parts: {sum}");
    if sum.transactions > 0 {
        assert!(sum.present > 4 * sum.known_to_model(), "{sum}");
    }
}

#[test]
fn stores_of_listed_contracts_give_no_wrong_entries() {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let mut sum = Answers::default();
    for section in core_tests().into_iter().chain(local_network()).chain(public()) {
        let timeline = timeline(&section);
        let contracts = section.contracts();
        if contracts.is_empty() {
            continue;
        }
        for raw_ledgers in [true, false] {
            let some: Vec<ContractId> =
                contracts.choose_multiple(&mut rng, contracts.len().div_ceil(2)).copied().collect();
            let options = IndexOptions {
                contracts: Some(some.into_iter().collect()),
                raw_ledgers,
                ..IndexOptions::default()
            };
            let stored = section.store(section.first()..=section.last(), &options);
            sum.add(&check(&section, &timeline, &stored.store, None));
        }
    }
    eprintln!("listed contracts: {sum}");
}
