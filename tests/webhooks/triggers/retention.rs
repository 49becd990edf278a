//! Silence where events are removed, and where subscriptions were disabled for a while: what was heard counts, whether
//! it is still stored or not. And times to live that nobody needs any more.

use orrery::domain::{ContractId, LedgerRange};
use orrery::store::{Retention, RowBounds};
use orrery::webhooks::CONSUMER;
use orrery::webhooks::rows::LIVES;
use orrery::webhooks::trigger::{Entries, Keys, Trigger};
use orrery_testkit::scratch::scratch;
use orrery_testkit::storage::histories::StorageHistory;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::model::{Chain, Expected, Watch};
use super::scene::{Scene, ana, compare};

fn events(kept: u32) -> Retention {
    let (raw_ledgers, transactions) = (None, None);
    Retention { raw_ledgers, events: Some(kept), transactions, wait_for_consumers: u32::MAX }
}

fn ledger_of(expected: &Expected) -> u32 {
    expected.0.split('-').nth(1).unwrap().parse().unwrap()
}

/// Events are removed behind each ledger, also those that a silence is counted from.
#[test]
fn a_silence_is_counted_from_events_that_retention_has_removed() {
    let mut told = 0;
    for seed in 0..20 {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed);
        let raws: Vec<&Vec<u8>> = history.ledgers.iter().map(|ledger| &ledger.xdr).collect();
        let chain = Chain::of(&history.network, raws.iter().copied());
        let directory = scratch();
        let mut scene = Scene::open(directory.path(), &history.network);
        let mut watched = Vec::new();
        for contract in history.contracts.keys().copied().map(ContractId) {
            for within in 1..6 {
                let trigger = Trigger::Silence { within };
                let id = scene.subscribe(contract, trigger.clone(), false);
                watched.push((id, Watch { contract, trigger, after: 0 }));
            }
        }
        let kept = rng.random_range(1..4);
        for raw in &raws {
            scene.commit(raw);
            scene.feed();
            while !scene.store.prune(&events(kept)).unwrap().is_nothing() {}
            if rng.random_ratio(1, 8) {
                drop(scene);
                scene = Scene::open(directory.path(), &history.network);
            }
        }
        for (id, watch) in &watched {
            let about = format!("seed {seed}, {kept} kept, subscription {id}: {watch:?}");
            let expected = chain.expected(watch);
            compare(&scene.deliveries(*id), &expected, &about);
            told += expected.len();
            // Of removed events it is not known when the silence began: nothing else is told.
            scene.replay(*id, LedgerRange::new(0, u32::MAX));
            compare(&scene.deliveries(*id), &expected, &format!("replayed, {about}"));
        }
    }
    assert!(told > 0);
}

/// What happened while a subscription was disabled is looked for beside the ledgers that follow, and tells nothing
/// of the time in which it was disabled.
#[test]
fn a_subscription_that_was_disabled_hears_what_happened_meanwhile() {
    let mut told = 0;
    for seed in 0..20 {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed);
        let raws: Vec<&Vec<u8>> = history.ledgers.iter().map(|ledger| &ledger.xdr).collect();
        let chain = Chain::of(&history.network, raws.iter().copied());
        let directory = scratch();
        let scene = Scene::open(directory.path(), &history.network);
        let mut watched = Vec::new();
        for contract in history.contracts.keys().copied().map(ContractId) {
            for within in 1..6 {
                let trigger = Trigger::Silence { within };
                let id = scene.subscribe(contract, trigger.clone(), false);
                watched.push((id, Watch { contract, trigger, after: 0 }));
            }
        }
        let first = rng.random_range(0..raws.len() - 1);
        let last = rng.random_range(first..raws.len() - 1);
        for (at, raw) in raws.iter().enumerate() {
            if at == first {
                scene.feed();
                watched.iter().for_each(|(id, _)| scene.disable(*id));
            }
            scene.commit(raw);
            if at >= first && rng.random() || at == last {
                scene.feed();
            }
            if at == last {
                let enable = |(id, _): &(u32, Watch)| scene.webhooks.enable(&ana(), *id).unwrap();
                watched.iter().for_each(|it| drop(enable(it)));
            }
        }
        scene.feed();
        let disabled = history.ledgers[first].sequence..=history.ledgers[last].sequence;
        for (id, watch) in &watched {
            let about = format!("seed {seed}, disabled in {disabled:?}, {id}: {watch:?}");
            let mut expected = chain.expected(watch);
            expected.retain(|it| !disabled.contains(&ledger_of(it)));
            told += expected.len();
            compare(&scene.deliveries(*id), &expected, &about);
        }
    }
    assert!(told > 0);
}

/// Times to live that ended before the first ledger of each subscription are removed; those that a replay needs stay.
#[test]
fn times_to_live_that_nobody_needs_are_removed() {
    let (mut removed, mut told) = (0, 0);
    for seed in 0..20 {
        let history = StorageHistory::small(seed);
        let raws: Vec<&Vec<u8>> = history.ledgers.iter().map(|ledger| &ledger.xdr).collect();
        let chain = Chain::of(&history.network, raws.iter().copied());
        let directory = scratch();
        let scene = Scene::open(directory.path(), &history.network);
        let entries = Entries { instance: true, code: true, data: true };
        let trigger = Trigger::Ttl { within: 3, entries, keys: Keys::default() };
        let contracts: Vec<ContractId> =
            history.contracts.keys().copied().map(ContractId).collect();
        let subscribe = || -> Vec<(u32, ContractId)> {
            let each = contracts.iter().copied();
            each.map(|it| (scene.subscribe(it, trigger.clone(), false), it)).collect()
        };
        let early = subscribe();
        let middle = raws.len() / 2;
        raws[..middle].iter().for_each(|raw| scene.commit(raw));
        scene.feed();
        let after = history.ledgers[middle - 1].sequence;
        let late = subscribe();
        early.iter().for_each(|(id, _)| scene.webhooks.delete(&ana(), *id).unwrap());
        for raw in &raws[middle..] {
            scene.commit(raw);
            scene.feed();
        }
        let before = lives(&scene);
        scene.webhooks.sweep().unwrap();
        removed += before - lives(&scene);
        for (id, contract) in late {
            let watch = Watch { contract, trigger: trigger.clone(), after };
            let expected = chain.expected(&watch);
            told += expected.len();
            let about = format!("seed {seed}, {id}: {watch:?}");
            scene.replay(id, LedgerRange::new(0, u32::MAX));
            compare(&scene.deliveries(id), &expected, &about);
        }
    }
    assert!(removed > 0 && told > 0, "{removed} removed, {told} told");
}

fn lives(scene: &Scene) -> usize {
    let view = scene.store.consumer_view(CONSUMER, RowBounds::none()).unwrap();
    let mut count = 0;
    LIVES
        .scan_all(&view, None, |_, ()| {
            count += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    count
}
