//! Records how far the store is behind the network, every ten seconds.

use std::sync::Arc;

use tokio::sync::watch;

use super::stop::stopped;
use super::{Node, unix_now};
use crate::observe::history::SAMPLE_INTERVAL;

/// Records the lag until `stop` turns true. Reads only values in memory.
pub(super) async fn record(node: Arc<Node>, stop: watch::Receiver<bool>) {
    loop {
        let ends = node.store().ends();
        node.health().record_lag(unix_now(), ends.latest, ends.latest_close_time);
        tokio::select! {
            () = tokio::time::sleep(SAMPLE_INTERVAL) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}
