//! Replays of expiring entries: a page of a ledger at a time, because a contract may have any number of entries.

use std::sync::Arc;

use super::Told;
use super::ttl::{PAGE, TtlLooks, WATCHED, Watched, page};
use super::ttl_entries::Looking;
use super::ttl_members::MembersLook;
use super::ttl_notes::StoredNotes;
use crate::subscription::Subscription;
use crate::trigger::Trigger;
use orrery_contract_data::KeyTag;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{Mark, Rows, StoreError};

/// How far a replay has looked at a ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TtlPlace {
    /// See [`Watched::contract`].
    contract: Option<ContractId>,
    /// See [`Watched::after`].
    after: Option<KeyTag>,
}

impl TtlLooks<'_> {
    /// Looks at a page of a ledger for a replay, and returns what a subscription is told of it, and whether that
    /// was the last one; `None` when it has not looked at the ledger by itself yet. `place` says what is left
    /// of the ledger.
    pub fn replayed(
        &mut self,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        rows: &dyn Rows,
        place: &mut TtlPlace,
    ) -> Result<Option<(Vec<Told>, bool)>, StoreError> {
        let Some(watched) = WATCHED.get(rows, &(Mark, subscription.id))? else { return Ok(None) };
        let Trigger::Ttl { within, entries, keys } = &subscription.definition.trigger else {
            return Ok(Some((Vec::new(), true)));
        };
        if ledger >= watched.at {
            return Ok(None);
        }
        if ledger < watched.first {
            return Ok(Some((Vec::new(), true)));
        }
        if let Some(project) = subscription.contracts.project() {
            let of = (subscription, project);
            return self.replayed_of_members(of, watched, ledger, rows, place).map(Some);
        }
        let Some(contract) = subscription.contracts.one() else {
            return Ok(Some((Vec::new(), true)));
        };
        let moment = self.moment(ledger)?;
        let sources = self.sources;
        let of = (*within, watched.first);
        let looking = Looking::of_one((&sources, &moment), subscription, of);
        let mut found = Vec::new();
        if place.after.is_none() {
            let codes = &mut self.memory.codes;
            found = looking.vital(&contract, *entries, codes, &mut Vec::new())?;
        }
        let page = match entries.data {
            true => page(&looking, rows, (contract, place.after))?,
            false => Vec::new(),
        };
        for tag in &page {
            found.extend(looking.data((contract, *tag), keys)?);
        }
        place.after = page.last().copied().filter(|_| page.len() >= PAGE);
        self.moment = Some(moment);
        Ok(Some((found, place.after.is_none())))
    }

    /// Returns what a subscription to the members of a project is told of a page of a ledger at which it has
    /// looked, and whether that was the last one.
    fn replayed_of_members(
        &mut self,
        (subscription, project): (&Arc<Subscription>, &str),
        watched: Watched,
        ledger: LedgerSeq,
        rows: &dyn Rows,
        place: &mut TtlPlace,
    ) -> Result<(Vec<Told>, bool), StoreError> {
        let changed = self.memory.changed(&self.sources, ledger)?;
        let since = self.memory.looked_since(rows, subscription.id)?;
        let moment = self.moment(ledger)?;
        let sources = self.sources;
        let of = (subscription, watched.first);
        let Some(look) = MembersLook::new(&sources, &moment, of, &changed)? else {
            return Ok((Vec::new(), true));
        };
        let contracts = sources.followed.members(project);
        // Of those at which it has looked later, not all was noted then.
        let is_new = |contract: &ContractId| since.get(contract).is_none_or(|it| *it >= ledger);
        let notes = StoredNotes { rows, subscription: subscription.id };
        let contract = look.go_on(&notes, (place.contract, place.after), |after| {
            let begin = after.map_or(0, |it| contracts.partition_point(|other| *other <= it));
            Ok(contracts[begin..].iter().copied().find(is_new))
        })?;
        let seen = match contract {
            Some(contract) => {
                let of = (contract, place.after);
                Some(look.page(&notes, of, is_new(&contract), &mut self.memory.codes)?)
            }
            None => None,
        };
        drop(look);
        self.moment = Some(moment);
        Ok(match seen {
            Some(seen) => {
                *place = TtlPlace { contract, after: seen.after };
                (seen.told, false)
            }
            None => {
                *place = TtlPlace::default();
                (Vec::new(), true)
            }
        })
    }
}
