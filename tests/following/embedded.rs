//! A consumer that a program embeds into the service's library.

use std::sync::Arc;

use orrery::config::Config;
use orrery::control::RebuildRequest;
use orrery::service::Node;
use orrery::store::Durability;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{FIRST, LEDGERS, Witness, add, assert_all_once};

fn rebuild(name: &str, begin: bool) -> RebuildRequest {
    RebuildRequest { name: name.to_owned(), begin, allow_loss: false }
}

#[test]
fn an_embedded_consumer_is_rebuilt_in_steps() {
    let directory = scratch();
    let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
    let node = Node::open_with(&config, Some(&local()), vec![Arc::new(Witness)]).unwrap();
    add(node.store(), FIRST..=FIRST + LEDGERS - 1, Durability::Synced);
    while node.store().step(&Witness).unwrap() {}
    assert_all_once(node.store());
    let unknown = node.rebuild(&rebuild("nobody", true)).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no consumer 'nobody'");
    assert!(node.rebuild(&rebuild("witness", true)).unwrap().running);
    let before = node.rebuild(&rebuild("witness", true)).unwrap();
    assert_eq!(
        (before.done, before.of),
        (0, u64::from(LEDGERS)),
        "the rebuild is not started twice"
    );
    let mut steps = 0;
    while node.rebuild_step("witness").unwrap() {
        steps += 1;
        assert!(steps < 100);
    }
    let after = node.rebuild(&rebuild("witness", false)).unwrap();
    assert_eq!((after.running, after.done), (false, u64::from(LEDGERS)));
    assert!(after.lost.is_empty(), "{:?}", after.lost);
    assert_all_once(node.store());
    let report = node.report().unwrap();
    let consumer = &report.consumers[0];
    assert_eq!((consumer.name.as_str(), consumer.active, consumer.lag), ("witness", true, 0));
    node.report_consumers();
    let metrics = node.metrics().render().unwrap();
    assert!(metrics.contains("orrery_consumer_lag_ledgers{consumer=\"witness\"} 0"), "{metrics}");
    assert!(metrics.contains("orrery_consumer_lost_ledgers{consumer=\"witness\"} 0"), "{metrics}");
    assert!(node.health().components().contains_key("feed"));
}
