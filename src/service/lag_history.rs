//! Takes down how far the store is behind the network, every few seconds.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Ledgers, stopped, unix_now};
use crate::observe::history::EVERY;

/// Records the lag until `stop` turns true. Reads nothing but what is in memory.
pub(super) async fn record(ledgers: Arc<Ledgers>, stop: watch::Receiver<bool>) {
    loop {
        let ends = ledgers.store().ends();
        ledgers.health().record_lag(unix_now(), ends.latest, ends.latest_close_time);
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stopped(stop.clone()) => return,
        }
    }
}
