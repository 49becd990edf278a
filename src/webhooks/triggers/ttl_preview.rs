//! Which entries a subscription would have been told of, had it been made some ledgers ago.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ttl_entries::{Looking, Moment};
use super::ttl_members::MembersLook;
use super::ttl_notes::NotesInMemory;
use super::{Sources, Told};
use crate::subscription::Subscription;
use crate::trigger::Trigger;
use orrery_contract_data::{CodeLives, KeyTag, all_changed_in};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::StoreError;

/// Number of keys that are read at once.
const PAGE: usize = 64;

/// Looks at one ledger after the other.
#[derive(Default)]
pub(crate) struct TtlPreview {
    first: Option<LedgerSeq>,
    /// Times to live that entries were given.
    lives: BTreeSet<(LedgerSeq, KeyTag)>,
    codes: CodeLives,
    /// Of a project.
    notes: NotesInMemory,
    looked: BTreeSet<ContractId>,
}

impl TtlPreview {
    /// Returns what the subscription would have been told in a ledger; `None` when `is_over` is true first.
    pub fn look(
        &mut self,
        sources: &Sources<'_>,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Told>>, StoreError> {
        if !matches!(subscription.definition.trigger, Trigger::Ttl { .. }) {
            return Ok(Some(Vec::new()));
        }
        let moment = Moment::of(sources, ledger)?;
        let is_first = self.first.is_none();
        let first = *self.first.get_or_insert(ledger);
        if let Some(project) = subscription.contracts.project() {
            return self.look_at_members(sources, (subscription, project), &moment, is_over);
        }
        self.look_at_one((sources, &moment), subscription, (first, is_first), is_over)
    }

    fn look_at_one<'s>(
        &mut self,
        (sources, moment): (&Sources<'s>, &Moment<'s>),
        subscription: &Arc<Subscription>,
        (first, is_first): (LedgerSeq, bool),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Told>>, StoreError> {
        let definition = (&subscription.definition.trigger, subscription.contracts.one());
        let (Trigger::Ttl { within, entries, keys }, Some(contract)) = definition else {
            return Ok(Some(Vec::new()));
        };
        let within = *within;
        let looking = Looking::of_one((sources, moment), subscription, (within, first));
        let mut told = looking.vital(&contract, *entries, &mut self.codes, &mut Vec::new())?;
        let mut look = |lives: &mut BTreeSet<_>, tags: &mut dyn Iterator<Item = KeyTag>| {
            for tag in tags {
                if let Some(given) = moment.now().given((contract, tag))? {
                    lives.insert((given.live_until, tag));
                }
                told.extend(looking.data((contract, tag), keys)?);
                if is_over() {
                    return Ok(false);
                }
            }
            Ok::<_, StoreError>(true)
        };
        if entries.data && is_first {
            let mut after = None;
            loop {
                let page = moment.now().keys_after(&contract, after, PAGE)?;
                if !look(&mut self.lives, &mut page.iter().copied())? {
                    return Ok(None);
                }
                after = page.last().copied();
                if page.len() < PAGE {
                    break;
                }
            }
        } else if entries.data {
            let tags = self.near_or_changed(moment, (&contract, within))?;
            if !look(&mut self.lives, &mut tags.into_iter())? {
                return Ok(None);
            }
        }
        told.sort_by_key(|told| told.number);
        Ok(Some(told))
    }

    /// Returns the keys of a contract that come near their end in a ledger, or that it changed.
    fn near_or_changed(
        &self,
        moment: &Moment<'_>,
        (contract, within): (&ContractId, u32),
    ) -> Result<BTreeSet<KeyTag>, StoreError> {
        let until = LedgerSeq(moment.ledger.0.saturating_add(within - 1));
        let near = (until, KeyTag([0; KeyTag::LEN]))..=(until, KeyTag([u8::MAX; KeyTag::LEN]));
        let mut tags: BTreeSet<KeyTag> = self.lives.range(near).map(|(_, tag)| *tag).collect();
        tags.extend(moment.now().changed_keys(contract)?);
        Ok(tags)
    }

    fn look_at_members<'s>(
        &mut self,
        sources: &Sources<'s>,
        (subscription, project): (&Arc<Subscription>, &str),
        moment: &Moment<'s>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Told>>, StoreError> {
        let changed = all_changed_in(sources.store, moment.ledger)?;
        let first = self.first.unwrap_or(moment.ledger);
        let of = (subscription, first);
        let Some(look) = MembersLook::new(sources, moment, of, &changed)? else {
            return Ok(Some(Vec::new()));
        };
        let contracts = sources.followed.members(project);
        let (mut told, mut after) = (Vec::new(), None);
        let mut left = contracts.iter().copied().peekable();
        loop {
            while left.peek().is_some_and(|it| {
                after.is_some_and(|after| *it <= after) || self.looked.contains(it)
            }) {
                left.next();
            }
            let new = left.peek().copied();
            let Some(contract) = look.next(&self.notes, after, new)? else { break };
            let (is_new, mut key) = (!self.looked.contains(&contract), None);
            let may_belong = loop {
                let seen = look.page(&self.notes, (contract, key), is_new, &mut self.codes)?;
                self.notes.lives.extend(seen.lives);
                self.notes.shared.extend(seen.shared.into_iter().map(|entry| (entry, contract)));
                told.extend(seen.told);
                key = seen.after;
                if is_over() {
                    return Ok(None);
                }
                if key.is_none() {
                    break seen.may_belong;
                }
            };
            // It may become a member in a later ledger.
            if may_belong {
                self.looked.insert(contract);
            }
            after = Some(contract);
        }
        told.sort_by_key(|told| told.number);
        Ok(Some(told))
    }
}
