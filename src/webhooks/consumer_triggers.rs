//! The part of the consumer that makes deliveries of what is no event.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::consumer::Work;
use super::judging::Verdict;
use super::rows::{
    Delivery, ENCODED_DELIVERIES, LIVES, Life, PAYLOADS, QUEUE, Queued, TRANSACTIONS_DONE,
    payload_key,
};
use super::subscription::Subscription;
use super::subscription_set::SubscriptionSet;
use super::trigger::Trigger;
use super::triggers::Told;
use super::triggers::silence::{Ledgers, Silence};
use super::triggers::transactions::TransactionTriggers;
use super::triggers::ttl::{Progress, TtlLooks};
use orrery_contract_data::{CONSUMER as CONTRACT_DATA, Lookup};
use orrery_ledger::domain::ContractId;
use orrery_store::{
    Arrival, Bounds, Mark, RowBounds, RowCodec, StoreError, TransactionPosition, TransactionRecord,
};

/// Application order of what comes after all transactions.
const ALL: u32 = u32::MAX;
/// How long one subscription may look at entries while others wait.
const MOST_LOOKED: Duration = Duration::from_millis(10);
/// How long a step waits for the index of contract data.
const WAITED_AT_ONCE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 50 });

impl Work<'_, '_> {
    /// Creates the deliveries of what the transactions after one did. Returns whether that was all.
    pub(super) fn process_transactions(
        &mut self,
        known: &SubscriptionSet,
        after: u32,
    ) -> Result<bool, StoreError> {
        if after == ALL || known.of_transactions().next().is_none() {
            return Ok(true);
        }
        let mut concerned: BTreeMap<u32, Arc<Subscription>> = BTreeMap::new();
        for subscription in known.of_transactions() {
            if !concerned.contains_key(&subscription.id) && self.concerns(subscription)? {
                concerned.insert(subscription.id, Arc::clone(subscription));
            }
        }
        let (sources, ledger) = (self.sources, self.fed.ledger);
        let concerned = concerned.into_values();
        let Some(triggers) = TransactionTriggers::open(sources, ledger, concerned)? else {
            return Ok(true);
        };
        let query = triggers.query(after);
        let walked = sources.store.transactions_within(&query, Bounds::NONE, |record| {
            let done = self.process_transaction(known, &triggers, record);
            match done {
                Ok(()) if self.has_room() => ControlFlow::Continue(()),
                Ok(()) => ControlFlow::Break(self.save_transaction(record.position)),
                Err(error) => ControlFlow::Break(Err(error)),
            }
        })?;
        if let Some(broken_off) = walked.broken_off {
            return broken_off.map(|()| false);
        }
        Ok(true)
    }

    fn process_transaction(
        &mut self,
        known: &SubscriptionSet,
        triggers: &TransactionTriggers<'_>,
        record: &TransactionRecord<'_>,
    ) -> Result<(), StoreError> {
        for subscription in triggers.asked_of(record) {
            self.may_ask(known, subscription, record.meta.len())?;
        }
        triggers.of(record)?.into_iter().try_for_each(|told| self.create_delivery(known, told))
    }

    fn save_transaction(&mut self, at: TransactionPosition) -> Result<(), StoreError> {
        self.save_transactions(at.application_order)
    }

    fn save_transactions(&mut self, order: u32) -> Result<(), StoreError> {
        TRANSACTIONS_DONE.put(self.effects, &Mark, &(self.fed.place, order))?;
        self.effects.mark_unfinished();
        Ok(())
    }

    /// Creates a delivery, unless a replay was ahead.
    fn create_delivery(&mut self, known: &SubscriptionSet, told: Told) -> Result<(), StoreError> {
        let Told { subscription, number, ledger, body, is_sure } = told;
        let id = subscription.id;
        // A delivery before may have disabled it.
        if !self.concerns(&subscription)? || ENCODED_DELIVERIES.has(self.effects, &(id, number))? {
            return Ok(());
        }
        if !is_sure {
            return self.note_unmet(&subscription, ledger, &Verdict::Unjudged);
        }
        let decimals = self.decimals.of(&subscription, &body, None)?;
        let delivery = Delivery { decimals, ..Delivery::new(ledger.0, self.now) };
        ENCODED_DELIVERIES.put(self.effects, &(id, number), &RowCodec::encode(&delivery))?;
        QUEUE.put(self.effects, &Queued::first(id, number), &())?;
        PAYLOADS.put(self.effects, &payload_key(delivery.day, id, number), &body)?;
        self.count(known, &subscription, number)
    }

    /// Creates the deliveries of what the ledger as a whole tells.
    pub(super) fn process_end(&mut self, known: &SubscriptionSet) -> Result<(), StoreError> {
        let mut concerned: Vec<Arc<Subscription>> = Vec::new();
        let (mut watching, mut of_projects) = (Vec::new(), Vec::new());
        for subscription in known.of_ledgers().values() {
            if let Trigger::Ttl { entries, .. } = subscription.definition.trigger {
                let contract = subscription.contracts.one().filter(|_| entries.data);
                watching.extend(contract);
                of_projects.extend(subscription.contracts.project().map(|_| subscription));
            }
            if self.concerns(subscription)? {
                concerned.push(Arc::clone(subscription));
            }
        }
        if self.fed.arrival != Arrival::Live {
            self.note_lives(watching)?;
            return self.note_lives_of_members(&of_projects);
        }
        let silence = self.process_silence(known, &concerned)?;
        let ttl = self.process_ttl(known, &concerned)?;
        self.leave(silence.max(ttl))
    }

    /// Leaves what others do not wait for to the next step. If newer ledgers wait, it is left to their steps.
    fn leave(&mut self, progress: Progress) -> Result<(), StoreError> {
        if progress == Progress::Done || self.sources.store.last_place() > self.fed.place {
            return Ok(());
        }
        TRANSACTIONS_DONE.put(self.effects, &Mark, &(self.fed.place, ALL))?;
        self.effects.mark_taken();
        if progress == Progress::Behind {
            thread::sleep(WAITED_AT_ONCE);
        }
        Ok(())
    }

    /// Notes the times to live that a ledger gave that is older than others: newer ones may have left them.
    fn note_lives(&mut self, mut contracts: Vec<ContractId>) -> Result<(), StoreError> {
        let (store, ledger) = (self.sources.store, self.fed.ledger);
        contracts.sort_unstable();
        contracts.dedup();
        if contracts.is_empty() || store.lacks(CONTRACT_DATA, ledger) != Some(false) {
            return Ok(());
        }
        let lookup = Lookup::new(store, ledger, RowBounds::none())?.without_updated();
        for contract in contracts {
            for tag in lookup.changed_keys(&contract)? {
                if let Some(given) = lookup.given((contract, tag))? {
                    let life = Life { contract, until: given.live_until, tag };
                    LIVES.put(self.effects, &life, &())?;
                }
            }
        }
        Ok(())
    }

    /// The same for the members of projects.
    fn note_lives_of_members(
        &mut self,
        subscriptions: &[&Arc<Subscription>],
    ) -> Result<(), StoreError> {
        let (sources, ledger) = (self.sources, self.fed.ledger);
        if subscriptions.is_empty() || sources.store.lacks(CONTRACT_DATA, ledger) != Some(false) {
            return Ok(());
        }
        let memory = std::mem::take(&mut *self.registry.ttl.lock());
        let mut looks = TtlLooks::new(sources, self.until, MOST_LOOKED, memory);
        let mut noted = Ok(());
        for subscription in subscriptions {
            noted = noted.and_then(|()| looks.note_older(subscription, ledger, self.effects));
        }
        *self.registry.ttl.lock() = looks.memory;
        noted
    }

    /// Listens to the ledger for subscriptions to silence, and goes on with their searches, each for a short time.
    fn process_silence(
        &mut self,
        known: &SubscriptionSet,
        concerned: &[Arc<Subscription>],
    ) -> Result<Progress, StoreError> {
        let of_silence =
            concerned.iter().filter_map(|it| Some((it, it.definition.trigger.silence()?)));
        let mut of_silence: Vec<_> = of_silence.collect();
        if of_silence.is_empty() {
            return Ok(Progress::Done);
        }
        let sources = self.sources;
        let (ledgers, most) = (Ledgers::of(&sources), self.most_steps());
        let silence =
            |subscription, within| Silence::of(&sources, &ledgers, (subscription, within), most);
        for &(subscription, within) in &of_silence {
            self.listen(known, subscription, &silence(subscription, within))?;
        }
        // Each step begins with another one.
        let count = of_silence.len();
        of_silence.rotate_left(self.registry.next_turn() % count);
        let (mut progress, mut has_begun) = (Progress::Done, false);
        for (subscription, within) in of_silence {
            let silence = silence(subscription, within);
            // What the conditions of its owner may not do any more at this ledger is left to the next one.
            if !silence.is_searching(self.effects)? || !self.may_search(subscription) {
                continue;
            }
            if std::mem::replace(&mut has_begun, true) && !self.has_room() {
                return Ok(Progress::More);
            }
            let until = self.until.min(Instant::now() + MOST_LOOKED);
            let mut told = Vec::new();
            if !silence.search(self.effects, until, &mut told)? {
                progress = Progress::More;
            }
            self.count_searched(subscription, silence.steps());
            told.into_iter().try_for_each(|told| self.create_delivery(known, told))?;
        }
        Ok(progress)
    }

    /// Listens to the ledger for one of them.
    fn listen(
        &mut self,
        known: &SubscriptionSet,
        subscription: &Arc<Subscription>,
        silence: &Silence<'_>,
    ) -> Result<(), StoreError> {
        let ledger = self.fed.ledger;
        let listened = silence.listen(ledger, self.effects)?;
        let steps = silence.steps();
        if steps > 0 && !self.count_steps(known, subscription, steps)? {
            // It is disabled now.
            return Ok(());
        }
        for verdict in &listened.unmet {
            self.note_unmet(subscription, ledger, verdict)?;
        }
        listened.told.into_iter().try_for_each(|told| self.create_delivery(known, told))
    }

    /// Looks at entries that are about to expire, in this ledger and those that were left.
    fn process_ttl(
        &mut self,
        known: &SubscriptionSet,
        concerned: &[Arc<Subscription>],
    ) -> Result<Progress, StoreError> {
        let mut of_ttl: Vec<_> = concerned.iter().filter(|it| is_of_ttl(it)).collect();
        if of_ttl.is_empty() {
            return Ok(Progress::Done);
        }
        // Each step begins with another one.
        let count = of_ttl.len();
        of_ttl.rotate_left(self.registry.next_turn() % count);
        let memory = std::mem::take(&mut *self.registry.ttl.lock());
        let mut looks = TtlLooks::new(self.sources, self.until, MOST_LOOKED, memory);
        let looked = self.look_at_entries(known, &of_ttl, &mut looks);
        *self.registry.ttl.lock() = looks.memory;
        looked
    }

    fn look_at_entries(
        &mut self,
        known: &SubscriptionSet,
        of_ttl: &[&Arc<Subscription>],
        looks: &mut TtlLooks<'_>,
    ) -> Result<Progress, StoreError> {
        for subscription in of_ttl {
            looks.note(subscription.id, self.fed.ledger, self.effects)?;
        }
        let mut progress = Progress::Done;
        for (at, subscription) in of_ttl.iter().enumerate() {
            if at > 0 && !self.has_room() {
                return Ok(Progress::More);
            }
            let mut found = Vec::new();
            let looked = looks.look(subscription, self.effects, &mut |effects, told: Told| {
                found.push(told);
                let bytes: usize = found.iter().map(|told| told.body.len()).sum();
                Ok(match effects.bytes() + bytes < super::consumer::MAX_STEP_BYTES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            found.into_iter().try_for_each(|told| self.create_delivery(known, told))?;
            progress = progress.max(looked);
        }
        Ok(progress)
    }
}

fn is_of_ttl(subscription: &Subscription) -> bool {
    matches!(subscription.definition.trigger, Trigger::Ttl { .. })
}
