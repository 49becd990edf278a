//! The part of the consumer that makes deliveries of the events of projects.

use std::sync::Arc;

use super::consumer::Work;
use super::followed::{LATE, LateMember, PASSED, SelectedEvents, TOLD, ended};
use super::judging::{JudgedEvent, Verdict};
use super::payload;
use super::rows::{Delivery, ENCODED_DELIVERIES, Number, PAYLOADS, QUEUE, Queued};
use super::subscription::Subscription;
use super::subscription_set::SubscriptionSet;
use super::triggers::silence;
use orrery_ledger::domain::LedgerSeq;
use orrery_membership::{KnownMembers, MemberMark};
use orrery_store::{EventRecord, Mark, RowCodec, StoreError};

impl Work<'_, '_> {
    /// Ends the subscriptions whose owners do not read their projects any more, and notes members that became
    /// known late.
    pub(super) fn process_projects(&mut self, known: &SubscriptionSet) -> Result<(), StoreError> {
        let followed = &self.registry.followed;
        if !followed.is_set() {
            return Ok(());
        }
        let (mut has_some, before) = (false, PASSED.get(self.effects, &Mark)?);
        let passed = before.unwrap_or_default();
        let passed = passed.max(self.fed.ledger.previous().unwrap_or_default());
        for (project, bucket) in known.by_project() {
            for subscription in bucket {
                has_some = true;
                // Also of one that is disabled, which is not told of these later.
                let news = self.newly_known(subscription, project)?;
                if !subscription.is_enabled() {
                    continue;
                }
                let owner = &subscription.definition.owner;
                if followed.readable(owner, project).is_none() {
                    self.disable(subscription, ended(project))?;
                    continue;
                }
                self.note_late(subscription, news, passed)?;
            }
        }
        let now = passed.max(self.fed.ledger);
        match has_some && before != Some(now) {
            true => PASSED.put(self.effects, &Mark, &now),
            false => Ok(()),
        }
    }

    /// Returns the members of a subscription's project that became known since it was told of some; none at the
    /// first time.
    fn newly_known(
        &mut self,
        subscription: &Subscription,
        project: &str,
    ) -> Result<KnownMembers, StoreError> {
        let key = (Mark, subscription.id);
        let told = TOLD.get(self.effects, &key)?;
        let mark = told.map(|(program, number)| MemberMark { program, number });
        let news = self.registry.followed.known_since(project, mark);
        if let Some(MemberMark { program, number }) = news.mark.filter(|_| news.mark != mark) {
            TOLD.put(self.effects, &key, &(program, number))?;
        }
        Ok(news)
    }

    /// Notes members that became known after ledgers up to `passed` had passed in which they were members.
    fn note_late(
        &mut self,
        subscription: &Subscription,
        news: KnownMembers,
        passed: LedgerSeq,
    ) -> Result<(), StoreError> {
        let after = LedgerSeq(subscription.state().after_ledger);
        let first = match subscription.definition.include_backfill {
            true => LedgerSeq(0),
            false => after.next().unwrap_or(after),
        };
        let late = news
            .members
            .iter()
            .filter_map(|member| LateMember::of(&member.contract, member.since, (first, passed)));
        let late: Vec<LateMember> = late.collect();
        if late.is_empty() && news.more == 0 {
            return Ok(());
        }
        let key = (Mark, subscription.id);
        let mut all = LATE.get(self.effects, &key)?.unwrap_or_default();
        late.into_iter().for_each(|member| all.add(member));
        // Of those nothing else is remembered.
        all.members += news.more;
        LATE.put(self.effects, &key, &all)?;
        // Their events may have ended a silence.
        match subscription.definition.trigger.silence() {
            Some(_) => silence::begin_anew(self.effects, subscription.id, after),
            None => Ok(()),
        }
    }

    /// Returns the events of the ledger that the projects of subscriptions select.
    pub(super) fn selected(&self, known: &SubscriptionSet) -> Result<SelectedEvents, StoreError> {
        let mut all = SelectedEvents::new();
        for (project, bucket) in known.by_project() {
            let mut is_concerned = false;
            for subscription in bucket.filter(|it| it.definition.trigger.is_event()) {
                is_concerned |= self.concerns(subscription)?;
            }
            if is_concerned {
                let selected = self.registry.followed.selected(project, self.fed.ledger)?;
                all.insert(project.to_owned(), selected);
            }
        }
        Ok(all)
    }

    /// Creates the deliveries of an event to subscriptions to projects.
    pub(super) fn create_deliveries_of_projects(
        &mut self,
        known: &SubscriptionSet,
        event: &EventRecord<'_>,
        all: &SelectedEvents,
    ) -> Result<(), StoreError> {
        for (project, selected) in all {
            let is_unsure = selected.unsure.contains(&event.id);
            if !is_unsure && !selected.events.contains(&event.id) {
                continue;
            }
            let mut matching = Vec::new();
            known.matching_of_project(project, event.contract, event.topics, |subscription| {
                matching.push(subscription);
            });
            if matching.is_empty() {
                continue;
            }
            let names = self.sources.names;
            if let Some(names) = names {
                names.supply(selected.supplied.clone());
            }
            let created = self.create_of_project(known, event, (&matching, is_unsure));
            if let Some(names) = names {
                names.supply(None);
            }
            created?;
        }
        Ok(())
    }

    fn create_of_project(
        &mut self,
        known: &SubscriptionSet,
        event: &EventRecord<'_>,
        (matching, is_unsure): (&[&Arc<Subscription>], bool),
    ) -> Result<(), StoreError> {
        let (number, names) = (Number::of_event(event.id), self.sources.names);
        let judged = JudgedEvent::new(event, self.sources.network, names);
        let delivery = Delivery::new(event.ledger.0, self.now);
        let mut made: Option<Vec<u8>> = None;
        for subscription in matching {
            let id = subscription.id;
            if !self.concerns(subscription)?
                || ENCODED_DELIVERIES.has(self.effects, &(id, number))?
            {
                continue;
            }
            if !self.may_ask(known, subscription, event.size())? {
                continue;
            }
            let condition = subscription.condition.as_ref();
            let verdict = condition.map_or(Verdict::Matches, |it| judged.by(it));
            let verdict = verdict.unless_unsure(is_unsure);
            if verdict != Verdict::Matches {
                self.note_unmet(subscription, event.ledger, &verdict)?;
                continue;
            }
            let body =
                made.get_or_insert_with(|| payload::of_event(event, self.sources.network, names));
            let decimals = self.decimals_of(subscription, body, event)?;
            let delivery = Delivery { decimals, ..delivery.clone() };
            ENCODED_DELIVERIES.put(self.effects, &(id, number), &delivery.encode())?;
            QUEUE.put(self.effects, &Queued::first(id, number), &())?;
            PAYLOADS.put(self.effects, &subscription.bodies().key(delivery.day, number), body)?;
            self.count(known, subscription, number)?;
        }
        Ok(())
    }
}
