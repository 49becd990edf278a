//! A replay on its way: what it collects of one ledger after the other, within the limits of one request.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decimals::{Decimals, asset_emitter};
use super::found::{FoundEvent, MAX_BATCH_BYTES, MAX_BATCH_DELIVERIES, MAX_DURATION, query};
use super::judging::{JudgedEvent, Verdict};
use super::manage::Webhooks;
use super::replay_triggers::{Collected, End, Replay};
use super::rows::Number;
use super::schedule::MOST_IN_CHAT;
use super::subscription::Subscription;
use super::time::Moment;
use super::{WebhookError, payload};
use orrery_executables::{InterfaceReader, Waited};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{Bounds, EventRecord, StoreError, TransactionPosition};

/// Maximum number of deliveries per request, not counting those of its last ledger.
const MAX_DELIVERIES: usize = 10_000;

/// A request that replays ledgers.
pub(super) struct Replaying<'r> {
    webhooks: &'r Webhooks,
    subscription: &'r Arc<Subscription>,
    begun: Instant,
    now: Moment,
    /// Maximum number of deliveries of the subscription that wait.
    most_waiting: u64,
    /// Whether the client no longer waits.
    is_abandoned: &'r dyn Fn() -> bool,
    /// What is not queued yet.
    found: Vec<FoundEvent>,
    /// Whether it has passed a ledger, so that it need not end the next one.
    has_passed: bool,
    /// Whether the names of what it sends are not waited for any more.
    may_lack_names: bool,
    /// What it keeps from one ledger to the next.
    pub replay: Replay,
    /// Number of deliveries.
    pub count: usize,
    /// Number of events that could not be judged.
    pub unjudged: u64,
}

impl<'r> Replaying<'r> {
    /// Begins with the ledger `first`.
    pub fn begin(
        webhooks: &'r Webhooks,
        subscription: &'r Arc<Subscription>,
        first: LedgerSeq,
        is_abandoned: &'r dyn Fn() -> bool,
    ) -> Self {
        let most_waiting = match subscription.chat() {
            // Of more, the oldest would be given up at once.
            Some(_) => MOST_IN_CHAT,
            None => u64::from(webhooks.registry.settings().backlog.get()),
        };
        Self {
            webhooks,
            subscription,
            begun: Instant::now(),
            now: webhooks.registry.now(),
            most_waiting,
            is_abandoned,
            found: Vec::new(),
            has_passed: false,
            may_lack_names: false,
            replay: webhooks.begin_replay(subscription.id, first),
            count: 0,
            unjudged: 0,
        }
    }

    /// Collects what is sent of a ledger, and queues what is collected so far whenever there is much. False
    /// when a later request has to begin with this ledger.
    pub fn pass(&mut self, ledger: LedgerSeq) -> Result<bool, WebhookError> {
        if !self.has_room() {
            return Ok(false);
        }
        if (self.is_abandoned)() {
            return Err(WebhookError::Interrupted);
        }
        if !self.is_named(ledger)? {
            return Ok(false);
        }
        let Some(collected) = self.collect(ledger)? else { return Ok(false) };
        self.count += collected.count;
        self.unjudged += collected.unjudged;
        self.has_passed = true;
        Ok(!collected.is_cut)
    }

    /// Queues what is collected.
    pub fn write(&mut self) -> Result<(), WebhookError> {
        self.webhooks.write(self.subscription, &mut self.found, self.now)
    }

    fn has_room(&self) -> bool {
        let waiting = self.subscription.waiting().saturating_add(self.found.len() as u64);
        self.count < MAX_DELIVERIES
            && self.begun.elapsed() < MAX_DURATION
            && waiting < self.most_waiting
    }

    /// Waits until what is sent of a ledger can be named; false if a later request has to.
    fn is_named(&mut self, ledger: LedgerSeq) -> Result<bool, WebhookError> {
        if self.may_lack_names {
            return Ok(true);
        }
        let left = MAX_DURATION.saturating_sub(self.begun.elapsed());
        match self.webhooks.wait_for_names(self.subscription, ledger, left)? {
            Waited::Indexed => Ok(true),
            Waited::Stuck => {
                self.may_lack_names = true;
                Ok(true)
            }
            Waited::NotYet if self.has_passed => Ok(false),
            Waited::NotYet => Err(WebhookError::NotNamedYet(ledger)),
        }
    }

    /// Collects what is sent of a ledger; `None` when that is not known yet.
    fn collect(&mut self, ledger: LedgerSeq) -> Result<Option<Collected>, WebhookError> {
        if self.subscription.definition.trigger.is_event() {
            return self.collect_events(ledger).map(Some);
        }
        let end = End {
            until: self.begun + MAX_DURATION,
            room: MAX_DELIVERIES - self.count,
            has_passed: self.has_passed,
            is_abandoned: self.is_abandoned,
        };
        let (of, found) = ((self.now, end), &mut self.found);
        self.webhooks.collect_triggers(self.subscription, ledger, of, found, &mut self.replay)
    }

    /// Collects the matching events of a ledger.
    fn collect_events(&mut self, ledger: LedgerSeq) -> Result<Collected, WebhookError> {
        let Self { webhooks, subscription, now, is_abandoned, ref mut found, .. } = *self;
        let (network, names) = (webhooks.store.network().id(), webhooks.registry.naming.reader()?);
        let decimals = Decimals::new(&webhooks.registry.naming);
        let selected = webhooks.selected_by(subscription, ledger)?;
        if let (Some(names), Some(selected)) = (&names, &selected) {
            names.supply(selected.supplied.clone());
        }
        let (mut collected, mut bytes) = (Collected::default(), 0);
        let query = query(subscription, LedgerRange::only(ledger));
        let walked = webhooks.store.events_within(&query, Bounds::NONE, |event| {
            let is_selected = selected.as_ref().is_none_or(|it| it.may_have(event.id));
            if !is_selected || !subscription.filter.matches(event.contract, event.topics) {
                return ControlFlow::Continue(());
            }
            if is_abandoned() {
                return ControlFlow::Break(WebhookError::Interrupted);
            }
            let judged = JudgedEvent::new(event, network, names.as_ref());
            match judged.of_project(subscription.condition.as_ref(), selected.as_ref()) {
                Verdict::Matches => {}
                Verdict::Differs | Verdict::Misfits(_) => return ControlFlow::Continue(()),
                Verdict::Unjudged => {
                    collected.unjudged += 1;
                    return ControlFlow::Continue(());
                }
            }
            collected.count += 1;
            match webhooks.found_event(subscription, event, (names.as_ref(), &decimals)) {
                Ok(one) => {
                    bytes += one.body.len();
                    found.push(one);
                }
                Err(error) => return ControlFlow::Break(error.into()),
            }
            if found.len() >= MAX_BATCH_DELIVERIES || bytes >= MAX_BATCH_BYTES {
                bytes = 0;
                if let Err(error) = webhooks.write(subscription, found, now) {
                    return ControlFlow::Break(error);
                }
            }
            ControlFlow::Continue(())
        })?;
        names.as_ref().map(InterfaceReader::finish).transpose()?;
        walked.broken_off.map_or(Ok(collected), Err)
    }
}

impl Webhooks {
    /// Makes what is sent of an event.
    fn found_event(
        &self,
        subscription: &Subscription,
        event: &EventRecord<'_>,
        (names, decimals): (Option<&InterfaceReader<'_>>, &Decimals<'_>),
    ) -> Result<FoundEvent, StoreError> {
        let network = self.store.network().id();
        let body = payload::of_event(event, network, names);
        let asset = match subscription.has_units() {
            true => asset_emitter(event, network, names),
            false => None,
        };
        let decimals = decimals.of(subscription, &body, asset)?;
        let number = Number::of_event(event.id);
        Ok(FoundEvent { number, ledger: event.ledger.0, body, decimals })
    }

    /// Waits until the matching events of a stored ledger can be named. A body is sent once, so it is not
    /// made while the index is about to process the ledger. The interfaces are read by the thread that
    /// reads all of them, not by that of the request.
    fn wait_for_names(
        &self,
        subscription: &Subscription,
        ledger: LedgerSeq,
        most: Duration,
    ) -> Result<Waited, WebhookError> {
        let (until, naming) = (Instant::now() + most, &self.registry.naming);
        let place = self.store.place_of(ledger);
        let waited = place.map_or(Waited::Indexed, |place| naming.wait(place, most));
        let needs_events = subscription.definition.trigger.is_event();
        if let Some(project) = subscription.contracts.project()
            && let Some(place) = place
            && !self.registry.followed.wait(project, place, most)
        {
            return Ok(Waited::NotYet);
        }
        let selected = self.selected_by(subscription, ledger)?;
        let reader = naming.reader_of_memory()?;
        let Some(names) = reader.filter(|_| needs_events && waited == Waited::Indexed) else {
            return Ok(waited);
        };
        self.store.events_within(
            &query(subscription, LedgerRange::only(ledger)),
            Bounds::NONE,
            |event| {
                if let Some(contract) = event.contract
                    && selected.as_ref().is_none_or(|it| it.may_have(event.id))
                    && subscription.filter.matches(event.contract, event.topics)
                {
                    let application_order = event.application_order;
                    names.tried(
                        &ContractId(*contract),
                        TransactionPosition { ledger, application_order },
                    );
                }
                match Instant::now() >= until {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            },
        )?;
        let left = until.saturating_duration_since(Instant::now());
        let lacking = names.lacking().without_ledgers();
        names.finish()?;
        Ok(match naming.wait_until_read(&lacking, left) {
            true => Waited::Indexed,
            false => Waited::NotYet,
        })
    }
}
