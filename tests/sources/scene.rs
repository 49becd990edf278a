//! A server of ledgers that fails while it is followed into a store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery::domain::{LedgerSeq, LedgerSource};
use orrery::source::follow::Timing;
use orrery::store::Store;
use tempfile::TempDir;

use orrery_testkit::chain::{Chain, MAIN};
use orrery_testkit::contents::Contents;
use orrery_testkit::following::{Following, SOURCE, open_store};
use orrery_testkit::provider::Reply;
use orrery_testkit::size;

/// A server of the ledgers of a chain that can be made to fail.
pub trait Server: 'static {
    /// A request as the server understands it.
    type Request;
    /// Its answer to the request as long as it is well.
    type Honest;
    type Source: LedgerSource + 'static;

    /// Starts a server with the ledgers of a chain up to `latest`.
    fn start(chain: &'static Chain, latest: u32) -> Self;

    /// The source that reads this server, beginning with ledger `next`.
    fn source(&self, next: Option<u32>) -> Self::Source;

    /// As [`Self::source`], with the settings of a service.
    fn default_source(&self) -> Self::Source;

    /// Replaces the answers to all requests.
    fn set_fault(
        &self,
        fault: impl Fn(&Self::Request, Self::Honest) -> Reply + Send + Sync + 'static,
    );

    fn clear_fault(&self);

    /// Adds the ledgers of the chain up to `latest`.
    fn close_up_to(&self, latest: u32);
}

/// A server, and a store that follows it.
pub struct Scene<S> {
    pub server: S,
    pub store: Arc<Store>,
    chain: &'static Chain,
    _directory: TempDir,
}

impl<S: Server> Scene<S> {
    /// Creates a server with the ledgers of a chain up to `latest`, and an empty store.
    pub fn new(chain: &'static Chain, latest: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(directory.path(), &chain.network);
        Self { server: S::start(chain, latest), store, chain, _directory: directory }
    }

    /// As [`Self::new`], with the ledgers of [`MAIN`] up to `latest` stored and the server still
    /// followed.
    pub fn followed(latest: u32) -> (Self, Following) {
        let scene = Self::new(&MAIN, latest);
        let following = scene.follow(Some(2));
        following.wait_until_stored(latest);
        (scene, following)
    }

    /// Follows from the ledger after the newest stored one; if there is none, from `first`.
    pub fn follow(&self, first: Option<u32>) -> Following {
        let stored = self.store.status().latest().map(|latest| latest.0 + 1);
        Following::start(&self.store, self.server.source(stored.or(first)), first)
    }

    /// Waits until the whole chain is stored, stops following and checks the store.
    #[track_caller]
    pub fn completes(&self, following: Following) {
        following.wait_until_stored(self.chain.last());
        following.stop();
        assert_holds(&self.store, self.chain);
    }

    /// As [`Self::completes`], within the time that a recovery may take.
    #[track_caller]
    pub fn recovers(&self, following: Following) {
        following.wait_until_recovered(self.chain.last());
        self.completes(following);
    }
}

/// Asserts that exactly the chain is stored: no ledger is wrong or missing.
#[track_caller]
pub fn assert_holds(store: &Store, chain: &Chain) {
    let contents = Contents::of(store);
    assert_eq!(contents.count(), chain.ledgers.len());
    assert_eq!(contents.latest(), Some(LedgerSeq(chain.last())));
    assert!(store.status().removed.events.is_empty(), "nothing was removed");
    contents.assert_beginning_of(&chain.whole, LedgerSeq(chain.first()));
}

/// A temporary failure of a server with these requests and honest answers.
pub struct Trouble<R, H> {
    name: &'static str,
    /// Part of the reason that health reports during the failure.
    words: &'static str,
    /// Newest ledger that may be stored during the failure.
    passes: u32,
    fault: fn(&R, H) -> Reply,
}

/// A failure that affects every request.
pub fn trouble<R, H>(
    name: &'static str,
    words: &'static str,
    fault: fn(&R, H) -> Reply,
) -> Trouble<R, H> {
    Trouble { name, words, passes: 20, fault }
}

/// A failure that affects ledger 25.
pub fn bad_ledger<R, H>(
    name: &'static str,
    words: &'static str,
    fault: fn(&R, H) -> Reply,
) -> Trouble<R, H> {
    Trouble { passes: 24, ..trouble(name, words, fault) }
}

/// Checks that following recovers from each failure.
pub fn survives<S: Server>(troubles: &[Trouble<S::Request, S::Honest>]) {
    troubles.iter().for_each(recovers_from::<S>);
}

/// Follows up to ledger 20, makes the server fail while the network goes on, and checks that
/// following recovers.
fn recovers_from<S: Server>(trouble: &Trouble<S::Request, S::Honest>) {
    println!("{}", trouble.name);
    let (scene, following) = Scene::<S>::followed(20);
    scene.server.set_fault(trouble.fault);
    scene.server.close_up_to(40);
    following.wait_until_down(SOURCE, trouble.words);
    assert!(following.latest() <= trouble.passes, "{}", following.latest());
    scene.server.clear_fault();
    scene.recovers(following);
}

/// Makes a server give replies, each of which health reports with some words, and checks that its
/// recovery is noticed. With the default timing and settings. Small: one reply, for a moment; full:
/// all, for 30 seconds each, after which the retry delays are the longest.
pub fn recovery_is_noticed<S: Server>(failures: &[(&str, Reply)]) {
    let count = size::choose(1, failures.len() as u64) as usize;
    let outage = Duration::from_secs(size::choose(0, 30));
    for (words, reply) in &failures[..count] {
        let scene = Scene::<S>::new(&MAIN, 20);
        let source = scene.server.default_source();
        let following = Following::start_with(&scene.store, source, Some(2), Timing::default());
        following.wait_until_stored(20);
        let reply = reply.clone();
        scene.server.set_fault(move |_, _| reply.clone());
        let begin = Instant::now();
        scene.server.close_up_to(40);
        following.wait_until("the outage is over", |following| {
            let is_reported = following.down(SOURCE).is_some_and(|reason| reason.contains(words));
            is_reported && begin.elapsed() >= outage
        });
        scene.server.clear_fault();
        let healed = Instant::now();
        following.wait_until_recovered(40);
        println!("{words}: noticed after {:?}", healed.elapsed());
        scene.completes(following);
    }
}
