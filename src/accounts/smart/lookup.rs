//! Looks up one smart account.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stellar_xdr::{ScAddress, ScVal};

use super::event::{Reference, Signer, Variant};
use super::fold::registered;
use super::rows::{SmartAccounts, Summary};
use super::state::{Member, Named, Registered, Rule};
use super::tables::RULES;
use crate::AccountIndex;
use orrery_ledger::domain::ContractId;
use orrery_store::{Mark, Rows, StoreError};

/// Rules of an account, and what is registered under the ids that they refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    rules: Vec<(u32, Rule)>,
    signers: Registry<Signer>,
    policies: Registry<ScAddress>,
    /// Whether these are all rules.
    pub has_all_rules: bool,
}

type Registry<T> = BTreeMap<u32, Registered<T>>;

/// Returns the summary and the first rules of an account, at most `most`; `None` when it currently
/// has no rule.
pub fn account(
    rows: &dyn Rows,
    contract: &ContractId,
    most: usize,
) -> Result<Option<(Summary, Account)>, StoreError> {
    let summary = SmartAccounts::summary(rows, contract)?;
    let Some(summary) = summary.filter(|summary| summary.rule_count > 0) else { return Ok(None) };
    let (mut signers, mut policies) = (Registry::new(), Registry::new());
    let mut rules = Vec::new();
    let is_cut = RULES.scan(rows, &(*contract, Mark), None, |(_, id), rule| {
        if rules.len() == most {
            return Ok(ControlFlow::Break(()));
        }
        load(rows, contract, &rule.signers, &mut signers)?;
        load(rows, contract, &rule.policies, &mut policies)?;
        rules.push((id, rule));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Some((summary, Account { rules, signers, policies, has_all_rules: !is_cut })))
}

/// Loads what is registered under the ids of members, where that is not done yet.
fn load<T: Named>(
    rows: &dyn Rows,
    contract: &ContractId,
    members: &[Member<T>],
    registry: &mut Registry<T>,
) -> Result<(), StoreError> {
    for member in members {
        if let Reference::Id(id) = member.reference
            && !registry.contains_key(&id)
        {
            registry.insert(id, registered(rows, contract, id)?);
        }
    }
    Ok(())
}

impl Account {
    /// Returns the rules in ascending order of id, including expired ones: the contract keeps a
    /// rule until it is removed.
    pub fn rules(&self) -> impl Iterator<Item = (u32, &Rule)> {
        self.rules.iter().map(|(id, rule)| (*id, rule))
    }

    /// Returns the signers of a rule in the order in which they were added, without those that are
    /// not registered or have an unsupported variant.
    pub fn signers_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = ListedSigner<'a>> {
        rule.signers.iter().filter_map(|member| match resolve(member, &self.signers)? {
            signer @ Signer::Known { variant, address, .. } => {
                Some(ListedSigner { variant: *variant, address, credential: signer.credential() })
            }
            Signer::Opaque(_) => None,
        })
    }

    /// Returns the policy contracts of a rule in the order in which they were added, each with its
    /// installation parameter if that is known. Policies that are not registered are left out.
    pub fn policies_of<'a>(
        &'a self,
        rule: &'a Rule,
    ) -> impl Iterator<Item = (&'a ScAddress, Option<&'a ScVal>)> {
        rule.policies.iter().filter_map(|member| {
            Some((resolve(member, &self.policies)?, member.install_param.as_ref()))
        })
    }
}

/// Returns the value of a member; `None` when its id has not been registered, or was deregistered
/// after the member was added.
fn resolve<'a, T: Named>(member: &'a Member<T>, registry: &'a Registry<T>) -> Option<&'a T> {
    match &member.reference {
        Reference::Inline(named) => Some(named),
        Reference::Id(id) => {
            let registered = registry.get(id).filter(|it| it.has(member.added))?;
            registered.value.as_ref()
        }
    }
}

/// A resolved signer of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedSigner<'a> {
    /// Variant of the signer.
    pub variant: Variant,
    /// Account or contract that signs; for an external signer, the verifier contract.
    pub address: &'a ScAddress,
    /// Credential id of the signer, if it has one.
    pub credential: Option<&'a [u8]>,
}
