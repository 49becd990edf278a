//! Replays of ledgers in several requests: each stops where no more deliveries may wait.

use std::collections::BTreeMap;

use orrery::domain::{LedgerRange, LedgerSeq};
use orrery::settings::{Webhooks, nonzero};
use orrery::store::EventQuery;
use orrery::webhooks::rows::State;

use super::schedule::{HOUR, Scene, always};
use super::world::{owner, status};

/// Last ledger of the chain.
const LAST: u32 = 40;
/// Number of deliveries that may wait.
const BACKLOG: u64 = 5;

#[test]
fn a_replay_stops_where_the_backlog_is_full_and_the_next_goes_on_from_there() {
    let mut scene = Scene::with(Webhooks { backlog: nonzero!(5), ..Default::default() });
    (1..=LAST).for_each(|ledger| scene.commit(ledger));
    let mut events: BTreeMap<u32, u64> = BTreeMap::new();
    let all = EventQuery::of_ledgers(LedgerRange::new(1, LAST));
    let query = EventQuery { contracts: vec![scene.contract()], ..all };
    let count = |event: &orrery::store::EventRecord<'_>| {
        *events.entry(event.ledger.0).or_default() += 1;
    };
    scene.world.store.events(&query, count).unwrap();
    let id = scene.subscribe("https://example.com/");
    scene.world.feed();
    scene.world.deliver(0, always(status(200)));

    let (mut first, mut requests) = (1, 0);
    loop {
        let range = LedgerRange::new(first, LAST);
        let done = scene.world.webhooks.replay_ledgers(&owner("ana"), id, range, &|| false);
        let done = done.unwrap();
        let (mut count, mut next) = (0, None);
        for ledger in first..=LAST {
            if count >= BACKLOG {
                next = Some(LedgerSeq(ledger));
                break;
            }
            count += events.get(&ledger).copied().unwrap_or(0);
        }
        assert_eq!((done.deliveries, done.next), (count, next));
        scene.world.run_until(scene.world.now() + HOUR);
        requests += 1;
        let Some(next) = next else { break };
        first = next.0;
    }
    assert!(requests > 2, "{requests} requests, {events:?}");
    let deliveries = scene.world.deliveries("ana", id);
    assert_eq!(deliveries.len() as u64, events.values().sum::<u64>());
    assert!(deliveries.iter().all(|(_, it)| it.state == State::Delivered));
    assert_eq!(scene.world.sent.lock().len(), deliveries.len(), "each is sent once");
}
