//! Notifies the supervisor that started the service: how far an upgrade of the store is, that the
//! service is ready, that it is alive, which ledger is stored, and that it stops. The protocol is that
//! of systemd (sd_notify(3)); without such a supervisor nothing is sent.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::tasks::stopped;
use crate::store::{Store, UpgradeStep};

/// Interval between two status lines when the supervisor has no watchdog.
const STATUS_INTERVAL: Duration = Duration::from_secs(30);

/// Time within which an upgrade or a restoration must report progress before the supervisor gives up the start, in
/// microseconds.
const START_TIMEOUT_MICROS: u32 = 300_000_000;

/// Reports the progress of a store upgrade, and extends the supervisor's start timeout, so that it
/// does not apply while the upgrade makes progress.
pub(super) fn report_upgrade(UpgradeStep { what, ledger, last }: UpgradeStep<'_>) {
    report_start(&format!("upgrading the store: {what}, ledger {ledger} of {last}"));
}

/// Reports the progress of a restoration before the start, in bytes, and extends the supervisor's start
/// timeout, so that it does not apply while the restoration makes progress.
pub fn report_restoration(done: u64, total: u64) {
    report_start(&format!("restoring a snapshot: {} of {} MiB", done >> 20, total >> 20));
}

fn report_start(status: &str) {
    let states =
        [NotifyState::ExtendTimeoutUsec(START_TIMEOUT_MICROS), NotifyState::Status(status)];
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!("the supervisor cannot be notified: {error}");
    }
}

/// Reports that the service is ready, then sends watchdog notifications until the future is
/// dropped, also while the service stops. Each is sent only after a thread of the blocking pool has
/// read the state of the store, so none is sent while timers, threads or the store's locks are
/// stuck.
pub(super) async fn notify_supervisor(store: Arc<Store>, stop: watch::Receiver<bool>) {
    // Half the watchdog timeout, as sd_watchdog_enabled(3) recommends.
    let watchdog = sd_notify::watchdog_enabled().map(|most| most / 2);
    let every = watchdog.unwrap_or(STATUS_INTERVAL).max(Duration::from_millis(1));
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    send_status(&store, NotifyState::Ready).await;
    let mut stopping = false;
    loop {
        let state = tokio::select! {
            _ = ticks.tick() => NotifyState::Watchdog,
            () = stopped(stop.clone()), if !stopping => {
                stopping = true;
                NotifyState::Stopping
            }
        };
        send_status(&store, state).await;
    }
}

/// Sends a state together with the newest stored ledger.
async fn send_status(store: &Arc<Store>, state: NotifyState<'static>) {
    let store = Arc::clone(store);
    let sent = spawn_blocking(move || {
        let stored = match store.status().latest() {
            Some(ledger) => format!("latest ledger {}", ledger.0),
            None => "no ledger is stored yet".to_owned(),
        };
        let status = match state {
            NotifyState::Stopping => format!("stopping, {stored}"),
            _ => stored,
        };
        sd_notify::notify(&[state, NotifyState::Status(&status)])
    });
    match sent.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("the supervisor cannot be notified: {error}"),
        Err(error) => tracing::warn!("the supervisor was not notified: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::process::Command;

    use orrery_testkit::sandbox::{ledgers, local, sandbox};

    use crate::config::Config;
    use crate::decode::decode;
    use crate::service::node::extensions;
    use crate::store::{Durability, Index, IndexOptions, PreparedLedger, Store};

    /// Environment variable with the directory that the child process upgrades.
    const TO_UPGRADE: &str = "ORRERY_TEST_DIRECTORY_WITHOUT_AN_INDEX";
    const LAST: u32 = 41;

    /// Stores ledgers 2 to [`LAST`].
    fn fill(directory: &Path) {
        let network = local();
        let store = Store::open(directory, Some(&network)).unwrap();
        let options = IndexOptions { classic_events: true, ..IndexOptions::default() };
        for xdr in ledgers(sandbox(5, 5..=20), LAST - 1) {
            let view = decode(&xdr, network.id()).unwrap();
            let prepared = PreparedLedger::new(&view, &options).unwrap();
            store.commit(prepared, Durability::Deferred).unwrap();
        }
        store.flush().unwrap();
    }

    /// Not a test of its own: the child process whose supervisor is the next test.
    #[test]
    #[ignore = "is run in a process with a supervisor"]
    fn upgrades() {
        let Some(directory) = env::var_os(TO_UPGRADE) else { return };
        let mut extensions = extensions(&Config::default(), &[]);
        extensions.indexes = extensions.indexes.with(Index::of_events("made", 4, |_, _| {}));
        drop(Store::open_with(Path::new(&directory), None, extensions).unwrap());
    }

    /// An upgrade may take longer than the unit's start timeout. While it runs, the supervisor is
    /// asked to extend the timeout.
    #[test]
    fn the_supervisor_hears_of_an_upgrade() {
        let directory = tempfile::tempdir().unwrap();
        fill(&directory.path().join("d"));
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        let name = std::any::type_name_of_val(&upgrades);
        let (_, path) = name.split_once("::").expect("the crate, and the path in it");
        let upgraded = Command::new(env::current_exe().unwrap())
            .args([path, "--exact", "--ignored"])
            .env(TO_UPGRADE, directory.path().join("d"))
            .env("NOTIFY_SOCKET", directory.path().join("notify"))
            .output()
            .unwrap();
        assert!(upgraded.status.success(), "{upgraded:?}");
        socket.set_nonblocking(true).unwrap();
        for what in ["index made from events", "index made from transactions"] {
            let mut bytes = [0; 4096];
            let length = socket.recv(&mut bytes).expect("a word to the supervisor");
            let word = std::str::from_utf8(&bytes[..length]).unwrap();
            assert!(word.contains("EXTEND_TIMEOUT_USEC=300000000"), "{word}");
            assert!(
                word.contains(&format!("STATUS=upgrading the store: {what}, ledger ")),
                "{word}"
            );
            assert!(word.contains(&format!(" of {LAST}")), "{word}");
        }
    }
}
