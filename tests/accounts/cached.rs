//! Cached answers after whatever changes the rows behind them: each equals the answer of a server that
//! has answered nothing before.
//!
//! Small: 6 histories; full: 300.

use orrery::accounts::AccountIndex;
use orrery::accounts::passkey::PasskeyWallets;
use orrery::accounts::smart::SmartAccounts;
use orrery::store::{Consumed, LedgerConsumer, Losses, Retention};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::histories::{AccountKind, history};
use crate::world::{PASSKEY, SMART, World, consumers};
use orrery_testkit::account_events::contract_id;
use orrery_testkit::histories;
use orrery_testkit::server::Server;

const LEDGERS: u32 = 30;
const CONTRACTS: u16 = 4;

/// Routes whose answers are cached, with and without a token.
fn targets() -> Vec<String> {
    let mut targets: Vec<String> = [SMART, PASSKEY]
        .iter()
        .flat_map(|base| [format!("{base}/api/stats"), format!("{base}/api/lookup/00ff")])
        .collect();
    for number in 0..CONTRACTS {
        let contract = contract_id(number);
        targets.push(format!("{SMART}/api/contract/{contract}"));
        targets.push(format!("{PASSKEY}/api/wallet/{contract}"));
        targets.push(format!("{SMART}/api/lookup/address/{contract}"));
        targets.push(format!("/rest/events/by-contract/{contract}?limit=5"));
        targets.push(format!("/rest/txs/by-contract/{contract}?limit=5"));
    }
    targets
        .extend(["/rest/events/by-ledger?limit=9", "/rest/txs/by-ledger?limit=9"].map(Into::into));
    targets
}

fn answers(server: &Server, targets: &[String]) -> Vec<(u16, Vec<u8>)> {
    let authorization = format!("Bearer {}", server.token);
    let mut connection = server.connect();
    let headers = [("authorization", authorization.as_str())];
    let ask = |target: &String| {
        let answer = connection.request("GET", target, &headers);
        // The bodies of errors contain the id of the request.
        let body = if answer.status == 200 { answer.body } else { Vec::new() };
        (answer.status, body)
    };
    targets.iter().map(ask).collect()
}

/// Rebuilds an index, at once, whatever it loses.
fn rebuild(world: &World, consumer: &dyn LedgerConsumer) {
    let (store, name) = (&world.temp.store, consumer.spec().name);
    let second = store.begin_rebuild(name, Losses::Accepted).unwrap();
    loop {
        let taken = store
            .consume(&second, 8, |ledger, effects| consumer.process_ledger(store, ledger, effects));
        if !matches!(taken.unwrap(), Consumed::Ledgers(_)) {
            break;
        }
    }
    assert!(store.finish_rebuild(name).unwrap());
}

#[test]
fn cached_answers_equal_those_of_a_new_server() {
    let targets = targets();
    histories::run(6, 300, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let [mut all, more] = [AccountKind::Smart, AccountKind::Passkey]
            .map(|of| history(&mut rng, of, LEDGERS, CONTRACTS));
        all.iter_mut().zip(more).for_each(|(all, more)| all.extend(more));
        let world = World::new();
        let mut next = 1;
        for _ in 0..14 {
            match rng.random_range(0..6) {
                0..3 => {
                    let last = (next + rng.random_range(0..4)).min(LEDGERS);
                    (next..=last).for_each(|it| world.add(it, &all[it as usize - 1]));
                    next = last + 1;
                }
                3 => {
                    let kept = Some(rng.random_range(1..LEDGERS));
                    let retention =
                        Retention { events: kept, transactions: kept, ..Retention::default() };
                    world.temp.store.flush().unwrap();
                    while !world.temp.store.prune(&retention).unwrap().is_nothing() {}
                }
                _ => {
                    let of = [SmartAccounts::CONSUMER, PasskeyWallets::CONSUMER];
                    let name = *of.choose(&mut rng).unwrap();
                    let consumer = consumers().into_iter().find(|it| it.spec().name == name);
                    rebuild(&world, &*consumer.unwrap());
                }
            }
            // Twice, so that the second is from the cache.
            let first = answers(&world.server, &targets);
            assert!(first == answers(&world.server, &targets));
            let new = Server::start_with(&world.temp, |deps| {
                deps.settings.indexers.fixed_clock = 1_700_000_000;
                deps.settings.indexers.fixed_network_ledger = 1_000;
            });
            for ((target, cached), computed) in
                targets.iter().zip(&first).zip(answers(&new, &targets))
            {
                let text = |(_, body): &(u16, Vec<u8>)| String::from_utf8_lossy(body).into_owned();
                assert!(
                    *cached == computed,
                    "{target}: {} {}, but computed {} {}",
                    cached.0,
                    text(cached),
                    computed.0,
                    text(&computed)
                );
            }
        }
    });
}
