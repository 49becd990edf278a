//! Silence of events of which it is not known whether they count: they lead to no alarm, and are counted.

use std::sync::Arc;

use orrery::domain::{ContractId, LedgerRange};
use orrery::store::{Bounds, EventQuery};
use orrery::webhooks::manage::NewSubscriptions;
use orrery::webhooks::trigger::Trigger;
use orrery_testkit::scratch::scratch;
use orrery_testkit::storage::histories::StorageHistory;

use super::members::{Members, Stand, UNSURE};
use super::model::Chain;
use super::scene::{Scene, ana, compare};

#[test]
fn what_is_not_judged_leads_to_no_alarm_and_is_counted() {
    let (mut told, mut counted) = (0, 0);
    for seed in 0..10 {
        let history = StorageHistory::small(seed);
        let chain = Chain::of(&history.network, history.ledgers.iter().map(|it| &it.xdr));
        let contract = history.contracts.keys().copied().map(ContractId).next().unwrap();
        let stand: Arc<Stand> = Arc::default();
        stand.add(UNSURE, Members::from([(contract, (0, 0))]));
        let directory = scratch();
        let scene = Scene::open_with(directory.path(), &history.network, stand);
        let trigger = Trigger::Silence { within: 2 };
        let id = scene.follow(UNSURE, trigger.clone());
        for ledger in &history.ledgers {
            scene.commit(&ledger.xdr);
            scene.feed();
        }
        let whole = LedgerRange::new(0, u32::MAX);
        let mut events = 0;
        let query = EventQuery { contracts: vec![contract], ..EventQuery::of_ledgers(whole) };
        scene.store.events(&query, |_| events += 1).unwrap();
        let subscription = scene.webhooks.registry().get(id).unwrap();
        let unjudged = scene.webhooks.unmet(&subscription).unwrap().unjudged;
        assert_eq!(unjudged.map_or(0, |it| it.events), events, "seed {seed}");
        let expected = chain.expected_of_members(&[(contract, 0)].into(), &trigger, 0);
        compare(&scene.deliveries(id), &expected, &format!("seed {seed}"));
        let replayed = scene.webhooks.replay_ledgers(&ana(), id, whole, &|| false).unwrap();
        assert_eq!((replayed.next, replayed.unjudged), (None, events), "seed {seed}");
        let wanted = NewSubscriptions {
            project: Some(UNSURE.to_owned()),
            trigger,
            ..NewSubscriptions::to("https://example.com/try".parse().unwrap())
        };
        let previewed = scene.webhooks.preview(&ana(), wanted, 100_000, Bounds::NONE).unwrap();
        assert_eq!((previewed.matched, previewed.unjudged), (expected.len() as u64, events));
        (told, counted) = (told + expected.len(), counted + events);
    }
    assert!(told > 0 && counted > 0, "{told} told, {counted} counted");
}
