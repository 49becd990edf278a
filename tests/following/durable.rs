//! A backfill order is reported as done only once its ledgers are on disk.

use std::sync::Arc;

use futures_util::FutureExt;
use orrery::config::Config;
use orrery::control::{BackfillOrder, BackfillState};
use orrery::decode::decode;
use orrery::domain::Network;
use orrery::service::{Backfills, Node};
use orrery::store::{Durability, Fault, IndexOptions, PreparedLedger, Store};
use tokio::sync::watch;

use orrery_testkit::lake_files::Chain;

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_is_not_done_until_its_ledgers_are_durable() {
    let directory = tempfile::tempdir().unwrap();
    let network = Network::from_name_or_passphrase("local");
    let store = Arc::new(Store::open(directory.path(), Some(&network)).unwrap());
    let chain = Chain::made(1, 20);
    for sequence in 2..=20 {
        let view = decode(chain.xdr(sequence), network.id()).unwrap();
        let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
        store.commit(prepared, Durability::Deferred).unwrap();
    }
    let node = Arc::new(Node::over(Arc::clone(&store), &Config::default()).unwrap());
    let nobody = |_, _| async { Err("nobody is asked".to_owned()) }.boxed();
    let backfills = Backfills::new(node, Arc::new(nobody));
    let order = BackfillOrder { from: 2, to: 20, sources: Vec::new() };
    let (_run, stop) = watch::channel(false);

    store.faults().plan(|_| Some(Fault::NotWritten));
    let report = backfills.run(order.clone(), stop.clone()).await.unwrap();
    assert_eq!(report.state, BackfillState::Failed, "{report:?}");
    let reason = report.reason.unwrap();
    assert!(reason.contains("cannot be made durable") && reason.contains("No space"), "{reason}");

    store.faults().clear();
    let report = backfills.run(order, stop).await.unwrap();
    assert_eq!((report.state, report.reason), (BackfillState::Done, None));
}
