//! Subscriptions to projects, whose members the test decides: what is sent live and replayed are the events of
//! each member from the ledger on in which it became one, members that become known late are told, and a
//! subscription ends when its owner does not read the project any more.
//!
//! Small: 12 histories; full: 1,000.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use orrery::domain::{ContractId, EventId, LedgerRange, LedgerSeq, Owner, ProgramId};
use orrery::executables::Tried;
use orrery::membership::{
    KnownMember, KnownMembers, MemberMark, MembersInLedger, Projects, Selected,
};
use orrery::store::{Bounds, EventQuery, Store, StoreError};
use orrery::webhooks::WebhookError;
use orrery::webhooks::followed::{LateMember, LateMembers};
use orrery::webhooks::manage::NewSubscriptions;
use orrery_testkit::histories;
use orrery_testkit::scratch::scratch;
use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::world::{Chain, World, owner, symbol, wanted};

/// The only project, under this name.
const PROJECT: &str = "Pools";

#[derive(Default)]
struct State {
    /// Members with their first ledger.
    members: BTreeMap<ContractId, u32>,
    known: Vec<KnownMember>,
    readers: BTreeSet<Owner>,
}

/// A project whose members the test decides.
struct Stand {
    store: Arc<Store>,
    state: Mutex<State>,
}

impl Stand {
    fn join(&self, contract: ContractId, since: u32) {
        let mut state = self.state.lock();
        state.members.insert(contract, since);
        state.known.push(KnownMember { contract, since: LedgerSeq(since) });
    }

    /// Returns the events of the members in a ledger.
    fn events(&self, ledger: u32) -> BTreeSet<EventId> {
        let members = self.state.lock().members.clone();
        let mut found = BTreeSet::new();
        let query = EventQuery::of_ledgers(LedgerRange::new(ledger, ledger));
        let add = |event: &orrery::store::EventRecord<'_>| {
            let since = event.contract.and_then(|contract| members.get(&ContractId(*contract)));
            if since.is_some_and(|since| *since <= ledger) {
                found.insert(event.id);
            }
        };
        self.store.events(&query, add).unwrap();
        found
    }
}

impl Projects for Stand {
    fn readable(&self, owner: &Owner, project: &str) -> Option<String> {
        let is_read =
            project.eq_ignore_ascii_case(PROJECT) && self.state.lock().readers.contains(owner);
        is_read.then(|| PROJECT.to_owned())
    }

    fn selected(&self, project: &str, ledger: LedgerSeq) -> Result<Option<Selected>, StoreError> {
        assert_eq!(project, PROJECT);
        let events = self.events(ledger.0).into_iter().collect();
        Ok(Some(Selected { events, ..Selected::default() }))
    }

    fn members_in<'p>(
        &'p self,
        _: &str,
        _: LedgerSeq,
    ) -> Result<Option<Box<dyn MembersInLedger + 'p>>, StoreError> {
        Ok(None)
    }

    fn members(&self, _: &str) -> Arc<[ContractId]> {
        self.state.lock().members.keys().copied().collect()
    }

    fn has_members(&self, _: &str) -> bool {
        true
    }

    fn supplied(&self, _: &str) -> Result<Option<Tried>, StoreError> {
        Ok(None)
    }

    fn contracts(&self, _: &str, _: usize) -> Option<Vec<ContractId>> {
        None
    }

    fn has_looked(&self, _: &str, _: u64) -> bool {
        true
    }

    fn known_since(&self, _: &str, mark: Option<MemberMark>) -> KnownMembers {
        let known = self.state.lock().known.clone();
        let after = mark.map_or(known.len(), |mark| mark.number as usize);
        let mark = MemberMark { program: ProgramId(1), number: known.len() as u64 };
        KnownMembers { mark: Some(mark), members: known[after..].to_vec(), more: 0 }
    }
}

/// Opens a world with a project that has this state.
fn open(directory: &Path, state: State) -> (World, Arc<Stand>) {
    let world = World::open(directory);
    let stand = Arc::new(Stand { store: Arc::clone(&world.store), state: Mutex::new(state) });
    world.registry.follow(Arc::clone(&stand) as Arc<dyn Projects>);
    (world, stand)
}

/// What a project remembers of a member may be read after the process that found it has ended: a subscription is
/// told of it then, and once.
#[test]
fn members_that_become_known_late_are_told_once_whenever_the_process_ends() {
    let directory = scratch();
    let mut chain = Chain::new(1, vec![symbol("a")]);
    let contracts = chain.universe.contracts.clone();
    let (first, second) = (contracts[0], contracts[1]);
    let (world, stand) = open(directory.path(), State::default());
    stand.state.lock().readers.insert(owner("ana"));
    // Known before there is a subscription.
    stand.join(first, 1);
    chain.commit(&world.store, 1);
    world.feed();
    let of_project = NewSubscriptions {
        contracts: Vec::new(),
        project: Some("pools".to_owned()),
        ..wanted("https://example.com/", ContractId([0; 32]))
    };
    let id = world.webhooks.create(&owner("ana"), of_project).unwrap().ids[0];
    for ledger in 2..=4 {
        chain.commit(&world.store, ledger);
    }
    world.feed();
    // Known, and not told before the process ends.
    stand.join(second, 3);
    let late = LateMember::of(&second, LedgerSeq(3), (LedgerSeq(2), LedgerSeq(4))).unwrap();
    let expected = LateMembers { members: 1, first: vec![late] };
    let mut state = std::mem::take(&mut *stand.state.lock());
    drop((world, stand));
    for ledger in 5..=8 {
        let (world, stand) = open(directory.path(), state);
        let subscription = world.registry.get(id).unwrap();
        let told = world.webhooks.late_members(&subscription).unwrap();
        let before = if ledger == 5 { LateMembers::default() } else { expected.clone() };
        assert_eq!(told, before, "before ledger {ledger}");
        chain.commit(&world.store, ledger);
        world.feed();
        let told = world.webhooks.late_members(&subscription).unwrap();
        assert_eq!(told, expected, "after ledger {ledger}");
        state = std::mem::take(&mut *stand.state.lock());
    }
}

/// Returns the ids of the events of a subscription's deliveries.
fn delivered(world: &World, id: u32) -> BTreeSet<EventId> {
    let all = world.deliveries("ana", id).into_iter();
    all.map(|(number, _)| number.event().unwrap()).collect()
}

#[test]
fn events_of_members_are_sent_from_their_ledgers_on() {
    histories::run(12, 1_000, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let directory = scratch();
        let mut chain = Chain::new(seed, vec![symbol("a"), symbol("b")]);
        let (world, stand) = open(directory.path(), State::default());
        let of_project = || NewSubscriptions {
            contracts: Vec::new(),
            project: Some("pools".to_owned()),
            ..wanted("https://example.com/", ContractId([0; 32]))
        };
        let refused = world.webhooks.create(&owner("ana"), of_project()).map(|made| made.ids);
        assert!(matches!(refused, Err(WebhookError::UnknownProject(_))), "{refused:?}");
        stand.state.lock().readers.insert(owner("ana"));
        chain.commit(&world.store, 1);
        world.feed();
        let id = world.webhooks.create(&owner("ana"), of_project()).unwrap().ids[0];
        let again = world.webhooks.create(&owner("ana"), of_project()).map(|made| made.ids);
        assert!(matches!(again, Err(WebhookError::Duplicate(_))), "{again:?}");
        let last = rng.random_range(8..20);
        let (mut expected, mut late) = (BTreeSet::new(), Vec::new());
        for ledger in 2..=last {
            chain.commit(&world.store, ledger);
            let contract = *chain.universe.contracts.choose(&mut rng).unwrap();
            if rng.random_bool(0.5) && !stand.state.lock().members.contains_key(&contract) {
                let since = rng.random_range(1..=ledger);
                stand.join(contract, since);
                let passed = (LedgerSeq(2), LedgerSeq(ledger - 1));
                // Before the first ledger of the subscription, none has passed.
                late.extend(
                    LateMember::of(&contract, LedgerSeq(since), passed).filter(|_| ledger > 2),
                );
            }
            expected.extend(stand.events(ledger));
            world.feed();
            assert_eq!(delivered(&world, id), expected, "after ledger {ledger}");
        }
        let subscription = world.registry.get(id).unwrap();
        let told = world.webhooks.late_members(&subscription).unwrap();
        assert_eq!(told, LateMembers { members: late.len() as u64, first: late });
        // What was sent, and what would have been if all members had been known, from the first ledger on.
        let all: BTreeSet<EventId> = (1..=last).flat_map(|ledger| stand.events(ledger)).collect();
        let previewed = world.webhooks.preview(&owner("ana"), of_project(), 100_000, Bounds::NONE);
        assert_eq!(previewed.unwrap().matched, all.len() as u64);
        let range = LedgerRange::new(1, last);
        let replay = || world.webhooks.replay_ledgers(&owner("ana"), id, range, &|| false);
        assert_eq!(replay().unwrap().deliveries, all.len() as u64);
        assert_eq!(delivered(&world, id), all);
        // The owner does not read it any more.
        stand.state.lock().readers.clear();
        let is_told_at_once = rng.random();
        if is_told_at_once {
            world.webhooks.end_unreadable().unwrap();
        }
        chain.commit(&world.store, last + 1);
        world.feed();
        let ended = world.registry.get(id).unwrap().state();
        assert!(!ended.enabled, "{ended:?}");
        assert!(ended.disabled_reason.unwrap().contains("'Pools'"));
        assert_eq!(delivered(&world, id), all);
        assert!(matches!(replay(), Err(WebhookError::UnknownProject(_))));
        let enabled = world.webhooks.enable(&owner("ana"), id);
        assert!(matches!(enabled, Err(WebhookError::UnknownProject(_))));
        stand.state.lock().readers.insert(owner("ana"));
        assert!(world.webhooks.enable(&owner("ana"), id).unwrap().is_enabled());
        chain.commit(&world.store, last + 2);
        world.feed();
        let more = stand.events(last + 2);
        assert_eq!(delivered(&world, id), all.union(&more).copied().collect());
    });
}
