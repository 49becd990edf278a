//! Generated histories: ledgers arrive in pieces, consumers are behind or ahead, the store is closed and
//! opened again, and what subscriptions are told is what whole ledgers say. A replay tells the same under the
//! same ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery::domain::{ContractId, LedgerRange};
use orrery::store::Fault;
use orrery::webhooks::trigger::Trigger;
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;
use orrery_testkit::storage::histories::StorageHistory;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::members::{Members, Stand};
use super::model::{Chain, Watch};
use super::scene::{Scene, compare, trigger};

/// Returns the seeds to try: those of `ORRERY_TEST_SEED`, or so many.
fn seeds(small: u64, full: u64) -> std::ops::Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a seed is a number");
    match std::env::var("ORRERY_TEST_SEED") {
        Ok(given) => match given.split_once("..") {
            Some((first, end)) => number(first)..number(end),
            None => number(&given)..number(&given) + 1,
        },
        Err(_) => 0..size::choose(small, full),
    }
}

/// A subscription to a project.
#[derive(Debug, Clone)]
struct Follow {
    project: String,
    /// Since when each is a member.
    members: BTreeMap<ContractId, u32>,
    /// Whether all members are known as soon as they are members.
    is_prompt: bool,
    trigger: Trigger,
    after: u32,
}

/// Makes a project of some contracts.
fn project(rng: &mut StdRng, stand: &Stand, contracts: &[ContractId], last: u32) -> Follow {
    let project = format!("p{}", rng.random::<u32>());
    let (is_prompt, mut members) = (rng.random_ratio(2, 3), Members::new());
    for contract in contracts {
        if rng.random_ratio(3, 4) {
            let since = rng.random_range(0..=last);
            let known = if is_prompt { since } else { rng.random_range(since..=last) };
            members.insert(*contract, (since, known));
        }
    }
    stand.add(&project, members.clone());
    let members = members.into_iter().map(|(contract, (since, _))| (contract, since)).collect();
    Follow { project, members, is_prompt, trigger: trigger(rng.random()), after: 0 }
}

#[test]
fn what_is_told_is_what_whole_ledgers_say() {
    let mut told = [[0usize; 5]; 2];
    let seeds = seeds(40, 5_000);
    let is_one = seeds.clone().count() == 1;
    for seed in seeds {
        check(seed, &mut told);
    }
    println!(
        "told of contracts and of projects: storage, upgrade, failed_call, silence, ttl: {told:?}"
    );
    assert!(is_one || told.iter().flatten().all(|count| *count > 0), "{told:?}");
}

fn check(seed: u64, told: &mut [[usize; 5]; 2]) {
    let history = StorageHistory::small(seed);
    let rng = &mut StdRng::seed_from_u64(seed ^ 0x7219_9e75);
    let raws: Vec<&Vec<u8>> = history.ledgers.iter().map(|ledger| &ledger.xdr).collect();
    let chain = Chain::of(&history.network, raws.iter().copied());
    let directory = scratch();
    let stand: Arc<Stand> = Arc::default();
    let open = || Scene::open_with(directory.path(), &history.network, Arc::clone(&stand));
    let mut scene = open();
    let mut watched: Vec<(u32, Watch)> = Vec::new();
    let mut followed: Vec<(u32, Follow)> = Vec::new();
    let last = history.ledgers.last().map_or(0, |ledger| ledger.sequence);
    let contracts: Vec<ContractId> = history.contracts.keys().copied().map(ContractId).collect();
    for (at, raw) in raws.iter().enumerate() {
        if rng.random_ratio(1, 3) || at == 0 {
            // What is stored is known to all before somebody subscribes: see `after_place`.
            for _ in 0..rng.random_range(1..6) {
                let trigger = trigger(rng.random());
                let contract = contracts[rng.random_range(0..contracts.len())];
                let after = at.checked_sub(1).map_or(0, |last| history.ledgers[last].sequence);
                let id = scene.subscribe(contract, trigger.clone(), false);
                watched.push((id, Watch { contract, trigger, after }));
            }
            if rng.random_ratio(1, 2) {
                let after = at.checked_sub(1).map_or(0, |last| history.ledgers[last].sequence);
                let follow = Follow { after, ..project(rng, &stand, &contracts, last) };
                followed.push((scene.follow(&follow.project, follow.trigger.clone()), follow));
            }
        }
        scene.commit(raw);
        match rng.random_range(0..10) {
            0 => drop(scene.step()),
            1 | 2 => scene.index(),
            3 | 4 => {
                scene.index();
                for _ in 0..rng.random_range(1..4) {
                    scene.step();
                }
            }
            5 => {
                // As a kill before or after the write of a step.
                scene.index();
                scene.fail_step(if rng.random() { Fault::NotWritten } else { Fault::Written });
                if rng.random() {
                    drop(scene);
                    scene = open();
                }
            }
            6 => {}
            _ => scene.feed(),
        }
        if rng.random_ratio(1, 8) {
            drop(scene);
            scene = open();
        }
    }
    scene.feed();
    let whole = LedgerRange::new(0, u32::MAX);
    for (id, watch) in &watched {
        let about = format!("seed {seed}, subscription {id}: {watch:?}");
        let expected = chain.expected(watch);
        compare(&scene.deliveries(*id), &expected, &about);
        told[0][kind(&watch.trigger)] += expected.len();
        let of_all = match watch.trigger.may_be_backfilled() {
            true => chain.expected(&Watch { after: 0, ..watch.clone() }),
            false => expected,
        };
        scene.replay(*id, whole);
        compare(&scene.deliveries(*id), &of_all, &format!("replayed, {about}"));
    }
    for (id, follow) in &followed {
        told[1][kind(&follow.trigger)] += check_project(&scene, &chain, (*id, follow), seed);
    }
}

/// Checks what a subscription to a project was told, and is replayed and previewed. Returns how much it was told.
fn check_project(scene: &Scene, chain: &Chain, (id, follow): (u32, &Follow), seed: u64) -> usize {
    let about = format!("seed {seed}, subscription {id}: {follow:?}");
    let Follow { project, members, is_prompt, trigger, after } = follow;
    let expected = |after| chain.expected_of_members(members, trigger, after);
    let live = expected(*after);
    let sent = scene.deliveries(id);
    if *is_prompt {
        compare(&sent, &live, &about);
    } else if !matches!(trigger, Trigger::Silence { .. }) {
        // What became known late was not sent, and nothing else was.
        let is_expected = |of: &String| live.iter().any(|(id, _)| id == of);
        assert!(sent.iter().all(|(id, _)| is_expected(id)), "{about}");
    }
    let first = if trigger.may_be_backfilled() { 0 } else { *after };
    if *is_prompt || !matches!(trigger, Trigger::Silence { .. }) {
        scene.replay(id, LedgerRange::new(0, u32::MAX));
        compare(&scene.deliveries(id), &expected(first), &format!("replayed, {about}"));
    }
    let (previewed, ledgers) = scene.previewed(project, trigger.clone());
    if ledgers == chain.ledgers() {
        assert_eq!(previewed, expected(0).len() as u64, "previewed, {about}");
    }
    live.len()
}

fn kind(trigger: &Trigger) -> usize {
    match trigger {
        Trigger::Storage { .. } => 0,
        Trigger::Upgrade => 1,
        Trigger::FailedCall { .. } => 2,
        Trigger::Silence { .. } => 3,
        Trigger::Ttl { .. } | Trigger::Event => 4,
    }
}

/// With `include_backfill`, ledgers that are stored in any order tell the same as those that are stored one
/// after the other, if each is told once.
#[test]
fn older_ledgers_tell_the_same() {
    for seed in seeds(10, 500) {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed);
        let raws: Vec<&Vec<u8>> = history.ledgers.iter().map(|ledger| &ledger.xdr).collect();
        let chain = Chain::of(&history.network, raws.iter().copied());
        let directory = scratch();
        let scene = Scene::open(directory.path(), &history.network);
        let mut watched = Vec::new();
        for contract in history.contracts.keys().copied().map(ContractId) {
            for number in 0..3 {
                let trigger = trigger(5 * rng.random_range(0..1_000_000) + number);
                let id = scene.subscribe(contract, trigger.clone(), true);
                watched.push((id, Watch { contract, trigger, after: 0 }));
            }
        }
        // The newer part first, then the older one.
        let middle = rng.random_range(0..raws.len());
        for raw in raws[middle..].iter().chain(&raws[..middle]) {
            scene.commit(raw);
            if rng.random() {
                scene.feed();
            }
        }
        scene.feed();
        for (id, watch) in &watched {
            let about = format!("seed {seed}, subscription {id}: {watch:?}");
            let found = scene.deliveries(*id);
            let ids: Vec<&String> = found.iter().map(|(id, _)| id).collect();
            let expected = chain.expected(watch);
            assert_eq!(ids, expected.iter().map(|(id, _)| id).collect::<Vec<_>>(), "{about}");
        }
    }
}
