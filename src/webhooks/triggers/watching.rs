//! Who is told of one kind of trigger: subscriptions to contracts, and subscriptions to projects, whose members
//! say for each ledger which contracts these are.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Sources;
use crate::subscription::Subscription;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_membership::{Belongs, MembersInLedger};
use orrery_store::StoreError;

/// A subscription that is told, unless this is not sure: then it is not known whether the contract belongs to
/// its project.
pub(super) type Listener<'w> = (&'w Arc<Subscription>, bool);

/// The members of projects in one ledger, each read once.
#[derive(Default)]
pub(super) struct ProjectMembers<'a>(BTreeMap<String, Option<Rc<dyn MembersInLedger + 'a>>>);

impl<'a> ProjectMembers<'a> {
    /// Returns the members of a project in the ledger; `None` where there is no such project.
    pub fn of(
        &mut self,
        sources: &Sources<'a>,
        project: &str,
        ledger: LedgerSeq,
    ) -> Result<Option<Rc<dyn MembersInLedger + 'a>>, StoreError> {
        if let Some(known) = self.0.get(project) {
            return Ok(known.clone());
        }
        let found = sources.followed.members_in(project, ledger)?.map(Rc::from);
        self.0.insert(project.to_owned(), found.clone());
        Ok(found)
    }
}

/// Who is told of one kind of trigger in a ledger.
#[derive(Default)]
pub(super) struct Watching<'a> {
    by_contract: BTreeMap<ContractId, Vec<Arc<Subscription>>>,
    of_projects: Vec<(Rc<dyn MembersInLedger + 'a>, Arc<Subscription>)>,
}

impl<'a> Watching<'a> {
    /// Adds a subscription.
    pub fn add(
        &mut self,
        subscription: Arc<Subscription>,
        members: Option<Rc<dyn MembersInLedger + 'a>>,
    ) {
        for contract in subscription.contracts.all().unwrap_or_default() {
            self.by_contract.entry(contract).or_default().push(Arc::clone(&subscription));
        }
        if let Some(members) = members {
            self.of_projects.push((members, subscription));
        }
    }

    /// Whether nobody is told.
    pub fn is_empty(&self) -> bool {
        self.by_contract.is_empty() && self.of_projects.is_empty()
    }

    /// Whether somebody is told of contracts that are not listed.
    pub fn has_projects(&self) -> bool {
        !self.of_projects.is_empty()
    }

    /// Returns the contracts that subscriptions name.
    pub fn contracts(&self) -> impl Iterator<Item = &ContractId> {
        self.by_contract.keys()
    }

    /// Whether somebody may be told of a contract.
    pub fn may_have(&self, contract: &ContractId) -> bool {
        self.by_contract.contains_key(contract)
            || self.of_projects.iter().any(|(members, _)| members.may_have(contract))
    }

    /// Returns who may be told of a contract.
    pub fn who_may_be_told(
        &self,
        contract: &ContractId,
    ) -> impl Iterator<Item = &Arc<Subscription>> {
        let own = self.by_contract.get(contract).into_iter().flatten();
        let of_projects = self.of_projects.iter();
        let of_projects = of_projects.filter(move |(members, _)| members.may_have(contract));
        own.chain(of_projects.map(|(_, subscription)| subscription))
    }

    /// Returns who is told of a contract in a transaction.
    pub fn of(&self, contract: &ContractId, order: u32) -> Result<Vec<Listener<'_>>, StoreError> {
        let own = self.by_contract.get(contract).into_iter().flatten();
        let mut all: Vec<Listener<'_>> = own.map(|subscription| (subscription, true)).collect();
        for (members, subscription) in &self.of_projects {
            if !members.may_have(contract) {
                continue;
            }
            match members.has(contract, order)? {
                Belongs::Yes => all.push((subscription, true)),
                Belongs::NotKnown => all.push((subscription, false)),
                Belongs::No => {}
            }
        }
        Ok(all)
    }

    /// Returns the contracts of projects that may have referred to an entry (CAP-85).
    pub fn referring(&self, entry: [u8; 32]) -> Result<Vec<ContractId>, StoreError> {
        let mut all = Vec::new();
        for (members, _) in &self.of_projects {
            all.extend(members.referring(entry)?);
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}
