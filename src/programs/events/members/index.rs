//! The members of all projects in memory: whether an event belongs to any project is one lookup, whatever
//! the number of projects and members.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::ledgers::Ledgers;
use orrery_contract_data::contracts_changed_in;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, ProgramId};
use orrery_store::{EventQuery, Store, StoreError};

/// Why a contract belongs to a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// The project names it.
    pub const NAMED: Self = Self(1);
    /// A factory announced it.
    pub const ANNOUNCED: Self = Self(2);
    /// A creator of the project made it.
    pub const CREATED: Self = Self(4);
    /// It may have run a code of the project at some time.
    pub const MAY_RUN: Self = Self(8);
    /// Its earlier events may have names of the project. Only stored, while they have yet to be read.
    pub const BY_NAME: Self = Self(16);

    /// As they are stored.
    pub fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// As they are stored.
    pub fn byte(self) -> u8 {
        self.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether these are among them.
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns both.
    #[must_use]
    pub fn and(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// Returns these without others.
    #[must_use]
    pub fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Whether all events of the contract belong to the project.
    pub fn are_whole(self) -> bool {
        self.without(Self::MAY_RUN).without(Self::BY_NAME) != Self::default()
    }
}

/// The projects of a contract. Nearly all contracts belong to one.
#[derive(Debug, Clone)]
enum Projects {
    One(ProgramId, Flags),
    More(Box<[(ProgramId, Flags)]>),
}

impl Projects {
    fn as_slice(&self) -> Vec<(ProgramId, Flags)> {
        match self {
            Self::One(program, flags) => vec![(*program, *flags)],
            Self::More(all) => all.to_vec(),
        }
    }

    fn of(mut all: Vec<(ProgramId, Flags)>) -> Option<Self> {
        match all.len() {
            0 => None,
            1 => all.pop().map(|(program, flags)| Self::One(program, flags)),
            _ => Some(Self::More(all.into_boxed_slice())),
        }
    }

    fn each(&self, mut visit: impl FnMut(ProgramId, Flags)) {
        match self {
            Self::One(program, flags) => visit(*program, *flags),
            Self::More(all) => all.iter().for_each(|(program, flags)| visit(*program, *flags)),
        }
    }
}

/// Maximum number of members of a project.
const MOST_MEMBERS: usize = 100_000;
/// Number of members of all projects from which on there are no new projects with selectors. One owner may
/// have a quarter.
const MOST_OF_ALL: usize = 1_000_000;

/// The members of all projects.
pub struct MemberIndex {
    /// Maximum number of members of a project.
    most: AtomicUsize,
    /// Number of members of all projects from which on there are no new projects with selectors.
    most_of_all: AtomicUsize,
    members: RwLock<Members>,
    /// Contracts with events in ledgers.
    emitters: Ledgers,
    /// Contracts of which ledgers have changed what they hold.
    changed: Ledgers,
}

#[derive(Default)]
struct Members {
    projects: HashMap<ContractId, Projects>,
    counts: BTreeMap<ProgramId, usize>,
    /// The members of projects, by id, as far as somebody has asked since they changed.
    sorted: BTreeMap<ProgramId, Arc<[ContractId]>>,
    /// Number of changes.
    version: u64,
}

impl Default for MemberIndex {
    fn default() -> Self {
        Self {
            most: MOST_MEMBERS.into(),
            most_of_all: MOST_OF_ALL.into(),
            members: RwLock::default(),
            emitters: Ledgers::default(),
            changed: Ledgers::default(),
        }
    }
}

impl MemberIndex {
    /// Returns the maximum number of members of a project.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Returns the number of members of all projects from which on there are no new projects with selectors. One
    /// owner may have a quarter.
    pub fn most_of_all(&self) -> usize {
        self.most_of_all.load(Ordering::Relaxed)
    }

    /// Sets these numbers.
    #[cfg(test)]
    pub fn set_most(&self, most: usize, most_of_all: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.most_of_all.store(most_of_all, Ordering::Relaxed);
    }

    /// Sets why contracts belong to a project; those without a reason do not any more.
    pub fn set(&self, program: ProgramId, members: impl IntoIterator<Item = (ContractId, Flags)>) {
        self.members.write().set_all(program, members);
    }

    /// Sets why contracts belong to a project; no others do any more. Nobody sees the project without those that
    /// stay.
    pub fn replace(
        &self,
        program: ProgramId,
        members: impl IntoIterator<Item = (ContractId, Flags)>,
    ) {
        let mut all = self.members.write();
        all.remove(program);
        all.set_all(program, members);
    }

    /// Removes a project.
    pub fn remove(&self, program: ProgramId) {
        self.members.write().remove(program);
    }

    /// Returns why a contract belongs to a project.
    pub fn flags(&self, program: ProgramId, contract: &ContractId) -> Flags {
        let mut found = Flags::default();
        if let Some(projects) = self.members.read().projects.get(contract) {
            projects.each(|other, flags| {
                if other == program {
                    found = flags;
                }
            });
        }
        found
    }

    /// Returns the number of members of a project.
    pub fn count(&self, program: ProgramId) -> usize {
        self.members.read().counts.get(&program).copied().unwrap_or(0)
    }

    /// Returns the members of a project, in no particular order; `None` where there are more than `most`.
    pub fn of(&self, program: ProgramId, most: usize) -> Option<Vec<ContractId>> {
        let all = self.members.read();
        if all.counts.get(&program).is_some_and(|count| *count > most) {
            return None;
        }
        let mut found = Vec::new();
        for (contract, projects) in &all.projects {
            projects.each(|other, _| found.extend((other == program).then_some(*contract)));
        }
        Some(found)
    }

    /// Returns the members of a project, by id; the same list as before where they have not changed.
    pub fn sorted(&self, program: ProgramId) -> Arc<[ContractId]> {
        if let Some(known) = self.members.read().sorted.get(&program) {
            return Arc::clone(known);
        }
        let mut all = self.members.write();
        let mut found = Vec::new();
        for (contract, projects) in &all.projects {
            projects.each(|other, _| found.extend((other == program).then_some(*contract)));
        }
        found.sort_unstable();
        let found: Arc<[ContractId]> = found.into();
        all.sorted.insert(program, Arc::clone(&found));
        found
    }

    /// Returns the number of members of all projects.
    pub fn counts(&self) -> BTreeMap<ProgramId, usize> {
        self.members.read().counts.clone()
    }

    /// Returns the members of a project that have events in a ledger, by id: each event of the ledger is
    /// looked up once for all projects.
    pub fn emitters(
        &self,
        store: &Store,
        ledger: LedgerSeq,
        program: ProgramId,
    ) -> Result<Vec<ContractId>, StoreError> {
        let contracts = self.emitters_of(store, ledger)?;
        Ok(self.of_project(&self.emitters, (ledger, &contracts), program))
    }

    /// Returns the members of a project of which a ledger may have changed what they hold, by id: each contract
    /// is looked up once for all projects. The index of contract data must have processed the ledger.
    pub fn changed(
        &self,
        store: &Store,
        ledger: LedgerSeq,
        program: ProgramId,
    ) -> Result<Vec<ContractId>, StoreError> {
        let read = || contracts_changed_in(store, ledger);
        let contracts = self.changed.contracts(store, ledger, read)?;
        Ok(self.of_project(&self.changed, (ledger, &contracts), program))
    }

    /// Returns a number that is another one once a project has other members.
    pub fn version(&self) -> u64 {
        self.members.read().version
    }

    /// Returns the members of these projects, in no particular order, each once.
    pub fn of_all(&self, programs: &BTreeSet<ProgramId>) -> Vec<ContractId> {
        let mut found = Vec::new();
        for (contract, projects) in &self.members.read().projects {
            let mut is_one = false;
            projects.each(|program, _| is_one |= programs.contains(&program));
            found.extend(is_one.then_some(*contract));
        }
        found
    }

    fn of_project(
        &self,
        ledgers: &Ledgers,
        of_ledger: (LedgerSeq, &[ContractId]),
        program: ProgramId,
    ) -> Vec<ContractId> {
        let version = self.version();
        ledgers.of_project(of_ledger, program, version, |contracts| self.look_up(contracts))
    }

    /// Returns all contracts that have events in a ledger, by id.
    pub fn all_emitters(
        &self,
        store: &Store,
        ledger: LedgerSeq,
    ) -> Result<Vec<ContractId>, StoreError> {
        self.emitters_of(store, ledger).map(|contracts| contracts.to_vec())
    }

    fn look_up(&self, contracts: &[ContractId]) -> (u64, HashMap<ProgramId, Vec<ContractId>>) {
        let all = self.members.read();
        let mut found: HashMap<ProgramId, Vec<ContractId>> = HashMap::new();
        for contract in contracts {
            if let Some(projects) = all.projects.get(contract) {
                projects.each(|program, _| found.entry(program).or_default().push(*contract));
            }
        }
        (all.version, found)
    }

    fn emitters_of(
        &self,
        store: &Store,
        ledger: LedgerSeq,
    ) -> Result<Arc<[ContractId]>, StoreError> {
        self.emitters.contracts(store, ledger, || {
            let mut contracts = Vec::new();
            store.events(&EventQuery::of_ledgers(LedgerRange::only(ledger)), |event| {
                contracts.extend(event.contract.map(|contract| ContractId(*contract)));
            })?;
            Ok(contracts)
        })
    }
}

impl Members {
    fn set_all(
        &mut self,
        program: ProgramId,
        members: impl IntoIterator<Item = (ContractId, Flags)>,
    ) {
        for (contract, flags) in members {
            self.set(program, contract, flags);
        }
        self.sorted.remove(&program);
        self.version += 1;
    }

    fn remove(&mut self, program: ProgramId) {
        self.sorted.remove(&program);
        if self.counts.remove(&program).is_none() {
            return;
        }
        self.projects.retain(|_, projects| {
            let mut left = projects.as_slice();
            left.retain(|(other, _)| *other != program);
            match Projects::of(left) {
                Some(left) => {
                    *projects = left;
                    true
                }
                None => false,
            }
        });
        self.version += 1;
    }

    fn set(&mut self, program: ProgramId, contract: ContractId, flags: Flags) {
        let mut of = self.projects.get(&contract).map_or_else(Vec::new, Projects::as_slice);
        let before = of.len();
        of.retain(|(other, _)| *other != program);
        let was_there = of.len() < before;
        if !flags.is_empty() {
            of.push((program, flags));
        }
        match Projects::of(of) {
            Some(projects) => drop(self.projects.insert(contract, projects)),
            None => drop(self.projects.remove(&contract)),
        }
        let count = self.counts.entry(program).or_default();
        match (was_there, flags.is_empty()) {
            (false, false) => *count += 1,
            (true, true) => *count = count.saturating_sub(1),
            (false, true) | (true, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProgramId = ProgramId(1);
    const OTHER: ProgramId = ProgramId(2);

    fn contract(byte: u8) -> ContractId {
        ContractId([byte; 32])
    }

    #[test]
    fn a_contract_may_belong_to_several_projects_for_several_reasons() {
        let index = MemberIndex::default();
        let both = Flags::NAMED.and(Flags::MAY_RUN);
        index.set(ONE, [(contract(1), both), (contract(2), Flags::MAY_RUN)]);
        index.set(OTHER, [(contract(1), Flags::CREATED)]);
        assert_eq!(index.flags(ONE, &contract(1)), both);
        assert_eq!(index.flags(OTHER, &contract(1)), Flags::CREATED);
        assert!(index.flags(OTHER, &contract(2)).is_empty());
        assert_eq!((index.count(ONE), index.count(OTHER)), (2, 1));
        assert_eq!(*index.sorted(ONE), [contract(1), contract(2)]);
        assert!(Arc::ptr_eq(&index.sorted(ONE), &index.sorted(ONE)));
        assert!(both.are_whole() && !Flags::MAY_RUN.are_whole());
        index.set(ONE, [(contract(1), Flags::default())]);
        assert_eq!((index.count(ONE), index.count(OTHER)), (1, 1));
        index.set(ONE, [(contract(2), Flags::NAMED)]);
        assert_eq!(index.count(ONE), 1);
        assert_eq!(*index.sorted(ONE), [contract(2)]);
        index.replace(ONE, [(contract(3), Flags::NAMED)]);
        assert_eq!((&*index.sorted(ONE), index.count(ONE)), (&[contract(3)][..], 1));
        index.remove(ONE);
        assert!(index.sorted(ONE).is_empty());
        assert!(index.flags(ONE, &contract(2)).is_empty());
        assert_eq!(index.counts(), BTreeMap::from([(OTHER, 1)]));
    }

    /// What a member takes in memory.
    #[test]
    fn a_member_takes_less_than_two_hundred_bytes() {
        // A hash table is at least seven sixteenths full after it has grown, and has a byte for each place.
        let place = size_of::<(ContractId, Projects)>() + 1;
        assert!(place * 16 / 7 < 200, "{place}");
    }
}
