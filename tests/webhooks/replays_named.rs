//! Replays whose interfaces are not in memory: the thread that reads interfaces reads them, and not that of
//! the request.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use orrery::domain::{Hash32, LedgerRange};
use orrery::executables::{ExecutableIndex, Interfaces};
use orrery::settings;
use orrery::store::{Extensions, LedgerConsumer, Store};
use orrery::webhooks::manage::{WebhookDeps, Webhooks};
use orrery::webhooks::registry::Registry;
use orrery::webhooks::target::{Policy, Sender, Timeouts, system_lookup};
use orrery::webhooks::time::Clocks;
use orrery::webhooks::{Clock, Sealer, WebhookConsumer};

use super::world::{BEGINNING, owner, wanted};
use orrery_testkit::pubnet::commit;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::upgraded::Upgraded;

#[test]
fn a_replay_waits_for_the_thread_that_reads_interfaces() {
    let (upgraded, directory) = (Upgraded::made(), scratch());
    let registry: Arc<Registry> = Arc::default();
    let consumers = [WebhookConsumer::new(Arc::clone(&registry)).spec(), ExecutableIndex.spec()];
    let extensions = Extensions { consumers: consumers.into(), ..Extensions::default() };
    let store = Store::open_with(directory.path(), Some(&local()), extensions).unwrap();
    let store = Arc::new(store);
    let clock: Clock = Arc::new(|| BEGINNING);
    let clocks = Clocks { machine: Arc::clone(&clock), elapsed: Arc::new(|| 0) };
    registry
        .open(&store, Sealer::new(&[7; 32]).unwrap(), settings::Webhooks::default(), &clocks)
        .unwrap();
    let interfaces = Interfaces::new(Arc::clone(&store), None);
    registry.name_events_by(Arc::clone(&interfaces));
    let sender = Sender::new(Policy::default(), system_lookup(), Timeouts::default());
    let webhooks =
        Webhooks::new(WebhookDeps { store: Arc::clone(&store), registry, sender, clock });
    commit(&store, &upgraded.ledgers);
    while store.step(&ExecutableIndex).unwrap() {}
    let ana = owner("ana");
    let created = webhooks.create(&ana, wanted("https://example.com/", upgraded.contracts[0]));
    let id = created.unwrap().ids[0];
    let all = LedgerRange::new(1, u32::MAX);
    let replay = || webhooks.replay_ledgers(&ana, id, all, &|| false);
    // The thread is held up after the first thing that it has looked for, until the test lets it go on.
    let (held, is_held) = channel();
    let (go_on, goes_on) = channel::<()>();
    let gate = Mutex::new((held, goes_on));
    interfaces.listen(move |_| {
        let (held, goes_on) = &*gate.lock().unwrap();
        held.send(()).is_ok() && goes_on.recv().is_ok()
    });
    thread::scope(|threads| {
        threads.spawn(|| interfaces.work());
        let _ = interfaces.listing(&Hash32([0; 32])).unwrap();
        is_held.recv().unwrap();
        let stopped = replay();
        drop((go_on, is_held));
        let done = replay();
        interfaces.stop();
        // It has passed over ledgers without matching events.
        let stopped = stopped.unwrap();
        assert!(stopped.deliveries == 0 && stopped.next.is_some(), "{stopped:?}");
        let done = done.unwrap();
        assert!(done.deliveries > 0 && done.next.is_none(), "{done:?}");
    });
}
