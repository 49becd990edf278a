//! Projects whose events subscriptions are told of. Deliveries wait until the members of a ledger are known,
//! for a bounded time; members that become known later are noted in what is said of subscriptions.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::rows::in_subscriptions;
use orrery_executables::Tried;
use orrery_ledger::domain::{ContractId, LedgerSeq, Owner, ProgramId};
use orrery_membership::{KnownMembers, MemberMark, MembersInLedger, Projects, Selected};
use orrery_store::{Mark, RowCodec, StoreError, Table};

/// How long new deliveries wait for members at once, and how often they look.
const WAITED_AT_ONCE: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long they wait for those of one ledger.
const MOST_WAITED: Duration = Duration::from_secs(2);
/// For how long they do not wait for a project after they did in vain.
const NOT_WAITED: Duration = Duration::from_secs(60);
/// Number of late members that are listed.
const MOST_LISTED: usize = 100;

/// Members that became known after subscriptions had passed ledgers in which they were members.
pub const LATE: Table<(Mark<b'l'>, u32), LateMembers> = in_subscriptions();

/// How far subscriptions were told of the members of their projects: a project, and the number of the last one that
/// had become known. Written with [`LATE`], so that none is told twice, or lost, whenever the process ends.
pub(super) const TOLD: Table<(Mark<b'm'>, u32), (ProgramId, u64)> = in_subscriptions();
/// The newest ledger that was passed while there were subscriptions to projects.
pub(super) const PASSED: Table<Mark<b'y'>, LedgerSeq> = in_subscriptions();

/// Members whose events a subscription was not told of, because they became known late.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateMembers {
    /// Their number.
    pub members: u64,
    /// The first of them.
    pub first: Vec<LateMember>,
}

/// A member that became known late.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateMember {
    /// Strkey of the contract.
    pub contract_id: String,
    /// First and last ledger that had passed while it was a member.
    pub from: u32,
    /// See `from`.
    pub to: u32,
}

impl LateMember {
    /// A contract that became a member in a ledger, and became known after others up to `to` had passed, of
    /// which those from `first` on count. `None` where none of them does.
    pub fn of(
        contract: &ContractId,
        since: LedgerSeq,
        (first, to): (LedgerSeq, LedgerSeq),
    ) -> Option<Self> {
        let from = since.max(first);
        (from <= to).then(|| Self { contract_id: contract.to_string(), from: from.0, to: to.0 })
    }
}

impl LateMembers {
    /// Adds one.
    pub fn add(&mut self, member: LateMember) {
        self.members += 1;
        if self.first.len() < MOST_LISTED {
            self.first.push(member);
        }
    }
}

impl RowCodec for LateMembers {
    fn write(&self, to: &mut Vec<u8>) {
        serde_json::to_writer(to, self).expect("numbers and texts serialize");
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        serde_json::from_slice(std::mem::take(bytes)).ok()
    }
}

/// The events of a ledger that projects select.
pub(super) type SelectedEvents = BTreeMap<String, Selected>;

/// Why a subscription has ended whose owner does not read its project any more.
pub fn ended(project: &str) -> String {
    format!(
        "you do not read its project '{project}' any more: it was deleted, its owner has made it private, or \
         you have unsubscribed"
    )
}

/// What new deliveries have seen of the members of projects.
#[derive(Debug, Default)]
struct Seen {
    /// Place in the feed for which they wait, and since when.
    waiting: Option<(u64, Instant)>,
    /// Projects for which they have waited in vain, until then.
    too_slow: BTreeMap<String, Instant>,
}

impl Seen {
    /// Whether the members of a project are known, or not waited for. One for which deliveries have waited in vain
    /// is waited for again once its members were known, and after a while.
    fn is_known(&mut self, name: &str, has_looked: bool) -> bool {
        let is_over = |since: &Instant| has_looked && since.elapsed() >= NOT_WAITED;
        if self.too_slow.get(name).is_some_and(is_over) {
            self.too_slow.remove(name);
        }
        has_looked || self.too_slow.contains_key(name)
    }

    /// Whether deliveries have waited for this place for long enough.
    fn has_waited_for(&mut self, place: u64) -> bool {
        let waiting = self.waiting.filter(|(of, _)| *of == place);
        let (_, since) = *self.waiting.insert(waiting.unwrap_or((place, Instant::now())));
        since.elapsed() >= MOST_WAITED
    }

    fn give_up(&mut self, names: &[&String]) {
        let now = Instant::now();
        self.waiting = None;
        self.too_slow.extend(names.iter().map(|name| (String::clone(name), now)));
    }
}

/// The projects of subscriptions.
#[derive(Default)]
pub(super) struct Followed {
    projects: OnceLock<Arc<dyn Projects>>,
    seen: Mutex<Seen>,
}

impl Followed {
    /// Sets the projects. Without them there are none.
    pub fn set(&self, projects: Arc<dyn Projects>) {
        // A second service of one process would set the same.
        let _ = self.projects.set(projects);
    }

    /// Whether the projects were set.
    pub fn is_set(&self) -> bool {
        self.projects.get().is_some()
    }

    /// See [`Projects::readable`].
    pub fn readable(&self, owner: &Owner, project: &str) -> Option<String> {
        self.projects.get()?.readable(owner, project)
    }

    /// See [`Projects::selected`]; nothing where there is no such project.
    pub fn selected(&self, project: &str, ledger: LedgerSeq) -> Result<Selected, StoreError> {
        let selected = self.projects.get().map(|it| it.selected(project, ledger)).transpose()?;
        Ok(selected.flatten().unwrap_or_default())
    }

    /// See [`Projects::members_in`].
    pub fn members_in<'f>(
        &'f self,
        project: &str,
        ledger: LedgerSeq,
    ) -> Result<Option<Box<dyn MembersInLedger + 'f>>, StoreError> {
        self.projects.get().map_or(Ok(None), |it| it.members_in(project, ledger))
    }

    /// See [`Projects::members`].
    pub fn members(&self, project: &str) -> Arc<[ContractId]> {
        self.projects.get().map_or_else(Arc::default, |it| it.members(project))
    }

    /// See [`Projects::has_members`].
    pub fn has_members(&self, project: &str) -> bool {
        self.projects.get().is_some_and(|it| it.has_members(project))
    }

    /// See [`Projects::supplied`].
    pub fn supplied(&self, project: &str) -> Result<Option<Tried>, StoreError> {
        self.projects.get().map_or(Ok(None), |it| it.supplied(project))
    }

    /// See [`Projects::contracts`].
    pub fn contracts(&self, project: &str, most: usize) -> Option<Vec<ContractId>> {
        self.projects.get()?.contracts(project, most)
    }

    /// Waits until the members of a project are known up to a place in the feed, at most this long. Returns
    /// whether they are.
    pub fn wait(&self, project: &str, place: u64, most: Duration) -> bool {
        let Some(projects) = self.projects.get() else { return true };
        let until = Instant::now() + most;
        while !projects.has_looked(project, place) {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        true
    }

    /// Whether deliveries are made now of the events of a ledger at this place in the feed: once the members of
    /// these projects are known, or were waited for long enough, all of them together. Waits for a short time;
    /// false: ask again.
    pub fn may_be_made(&self, names: &[String], place: u64) -> bool {
        let Some(projects) = self.projects.get() else { return true };
        let until = Instant::now() + WAITED_AT_ONCE;
        let mut left: Vec<&String> = names.iter().collect();
        loop {
            let mut seen = self.seen.lock();
            left.retain(|name| !seen.is_known(name, projects.has_looked(name, place)));
            if left.is_empty() {
                seen.waiting = None;
                return true;
            }
            if seen.has_waited_for(place) {
                seen.give_up(&left);
                return true;
            }
            drop(seen);
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// See [`Projects::known_since`].
    pub fn known_since(&self, project: &str, mark: Option<MemberMark>) -> KnownMembers {
        let projects = self.projects.get();
        projects.map_or_else(KnownMembers::default, |it| it.known_since(project, mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_late_where_ledgers_had_passed_while_it_was_one() {
        let contract = ContractId([7; 32]);
        let late = |since: u32, first: u32, to: u32| {
            let passed = (LedgerSeq(first), LedgerSeq(to));
            let late = LateMember::of(&contract, LedgerSeq(since), passed);
            late.map(|late| (late.from, late.to))
        };
        assert_eq!(late(5, 3, 9), Some((5, 9)));
        assert_eq!(late(2, 3, 9), Some((3, 9)));
        assert_eq!(late(9, 3, 9), Some((9, 9)));
        assert_eq!(late(10, 3, 9), None);
        let mut all = LateMembers::default();
        for ledger in 0..250 {
            let passed = (LedgerSeq(0), LedgerSeq(300));
            all.add(LateMember::of(&contract, LedgerSeq(ledger), passed).unwrap());
        }
        assert_eq!((all.members, all.first.len()), (250, MOST_LISTED));
        let bytes = RowCodec::encode(&all);
        assert_eq!(LateMembers::decode(&bytes), Some(all));
    }

    /// A project whose members are never found holds up deliveries once, and for a bounded time.
    #[test]
    fn members_are_waited_for_a_bounded_time() {
        struct Never;
        impl Projects for Never {
            fn readable(&self, _: &Owner, project: &str) -> Option<String> {
                Some(project.to_owned())
            }
            fn selected(&self, _: &str, _: LedgerSeq) -> Result<Option<Selected>, StoreError> {
                Ok(None)
            }
            fn members_in<'p>(
                &'p self,
                _: &str,
                _: LedgerSeq,
            ) -> Result<Option<Box<dyn MembersInLedger + 'p>>, StoreError> {
                Ok(None)
            }
            fn members(&self, _: &str) -> Arc<[ContractId]> {
                Arc::default()
            }
            fn has_members(&self, _: &str) -> bool {
                true
            }
            fn supplied(&self, _: &str) -> Result<Option<Tried>, StoreError> {
                Ok(None)
            }
            fn has_looked(&self, project: &str, _: u64) -> bool {
                !project.starts_with("slow")
            }
            fn known_since(&self, _: &str, _: Option<MemberMark>) -> KnownMembers {
                KnownMembers::default()
            }
            fn contracts(&self, _: &str, _: usize) -> Option<Vec<ContractId>> {
                None
            }
        }
        let followed = Followed::default();
        assert!(followed.may_be_made(&["slow".to_owned()], 1), "there are no projects");
        followed.set(Arc::new(Never));
        let both = ["slow 1", "quick", "slow 2", "slow 3", "slow 4"].map(str::to_owned);
        let begun = Instant::now();
        while !followed.may_be_made(&both, 1) {
            assert!(begun.elapsed() < MOST_WAITED * 3, "they are waited for together");
        }
        assert!(begun.elapsed() >= MOST_WAITED);
        assert!(followed.may_be_made(&both, 2), "it is not waited for again at once");
    }
}
