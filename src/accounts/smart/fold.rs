//! Derives the state of a smart account from its events, applied in chain order: its rules, and the
//! signers and policies of each.

use std::collections::{BTreeMap, BTreeSet};

use stellar_xdr::{ScAddress, ScVal};

use super::event::{Change, Event, Reference, RuleMeta, Signer, Variant};

/// State of an account after its events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    rules: BTreeMap<u32, Rule>,
    /// Registered signers by id. Entries stay after deregistration, because the removal event that
    /// follows refers to the id.
    signers: BTreeMap<u32, Signer>,
    policies: BTreeMap<u32, ScAddress>,
    /// For each signer id, the rules that have referred to it; some of them may not have it any
    /// more.
    rules_of_signers: BTreeMap<u32, BTreeSet<u32>>,
    rules_of_policies: BTreeMap<u32, BTreeSet<u32>>,
}

/// A rule. Its signers and policies are in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Context type, expiration and name of the rule.
    pub meta: RuleMeta,
    signers: Vec<Reference<Signer>>,
    policies: Vec<(Reference<ScAddress>, Option<ScVal>)>,
}

impl<T: PartialEq> Reference<T> {
    /// Returns the value itself, or the registered value of an id; `None` for an id that has not
    /// been registered.
    fn resolve<'a>(&'a self, registry: &'a BTreeMap<u32, T>) -> Option<&'a T> {
        match self {
            Self::Id(id) => registry.get(id),
            Self::Inline(value) => Some(value),
        }
    }

    /// Whether both are the same id or resolve to the same value. After an upgrade, an account
    /// refers by id to a signer or policy that it gave in full before.
    fn equals(&self, other: &Self, registry: &BTreeMap<u32, T>) -> bool {
        let same = |value: &T| other.resolve(registry) == Some(value);
        self == other || self.resolve(registry).is_some_and(same)
    }
}

impl Account {
    /// Applies an event. An event for a rule that does not exist changes nothing.
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
                        rule.signers.retain(|listed| *listed != Reference::Id(id));
                    }
                }
            }
            Change::SignerAdded(signer) => {
                let Some(rule) = self.rules.get_mut(&id) else { return };
                if !rule.signers.iter().any(|listed| listed.equals(&signer, &self.signers)) {
                    record_reference(&mut self.rules_of_signers, &signer, id);
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
                        rule.policies.retain(|(listed, _)| *listed != Reference::Id(id));
                    }
                }
            }
            Change::PolicyAdded { policy, install_param } => {
                let Some(rule) = self.rules.get_mut(&id) else { return };
                if !rule.policies.iter().any(|(listed, _)| listed.equals(&policy, &self.policies)) {
                    record_reference(&mut self.rules_of_policies, &policy, id);
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

    /// Inserts a rule and replaces any existing rule with this id, including its signers and
    /// policies.
    fn add_rule(
        &mut self,
        id: u32,
        meta: RuleMeta,
        signers: Vec<Reference<Signer>>,
        policies: Vec<Reference<ScAddress>>,
    ) {
        signers.iter().for_each(|it| record_reference(&mut self.rules_of_signers, it, id));
        policies.iter().for_each(|it| record_reference(&mut self.rules_of_policies, it, id));
        let policies = policies.into_iter().map(|policy| (policy, None)).collect();
        self.rules.insert(id, Rule { meta, signers, policies });
    }

    /// Returns the rules in ascending order of id, including expired ones: the contract keeps a
    /// rule until it is removed.
    pub fn rules(&self) -> impl Iterator<Item = (u32, &Rule)> {
        self.rules.iter().map(|(id, rule)| (*id, rule))
    }

    /// Returns the signers of a rule in the order in which they were added, without those that are
    /// not registered or have an unsupported variant.
    pub fn signers_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = ListedSigner<'a>> {
        rule.signers.iter().filter_map(|signer| match signer.resolve(&self.signers)? {
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
        rule.policies.iter().filter_map(|(policy, install_param)| {
            Some((policy.resolve(&self.policies)?, install_param.as_ref()))
        })
    }
}

fn record_reference<T>(
    rules: &mut BTreeMap<u32, BTreeSet<u32>>,
    reference: &Reference<T>,
    rule: u32,
) {
    if let Reference::Id(id) = reference {
        rules.entry(*id).or_default().insert(rule);
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
