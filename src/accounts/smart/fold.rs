//! What follows from the events of one smart account, taken in the order of the chain: which rules it has, and
//! who may sign for each.

use std::collections::{BTreeMap, BTreeSet};

use stellar_xdr::{ScAddress, ScVal};

use super::event::{Change, Event, Named, RuleMeta, Signer, Variant};

/// An account as its events have left it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    rules: BTreeMap<u32, Rule>,
    /// Values stay after their deregistration: the removal that follows it names the id.
    signers: BTreeMap<u32, Signer>,
    policies: BTreeMap<u32, ScAddress>,
    /// Rules that have named an id, some of which may not have it any more.
    rules_of_signers: BTreeMap<u32, BTreeSet<u32>>,
    rules_of_policies: BTreeMap<u32, BTreeSet<u32>>,
}

/// A rule. What it has comes in the order in which it was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it is for, until when, and what it is called.
    pub meta: RuleMeta,
    signers: Vec<Named<Signer>>,
    policies: Vec<(Named<ScAddress>, Option<ScVal>)>,
}

impl<T: PartialEq> Named<T> {
    /// What it stands for; none for an id that has not been registered.
    fn resolve<'a>(&'a self, registry: &'a BTreeMap<u32, T>) -> Option<&'a T> {
        match self {
            Self::Id(id) => registry.get(id),
            Self::Inline(value) => Some(value),
        }
    }

    /// Whether both are the same id, or stand for the same: an account that was upgraded names by its id what it
    /// has named by itself before.
    fn equals(&self, other: &Self, registry: &BTreeMap<u32, T>) -> bool {
        let same = |value: &T| other.resolve(registry) == Some(value);
        self == other || self.resolve(registry).is_some_and(same)
    }
}

impl Account {
    /// What an event changes. One for a rule that is not there changes nothing.
    pub fn apply(&mut self, event: Event) {
        let Event { id, change, .. } = event;
        match change {
            Change::RuleAdded { rule, signers, policies } => {
                self.add_rule(id, rule, signers, policies)
            }
            Change::RuleUpdated(update) => {
                if let Some(rule) = self.rules.get_mut(&id) {
                    let context_type = update.context_type.or(rule.meta.context_type.take());
                    rule.meta = RuleMeta { context_type, ..update };
                }
            }
            Change::RuleRemoved => drop(self.rules.remove(&id)),
            Change::SignerRegistered(signer) => drop(self.signers.insert(id, signer)),
            Change::SignerDeregistered => {
                for rule in self.rules_of_signers.remove(&id).unwrap_or_default() {
                    if let Some(rule) = self.rules.get_mut(&rule) {
                        rule.signers.retain(|listed| *listed != Named::Id(id));
                    }
                }
            }
            Change::SignerAdded(signer) => {
                let Some(rule) = self.rules.get_mut(&id) else { return };
                if !rule.signers.iter().any(|listed| listed.equals(&signer, &self.signers)) {
                    remember(&mut self.rules_of_signers, &signer, id);
                    rule.signers.push(signer);
                }
            }
            Change::SignerRemoved(signer) => {
                if let Some(rule) = self.rules.get_mut(&id) {
                    rule.signers.retain(|listed| !listed.equals(&signer, &self.signers));
                }
            }
            Change::PolicyRegistered(policy) => drop(self.policies.insert(id, policy)),
            Change::PolicyDeregistered => {
                for rule in self.rules_of_policies.remove(&id).unwrap_or_default() {
                    if let Some(rule) = self.rules.get_mut(&rule) {
                        rule.policies.retain(|(listed, _)| *listed != Named::Id(id));
                    }
                }
            }
            Change::PolicyAdded { policy, install_param } => {
                let Some(rule) = self.rules.get_mut(&id) else { return };
                if !rule.policies.iter().any(|(listed, _)| listed.equals(&policy, &self.policies)) {
                    remember(&mut self.rules_of_policies, &policy, id);
                    rule.policies.push((policy, install_param));
                }
            }
            Change::PolicyRemoved(policy) => {
                if let Some(rule) = self.rules.get_mut(&id) {
                    rule.policies.retain(|(listed, _)| !listed.equals(&policy, &self.policies));
                }
            }
        }
    }

    /// The rule that was there under this id goes, with all that it had.
    fn add_rule(
        &mut self,
        id: u32,
        meta: RuleMeta,
        signers: Vec<Named<Signer>>,
        policies: Vec<Named<ScAddress>>,
    ) {
        signers.iter().for_each(|it| remember(&mut self.rules_of_signers, it, id));
        policies.iter().for_each(|it| remember(&mut self.rules_of_policies, it, id));
        let policies = policies.into_iter().map(|policy| (policy, None)).collect();
        self.rules.insert(id, Rule { meta, signers, policies });
    }

    /// Its rules, by id. One whose time has passed is among them: the contract has it until it is removed.
    pub fn rules(&self) -> impl Iterator<Item = (u32, &Rule)> {
        self.rules.iter().map(|(id, rule)| (*id, rule))
    }

    /// Who may sign for a rule, in the order in which they were added. Those that have not been registered, or
    /// whose variant is not known, are left out.
    pub fn signers_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = ListedSigner<'a>> {
        rule.signers.iter().filter_map(|signer| match signer.resolve(&self.signers)? {
            signer @ Signer::Known { variant, address, .. } => {
                Some(ListedSigner { variant: *variant, address, credential: signer.credential() })
            }
            Signer::Opaque(_) => None,
        })
    }

    /// Which contracts have to agree, in the order in which they were added, each with what it was installed with
    /// where that is known.
    pub fn policies_of<'a>(
        &'a self,
        rule: &'a Rule,
    ) -> impl Iterator<Item = (&'a ScAddress, Option<&'a ScVal>)> {
        rule.policies.iter().filter_map(|(policy, install_param)| {
            Some((policy.resolve(&self.policies)?, install_param.as_ref()))
        })
    }
}

fn remember<T>(rules: &mut BTreeMap<u32, BTreeSet<u32>>, named: &Named<T>, rule: u32) {
    if let Named::Id(id) = named {
        rules.entry(*id).or_default().insert(rule);
    }
}

/// A signer of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedSigner<'a> {
    /// Its variant.
    pub variant: Variant,
    /// The account or contract that signs, or the contract that verifies.
    pub address: &'a ScAddress,
    /// The id of its credential.
    pub credential: Option<&'a [u8]>,
}
