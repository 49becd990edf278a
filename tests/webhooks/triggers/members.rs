//! Projects whose members the test decides: since which ledger each is one, and from which stored ledger on that
//! is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery::domain::{ContractId, LedgerRange, LedgerSeq, Owner, ProgramId};
use orrery::executables::Tried;
use orrery::membership::{Belongs, KnownMembers, MemberMark, MembersInLedger, Projects, Selected};
use orrery::store::{EventQuery, Store, StoreError};
use parking_lot::Mutex;

/// Members, each with the ledger in which it became one and the newest ledger with which that is known.
pub type Members = BTreeMap<ContractId, (u32, u32)>;

/// The beginning of the name of a project of whose events it is not known whether they belong to it.
pub const UNSURE: &str = "unsure";

/// Projects by name.
#[derive(Default)]
pub struct Stand {
    projects: Mutex<BTreeMap<String, Members>>,
    lists: Mutex<BTreeMap<String, Arc<[ContractId]>>>,
}

/// The projects of a store.
pub struct OfStore {
    pub stand: Arc<Stand>,
    pub store: Arc<Store>,
}

impl Stand {
    pub fn add(&self, name: &str, members: Members) {
        self.projects.lock().insert(name.to_owned(), members);
    }
}

impl OfStore {
    /// Returns the members that are known now.
    fn known(&self, project: &str) -> Members {
        let newest = self.store.status().latest().map_or(0, |latest| latest.0);
        let mut members = self.stand.projects.lock().get(project).cloned().unwrap_or_default();
        members.retain(|_, (_, known)| *known <= newest);
        members
    }
}

struct InLedger {
    members: Members,
    ledger: u32,
}

impl MembersInLedger for InLedger {
    fn may_have(&self, contract: &ContractId) -> bool {
        self.members.contains_key(contract)
    }

    fn has(&self, contract: &ContractId, _: u32) -> Result<Belongs, StoreError> {
        let since = self.members.get(contract).map(|(since, _)| *since);
        Ok(match since.is_some_and(|since| since <= self.ledger) {
            true => Belongs::Yes,
            false => Belongs::No,
        })
    }

    fn referring(&self, _: [u8; 32]) -> Result<Vec<ContractId>, StoreError> {
        Ok(self.members.keys().copied().collect())
    }
}

impl Projects for OfStore {
    fn readable(&self, _: &Owner, project: &str) -> Option<String> {
        self.stand.projects.lock().contains_key(project).then(|| project.to_owned())
    }

    fn selected(&self, project: &str, ledger: LedgerSeq) -> Result<Option<Selected>, StoreError> {
        let members = InLedger { members: self.known(project), ledger: ledger.0 };
        let mut selected = Selected::default();
        self.store.events(&EventQuery::of_ledgers(LedgerRange::only(ledger)), |event| {
            let contract = event.contract.map(|contract| ContractId(*contract));
            let belongs = contract.map(|contract| members.has(&contract, 0).unwrap());
            if belongs == Some(Belongs::Yes) {
                let is_unsure = project.starts_with(UNSURE);
                let to = if is_unsure { &mut selected.unsure } else { &mut selected.events };
                to.insert(event.id);
            }
        })?;
        Ok(Some(selected))
    }

    fn members_in<'p>(
        &'p self,
        project: &str,
        ledger: LedgerSeq,
    ) -> Result<Option<Box<dyn MembersInLedger + 'p>>, StoreError> {
        let members = self.known(project);
        Ok(Some(Box::new(InLedger { members, ledger: ledger.0 })))
    }

    fn members(&self, project: &str) -> Arc<[ContractId]> {
        let known: Arc<[ContractId]> = self.known(project).into_keys().collect();
        let mut lists = self.stand.lists.lock();
        let list = lists.entry(project.to_owned()).or_default();
        if *list != known {
            *list = known;
        }
        Arc::clone(list)
    }

    fn has_members(&self, _: &str) -> bool {
        true
    }

    fn supplied(&self, _: &str) -> Result<Option<Tried>, StoreError> {
        Ok(None)
    }

    fn contracts(&self, project: &str, most: usize) -> Option<Vec<ContractId>> {
        let known: Vec<ContractId> = self.known(project).into_keys().collect();
        (known.len() <= most).then_some(known)
    }

    fn has_looked(&self, _: &str, _: u64) -> bool {
        true
    }

    fn known_since(&self, _: &str, _: Option<MemberMark>) -> KnownMembers {
        let mark = MemberMark { program: ProgramId(1), number: 0 };
        KnownMembers { mark: Some(mark), ..KnownMembers::default() }
    }
}
