//! Replays on request: sends one delivery again, or all events in a range of ledgers that match a
//! subscription, including ledgers from before it was created.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decimals::{Decimals, asset_emitter};
use super::found::{FoundEvent, MAX_BATCH_BYTES, MAX_BATCH_DELIVERIES, MAX_DURATION, query};
use super::judging::{JudgedEvent, Verdict};
use super::manage::Webhooks;
use super::replay_triggers::{Collected, End};
use super::rows::{Bodies, Class, DELIVERIES, Delivery, FINISHED, Number, PAYLOADS, QUEUE, State};
use super::schedule::MOST_IN_CHAT;
use super::subscription::{Row, Subscription};
use super::time::Moment;
use super::{CONSUMER, WebhookError, payload};
use orrery_executables::Waited;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet, Owner};
use orrery_store::{Bounds, ConsumerEffects, Needs, TransactionPosition};

/// Maximum number of deliveries per request, not counting those of its last ledger.
const MAX_DELIVERIES: usize = 10_000;
/// Result of a replay of ledgers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of deliveries that are sent again, or for the first time.
    pub deliveries: u64,
    /// Ledger to continue from; `None` when the whole range was replayed.
    pub next: Option<LedgerSeq>,
    /// Ledgers of the replayed part whose events are not stored.
    pub missing: LedgerSet,
    /// Number of events that the subscription's condition could not be asked of, because it is not known
    /// what their contracts declare.
    pub unjudged: u64,
}

impl Webhooks {
    /// Queues a delivery again, under its own id, as if it had not been attempted.
    pub fn replay_one(&self, owner: &Owner, id: u32, delivery: &str) -> Result<(), WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let number = self.number(&subscription, delivery)?;
        let now = self.registry.now();
        let given = orrery_ledger::domain::excerpt(delivery);
        let bodies = subscription.bodies();
        let more = self.store.change_consumer_rows(CONSUMER, move |effects| {
            check_enabled(effects, id)?;
            let unknown = || WebhookError::UnknownDelivery { subscription: id, delivery: given };
            let found = DELIVERIES.get(effects, &(id, number))?.ok_or_else(unknown)?;
            requeue(effects, bodies, number, found, now)
        })?;
        subscription.add_waiting(more);
        self.notify_dispatcher(id, Class::of_request(number), now.due);
        Ok(())
    }

    /// Queues all events in a range of ledgers that match a subscription, in the order of ledgers.
    /// Stops at the limits of one request; [`Replayed::next`] then says where to continue.
    /// `is_abandoned` returns true when the client no longer waits.
    pub fn replay_ledgers(
        &self,
        owner: &Owner,
        id: u32,
        range: LedgerRange,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<Replayed, WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        self.check_project(&subscription)?;
        if !subscription.is_enabled() {
            return Err(WebhookError::Disabled(id));
        }
        let (begun, now) = (Instant::now(), self.registry.now());
        let trigger = &subscription.definition.trigger;
        let needs = if trigger.is_of_transactions() { Needs::TRANSACTIONS } else { Needs::EVENTS };
        let mut stored = self.store.status().ledgers_with(needs).within(range);
        if !trigger.may_be_backfilled() {
            // Before the subscription was made, nothing was due.
            let made = LedgerSeq(subscription.state().after_ledger);
            stored.remove(LedgerRange { first: LedgerSeq(0), last: made });
        }
        let first = stored.ranges().first().map_or(range.first, |stored| stored.first);
        let mut replay = self.begin_replay(id, first);
        let mut replayed = Replayed::default();
        let mut found: Vec<FoundEvent> = Vec::new();
        let mut count = 0usize;
        let ledgers = stored.ranges().iter().flat_map(|range| range.first.0..=range.last.0);
        let most = match subscription.chat() {
            // Of more, the oldest would be given up at once.
            Some(_) => MOST_IN_CHAT,
            None => u64::from(self.registry.settings().backlog.get()),
        };
        let (mut has_passed, mut may_lack_names) = (false, false);
        for ledger in ledgers.map(LedgerSeq) {
            let has_room = subscription.waiting().saturating_add(found.len() as u64) < most;
            if count >= MAX_DELIVERIES || begun.elapsed() >= MAX_DURATION || !has_room {
                replayed.next = Some(ledger);
                break;
            }
            if is_abandoned() {
                return Err(WebhookError::Interrupted);
            }
            if !may_lack_names {
                let left = MAX_DURATION.saturating_sub(begun.elapsed());
                match self.wait_for_names(&subscription, ledger, left)? {
                    Waited::Indexed => {}
                    Waited::Stuck => may_lack_names = true,
                    Waited::NotYet if has_passed => {
                        replayed.next = Some(ledger);
                        break;
                    }
                    Waited::NotYet => return Err(WebhookError::NotNamedYet(ledger)),
                }
            }
            let collected = match trigger.is_event() {
                true => {
                    let (count, unjudged) =
                        self.collect(&subscription, ledger, now, &mut found, is_abandoned)?;
                    Some(Collected { count, unjudged, is_cut: false })
                }
                false => {
                    let room = MAX_DELIVERIES - count;
                    let until = begun + MAX_DURATION;
                    let end = End { until, room, has_passed, is_abandoned };
                    let of = (now, end);
                    self.collect_triggers(&subscription, ledger, of, &mut found, &mut replay)?
                }
            };
            let Some(collected) = collected else {
                replayed.next = Some(ledger);
                break;
            };
            count += collected.count;
            replayed.unjudged += collected.unjudged;
            if collected.is_cut {
                replayed.next = Some(ledger);
                break;
            }
            has_passed = true;
        }
        self.write(&subscription, &mut found, now)?;
        if let Some(ledger) = replayed.next.filter(|_| !trigger.is_event()) {
            self.stop_replay(id, ledger, &replay);
        }
        replayed.deliveries = count as u64;
        let done_up_to = replayed.next.and_then(LedgerSeq::previous).unwrap_or(range.last);
        let done = LedgerRange { first: range.first, last: done_up_to };
        replayed.missing = self.unread(done, stored, needs)?;
        Ok(replayed)
    }

    /// Returns the ledgers of a range whose events were not all read, of those that were stored before.
    fn unread(
        &self,
        done: LedgerRange,
        stored: LedgerSet,
        needs: Needs,
    ) -> Result<LedgerSet, WebhookError> {
        let mut unread = LedgerSet::default();
        if !done.is_empty() {
            // Ledgers that are not removed by now were complete when they were read.
            let mut complete = stored;
            complete.remove_all(&self.store.removed(needs)?);
            unread.insert(done);
            unread.remove_all(&complete);
        }
        Ok(unread)
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

    /// Collects the matching events of a ledger, and writes those collected so far whenever there
    /// are many. Returns how many matched, and of how many that is not known.
    fn collect(
        &self,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        now: Moment,
        found: &mut Vec<FoundEvent>,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<(usize, u64), WebhookError> {
        let (filter, query) =
            (&subscription.filter, query(subscription, LedgerRange::only(ledger)));
        let (network, names) = (self.store.network().id(), self.registry.naming.reader()?);
        let (mut count, mut unjudged, mut bytes) = (0, 0, 0);
        let decimals = Decimals::new(&self.registry.naming);
        let selected = self.selected_by(subscription, ledger)?;
        if let (Some(names), Some(selected)) = (&names, &selected) {
            names.supply(selected.supplied.clone());
        }
        let walked = self.store.events_within(&query, Bounds::NONE, |event| {
            let is_selected = selected.as_ref().is_none_or(|it| it.may_have(event.id));
            if !is_selected || !filter.matches(event.contract, event.topics) {
                return ControlFlow::Continue(());
            }
            if is_abandoned() {
                return ControlFlow::Break(WebhookError::Interrupted);
            }
            if let Some(condition) = &subscription.condition {
                match JudgedEvent::new(event, network, names.as_ref()).by(condition) {
                    Verdict::Matches => {}
                    Verdict::Differs | Verdict::Misfits(_) => return ControlFlow::Continue(()),
                    Verdict::Unjudged => {
                        unjudged += 1;
                        return ControlFlow::Continue(());
                    }
                }
            }
            if selected.as_ref().is_some_and(|it| it.unsure.contains(&event.id)) {
                unjudged += 1;
                return ControlFlow::Continue(());
            }
            let body = payload::of_event(event, network, names.as_ref());
            count += 1;
            bytes += body.len();
            let number = Number::of_event(event.id);
            let asset = match subscription.has_units() {
                true => asset_emitter(event, network, names.as_ref()),
                false => None,
            };
            let decimals = match decimals.of(subscription, &body, asset) {
                Ok(decimals) => decimals,
                Err(error) => return ControlFlow::Break(error.into()),
            };
            found.push(FoundEvent { number, ledger: event.ledger.0, body, decimals });
            if found.len() >= MAX_BATCH_DELIVERIES || bytes >= MAX_BATCH_BYTES {
                bytes = 0;
                if let Err(error) = self.write(subscription, found, now) {
                    return ControlFlow::Break(error);
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(names) = &names {
            names.finish()?;
        }
        walked.broken_off.map_or(Ok((count, unjudged)), Err)
    }

    /// Queues the collected events.
    pub(super) fn write(
        &self,
        subscription: &Arc<Subscription>,
        found: &mut Vec<FoundEvent>,
        now: Moment,
    ) -> Result<(), WebhookError> {
        if found.is_empty() {
            return Ok(());
        }
        let (id, found) = (subscription.id, std::mem::take(found));
        let bodies = subscription.bodies();
        let more = self.store.change_consumer_rows(CONSUMER, move |effects| {
            check_enabled(effects, id)?;
            let mut more = 0;
            for FoundEvent { number, ledger, body, decimals } in found {
                PAYLOADS.put(effects, &bodies.key(now.day(), number), &body)?;
                more += match DELIVERIES.get(effects, &(id, number))? {
                    Some(delivery) => {
                        let delivery = Delivery { decimals, ..delivery };
                        requeue(effects, bodies, number, delivery, now)?
                    }
                    None => {
                        let new = Delivery::new(ledger, now);
                        let delivery = Delivery { due: Some(now.due), round: 1, decimals, ..new };
                        enqueue(effects, id, number, &delivery)?;
                        1
                    }
                };
            }
            Ok::<_, WebhookError>(more)
        })?;
        subscription.add_waiting(more);
        self.notify_dispatcher(id, Class::Requested, now.due);
        Ok(())
    }

    fn notify_dispatcher(&self, id: u32, class: Class, due: u64) {
        if let Some(mailbox) = self.mailbox() {
            mailbox.delivery_requested(id, class, due);
        }
    }
}

fn check_enabled(effects: &ConsumerEffects<'_>, id: u32) -> Result<(), WebhookError> {
    match Row::of(effects, id)? {
        None => Err(WebhookError::Unknown(id)),
        Some(row) if !row.state.enabled => Err(WebhookError::Disabled(id)),
        Some(_) => Ok(()),
    }
}

/// Queues a delivery again, and returns by how many the queue has grown. A delivery that has not
/// been attempted yet is queued already.
fn requeue(
    effects: &mut ConsumerEffects<'_>,
    bodies: Bodies,
    number: Number,
    before: Delivery,
    now: Moment,
) -> Result<i64, WebhookError> {
    let id = bodies.subscription;
    let queued = before.queued(id, number);
    if before.state == State::Pending {
        return Ok(0);
    }
    if let Some(queued) = queued {
        QUEUE.delete(effects, &queued)?;
    }
    if let Some(finished) = before.finished(id, number) {
        FINISHED.delete(effects, &finished)?;
    }
    // The payload is kept as long as that of a delivery created today.
    let today = now.day();
    if before.day != today
        && let Some(body) = PAYLOADS.get(effects, &bodies.key(before.day, number))?
    {
        PAYLOADS.put(effects, &bodies.key(today, number), &body)?;
    }
    let delivery = Delivery {
        state: State::Pending,
        day: today,
        round: before.round.saturating_add(1),
        tries: 0,
        due: Some(now.due),
        ended: None,
        ended_day: None,
        reason: None,
        ..before
    };
    enqueue(effects, id, number, &delivery)?;
    Ok(i64::from(queued.is_none()))
}

fn enqueue(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    number: Number,
    delivery: &Delivery,
) -> Result<(), WebhookError> {
    if let Some(queued) = delivery.queued(id, number) {
        QUEUE.put(effects, &queued, &())?;
    }
    Ok(DELIVERIES.put(effects, &(id, number), delivery)?)
}
