//! Derives the state of a smart account from its events, applied in chain order: its rules, and the
//! signers and policies of each.
//!
//! The state is kept as rows by key, so that an event costs the same whatever the account has
//! already. An event of a rule reads and writes that rule, whose members are limited in number and
//! size, and what is registered under their ids. Each registered signer has the number of members
//! that refer to it, so that the event that registers or deregisters it changes the totals without
//! reading a rule.

use stellar_xdr::{ScAddress, ScVal};

use super::account::Stored;
use super::event::{Change, Event, Reference, RuleMeta, Signer};
use super::state::{Member, Named, Registered, Rule};
use super::tables::{RULE_IDS, RULES, put_signer, registry, tags_of};
use crate::{Position, value};
use orrery_ledger::domain::ContractId;
use orrery_store::{Mark, RowCodec, Rows, RowsMut, StoreError, Table};

/// Maximum number of signers of a rule, and of its policies. The contracts allow 15 and 5.
const MAX_MEMBERS: usize = 32;

/// Maximum size of the signers and policies of a rule, in bytes. The contracts allow keys of 256.
const MAX_MEMBER_BYTES: usize = 16 << 10;

/// An event that is being applied to the state of its account.
pub(super) struct Fold<'a> {
    pub rows: &'a mut dyn RowsMut,
    pub contract: &'a ContractId,
    pub account: &'a mut Stored,
    /// Position of the event. Events must be applied in the order of their positions.
    pub at: Position,
    /// Number of rows that it has read and written so far.
    pub work: usize,
}

/// A signer or a policy, and how the account's totals count a member with it.
trait Counted: Named {
    /// Adds (or subtracts) members with this reference.
    fn count(fold: &mut Fold<'_>, reference: &Reference<Self>, by: i32) -> Result<(), StoreError>;

    /// Moves what was counted for a registered value to the value that replaces it.
    fn replace(
        fold: &mut Fold<'_>,
        members: u32,
        old: Option<&Self>,
        new: Option<&Self>,
    ) -> Result<(), StoreError>;
}

impl Counted for Signer {
    fn count(fold: &mut Fold<'_>, reference: &Reference<Self>, by: i32) -> Result<(), StoreError> {
        match reference {
            Reference::Inline(signer) => fold.weigh(signer, by),
            Reference::Id(id) => {
                let mut registered = fold.registered::<Self>(*id)?;
                registered.members = registered.members.saturating_add_signed(by);
                fold.put_registered(*id, &registered)?;
                registered.value.map_or(Ok(()), |signer| fold.weigh(&signer, by))
            }
        }
    }

    fn replace(
        fold: &mut Fold<'_>,
        members: u32,
        old: Option<&Self>,
        new: Option<&Self>,
    ) -> Result<(), StoreError> {
        let members = i32::try_from(members).unwrap_or(i32::MAX);
        if members == 0 || old == new {
            return Ok(());
        }
        old.map_or(Ok(()), |signer| fold.weigh(signer, -members))?;
        new.map_or(Ok(()), |signer| fold.weigh(signer, members))
    }
}

/// No total counts policies.
impl Counted for ScAddress {
    fn count(_: &mut Fold<'_>, _: &Reference<Self>, _: i32) -> Result<(), StoreError> {
        Ok(())
    }

    fn replace(
        _: &mut Fold<'_>,
        _: u32,
        _: Option<&Self>,
        _: Option<&Self>,
    ) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Fold<'_> {
    /// Applies the event. An event for a rule that does not exist changes nothing.
    pub fn apply(&mut self, Event { id, change, .. }: &Event) -> Result<(), StoreError> {
        match change {
            Change::RuleAdded { rule, signers, policies } => {
                self.add_rule(*id, rule, signers, policies)
            }
            Change::RuleUpdated(update) => {
                let Some(mut rule) = self.rule(*id)? else { return Ok(()) };
                let context_type = update.context_type.clone().or(rule.meta.context_type.take());
                rule.meta = RuleMeta { context_type, ..update.clone() };
                self.put_rule(*id, &rule)
            }
            Change::RuleRemoved => self.remove_rule(*id),
            Change::SignerRegistered(signer) => self.register(*id, signer),
            Change::SignerDeregistered => self.deregister::<Signer>(*id),
            Change::SignerAdded(signer) => self.add(*id, signer, None),
            Change::SignerRemoved(signer) => self.remove(*id, signer),
            Change::PolicyRegistered(policy) => self.register(*id, policy),
            Change::PolicyDeregistered => self.deregister::<ScAddress>(*id),
            Change::PolicyAdded { policy, install_param } => {
                self.add(*id, policy, install_param.as_ref())
            }
            Change::PolicyRemoved(policy) => self.remove(*id, policy),
        }
    }

    /// Adds a rule and replaces any existing rule with this id, including its signers and policies.
    fn add_rule(
        &mut self,
        id: u32,
        meta: &RuleMeta,
        signers: &[Reference<Signer>],
        policies: &[Reference<ScAddress>],
    ) -> Result<(), StoreError> {
        self.remove_rule(id)?;
        let mut rule = Rule { meta: meta.clone(), signers: Vec::new(), policies: Vec::new() };
        let mut room = MAX_MEMBER_BYTES;
        for signer in signers {
            self.push(&mut rule, signer, None, &mut room)?;
        }
        for policy in policies {
            self.push(&mut rule, policy, None, &mut room)?;
        }
        self.account.rules += 1;
        self.put(&RULE_IDS, &((*self.contract, Mark), id), &())?;
        self.put_rule(id, &rule)
    }

    fn remove_rule(&mut self, id: u32) -> Result<(), StoreError> {
        let Some(mut rule) = self.rule(id)? else { return Ok(()) };
        self.drop_gone::<Signer>(&mut rule)?;
        for signer in &rule.signers {
            Signer::count(self, &signer.reference, -1)?;
        }
        self.account.rules -= 1;
        self.work += 2;
        RULE_IDS.delete(self.rows, &((*self.contract, Mark), id))?;
        RULES.delete(self.rows, &((*self.contract, Mark), id))
    }

    /// Adds a signer or policy to a rule, unless the rule has an equal one.
    fn add<T: Counted>(
        &mut self,
        id: u32,
        named: &Reference<T>,
        install_param: Option<&ScVal>,
    ) -> Result<(), StoreError> {
        let Some(mut rule) = self.rule(id)? else { return Ok(()) };
        self.drop_gone::<T>(&mut rule)?;
        let value = self.resolve(named)?;
        for member in T::members(&mut rule).iter() {
            if self.is_equal(member, named, value.as_ref())? {
                return Ok(());
            }
        }
        let of_signers: usize = rule.signers.iter().map(Member::bytes).sum();
        let of_policies: usize = rule.policies.iter().map(Member::bytes).sum();
        let mut room = MAX_MEMBER_BYTES.saturating_sub(of_signers + of_policies);
        self.push(&mut rule, named, install_param, &mut room)?;
        self.put_rule(id, &rule)
    }

    /// Removes all signers or policies from a rule that equal this one.
    fn remove<T: Counted>(&mut self, id: u32, named: &Reference<T>) -> Result<(), StoreError> {
        let Some(mut rule) = self.rule(id)? else { return Ok(()) };
        self.drop_gone::<T>(&mut rule)?;
        let value = self.resolve(named)?;
        let members = std::mem::take(T::members(&mut rule));
        let (before, mut kept) = (members.len(), Vec::new());
        for member in members {
            match self.is_equal(&member, named, value.as_ref())? {
                true => T::count(self, &member.reference, -1)?,
                false => kept.push(member),
            }
        }
        if kept.len() == before {
            return Ok(());
        }
        *T::members(&mut rule) = kept;
        self.put_rule(id, &rule)
    }

    fn register<T: Counted>(&mut self, id: u32, named: &T) -> Result<(), StoreError> {
        let mut registered = self.registered::<T>(id)?;
        T::replace(self, registered.members, registered.value.as_ref(), Some(named))?;
        registered.value = Some(named.clone());
        self.put_registered(id, &registered)
    }

    fn deregister<T: Counted>(&mut self, id: u32) -> Result<(), StoreError> {
        let mut registered = self.registered::<T>(id)?;
        T::replace(self, registered.members, registered.value.as_ref(), None)?;
        registered.members = 0;
        registered.deregistered = Some(self.at);
        self.put_registered(id, &registered)
    }

    /// Appends a member to a rule, if `room` bytes and the number of members allow it.
    fn push<T: Counted>(
        &mut self,
        rule: &mut Rule,
        named: &Reference<T>,
        install_param: Option<&ScVal>,
        room: &mut usize,
    ) -> Result<(), StoreError> {
        let members = T::members(rule);
        if members.len() == MAX_MEMBERS {
            self.account.is_cut = true;
            return Ok(());
        }
        let (reference, install_param) = (named.clone(), install_param.cloned());
        let member = Member { reference, added: self.at, install_param };
        let Some(left) = room.checked_sub(member.bytes()) else {
            self.account.is_cut = true;
            return Ok(());
        };
        *room = left;
        members.push(member);
        T::count(self, named, 1)
    }

    /// Drops the members whose id was deregistered after they were added. They do not count any
    /// more since then.
    fn drop_gone<T: Named>(&mut self, rule: &mut Rule) -> Result<(), StoreError> {
        let mut kept = Vec::new();
        for member in std::mem::take(T::members(rule)) {
            let is_there = match member.reference {
                Reference::Id(id) => self.registered::<T>(id)?.has(member.added),
                Reference::Inline(_) => true,
            };
            if is_there {
                kept.push(member);
            }
        }
        *T::members(rule) = kept;
        Ok(())
    }

    /// Whether a member has the same reference, or resolves to the same value. After an upgrade, an
    /// account refers by id to a signer or policy that it gave in full before.
    fn is_equal<T: Named>(
        &mut self,
        member: &Member<T>,
        named: &Reference<T>,
        value: Option<&T>,
    ) -> Result<bool, StoreError> {
        Ok(member.reference == *named
            || (value.is_some() && self.resolve(&member.reference)?.as_ref() == value))
    }

    /// Returns the value itself, or the registered value of an id; `None` for an id that has not
    /// been registered.
    fn resolve<T: Named>(&mut self, reference: &Reference<T>) -> Result<Option<T>, StoreError> {
        match reference {
            Reference::Id(id) => Ok(self.registered(*id)?.value),
            Reference::Inline(named) => Ok(Some(named.clone())),
        }
    }

    /// Adds pairs with this signer to the totals, and to the signers that lookups find.
    fn weigh(&mut self, signer: &Signer, by: i32) -> Result<(), StoreError> {
        let Signer::Known { variant, .. } = signer else { return Ok(()) };
        let pairs = self.account.pairs_of_mut(*variant);
        *pairs = pairs.saturating_add_signed(by);
        for tag in tags_of(signer) {
            self.work += 3;
            put_signer(self.rows, *self.contract, tag, self.at, by)?;
        }
        Ok(())
    }

    fn rule(&mut self, id: u32) -> Result<Option<Rule>, StoreError> {
        self.work += 1;
        RULES.get(self.rows, &((*self.contract, Mark), id))
    }

    fn put_rule(&mut self, id: u32, rule: &Rule) -> Result<(), StoreError> {
        self.put(&RULES, &((*self.contract, Mark), id), rule)
    }

    fn registered<T: Named>(&mut self, id: u32) -> Result<Registered<T>, StoreError> {
        self.work += 1;
        registered(self.rows, self.contract, id)
    }

    fn put_registered<T: Named>(
        &mut self,
        id: u32,
        registered: &Registered<T>,
    ) -> Result<(), StoreError> {
        self.put(&registry(), &((*self.contract, T::REGISTRY), id), registered)
    }

    fn put<K: RowCodec, V: RowCodec>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> Result<(), StoreError> {
        self.work += 1;
        table.put(self.rows, key, value)
    }
}

impl<T: Named> Member<T> {
    /// Size of the member in its rule, in bytes.
    fn bytes(&self) -> usize {
        value::xdr(&self.to_value()).len()
    }
}

/// Returns what is registered under an id.
pub(super) fn registered<T: Named>(
    rows: &dyn Rows,
    contract: &ContractId,
    id: u32,
) -> Result<Registered<T>, StoreError> {
    Ok(registry().get(rows, &((*contract, T::REGISTRY), id))?.unwrap_or_default())
}
