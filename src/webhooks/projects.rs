//! Subscriptions to projects, as their owners ask for them.

use std::sync::Arc;

use super::CONSUMER;
use super::WebhookError;
use super::followed::{LATE, LateMembers, ended};
use super::manage::{NewSubscriptions, Webhooks};
use super::subscription::{Row, Subscription};
use orrery_executables::Tried;
use orrery_ledger::domain::{ContractId, LedgerSeq, Owner, excerpt};
use orrery_membership::Selected;
use orrery_store::{Mark, RowBounds, StoreError};

/// Number of contracts of a project of which it is looked what they declare.
const MOST_CONTRACTS: usize = 200;

/// What the events of wanted subscriptions may be declared by.
pub(super) struct Declaring {
    /// The contracts; `None` where there may be others.
    pub contracts: Option<Vec<ContractId>>,
    /// The interface that was supplied with their project.
    pub supplied: Option<Tried>,
}

impl Webhooks {
    /// Returns what is wanted with the name of its project as its owner spelled it.
    ///
    /// # Errors
    /// [`WebhookError::UnknownProject`] when the owner does not read such a project.
    pub(super) fn of_project(
        &self,
        owner: &Owner,
        wanted: NewSubscriptions,
    ) -> Result<NewSubscriptions, WebhookError> {
        let Some(given) = &wanted.project else { return Ok(wanted) };
        let found = self.registry.followed.readable(owner, given);
        let unknown = || WebhookError::UnknownProject(excerpt(given));
        let found = found.ok_or_else(unknown)?;
        if !wanted.trigger.is_by_events() && !self.registry.followed.has_members(&found) {
            let problem = format!(
                "is '{}', which has events by their names and no contracts, and '{}' is about contracts: give a \
                 project that selects contracts, or 'contract_ids'",
                excerpt(given),
                wanted.trigger.name()
            );
            return Err(WebhookError::Value { name: "project", problem });
        }
        let project = Some(found);
        Ok(NewSubscriptions { project, ..wanted })
    }

    /// Returns the contract of which a test delivery says something: of a project, one that belongs to it.
    pub(super) fn invented(&self, subscription: &Subscription) -> Option<ContractId> {
        let trigger = &subscription.definition.trigger;
        match subscription.contracts.project() {
            Some(project) if !trigger.is_by_events() => {
                let members = self.registry.followed.members(project);
                Some(members.first().copied().unwrap_or(ContractId([0; 32])))
            }
            _ => subscription.definition.contract(),
        }
    }

    /// Checks that the owner of a subscription reads its project, if it has one.
    ///
    /// # Errors
    /// [`WebhookError::UnknownProject`]
    pub(super) fn check_project(&self, subscription: &Subscription) -> Result<(), WebhookError> {
        let Some(project) = subscription.contracts.project() else { return Ok(()) };
        let found = self.registry.followed.readable(&subscription.definition.owner, project);
        found.map(drop).ok_or_else(|| WebhookError::UnknownProject(excerpt(project)))
    }

    /// Returns the events of a ledger that the project of a subscription selects; `None` where it has none.
    pub(super) fn selected_by(
        &self,
        subscription: &Subscription,
        ledger: LedgerSeq,
    ) -> Result<Option<Selected>, StoreError> {
        let project = subscription.contracts.project();
        project.map(|project| self.registry.followed.selected(project, ledger)).transpose()
    }

    /// Returns by what the events of wanted subscriptions may be declared.
    pub(super) fn declaring(&self, wanted: &NewSubscriptions) -> Result<Declaring, StoreError> {
        let Some(project) = &wanted.project else {
            return Ok(Declaring { contracts: Some(wanted.contracts.clone()), supplied: None });
        };
        let followed = &self.registry.followed;
        let contracts = followed.contracts(project, MOST_CONTRACTS);
        Ok(Declaring { contracts, supplied: followed.supplied(project)? })
    }

    /// Returns the members of a subscription's project that became known late.
    ///
    /// # Errors
    /// When the store fails.
    pub fn late_members(&self, subscription: &Subscription) -> Result<LateMembers, WebhookError> {
        if subscription.contracts.project().is_none() {
            return Ok(LateMembers::default());
        }
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        Ok(LATE.get(&view, &(Mark, subscription.id))?.unwrap_or_default())
    }

    /// Ends the subscriptions to a project whose owners do not read it any more.
    ///
    /// # Errors
    /// When the store fails.
    pub fn end_unreadable(&self) -> Result<(), WebhookError> {
        let of_projects: Vec<(String, Arc<Subscription>)> = self.registry.with(|known| {
            let all = known.by_project();
            let each = all.flat_map(|(project, bucket)| {
                bucket.map(|subscription| (project.to_owned(), Arc::clone(subscription)))
            });
            each.collect()
        });
        for (project, subscription) in of_projects {
            let owner = &subscription.definition.owner;
            let is_read = self.registry.followed.readable(owner, &project).is_some();
            if is_read || !subscription.is_enabled() {
                continue;
            }
            let (id, registry, own) =
                (subscription.id, Arc::clone(&self.registry), Arc::clone(&subscription));
            let doubt = self.store.change_consumer_rows(CONSUMER, move |effects| {
                let Some(mut row) = Row::of(effects, id)? else { return Ok(None) };
                row.state.disable(ended(&project));
                row.put(effects, id)?;
                let doubt = registry.begin_doubt(&own);
                own.set_state(row.state);
                Ok::<_, WebhookError>(Some(doubt))
            })?;
            if let Some(doubt) = doubt {
                self.registry.end_doubt(doubt);
            }
            if let Some(mailbox) = self.mailbox() {
                mailbox.changed(id);
            }
        }
        Ok(())
    }
}
