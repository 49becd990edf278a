//! Replays of what is no event.

use std::sync::Arc;
use std::time::Instant;

use super::decimals::Decimals;
use super::found::{FoundEvent, MAX_BATCH_BYTES, MAX_BATCH_DELIVERIES, MAX_DURATION, MOST_STEPS};
use super::manage::Webhooks;
use super::preview_triggers::of_transactions;
use super::stopped::{MOST_REMEMBERED, REMEMBERED, Stopped};
use super::subscription::Subscription;
use super::time::Moment;
use super::trigger::Trigger;
use super::triggers::silence::{InTurn, Ledgers, Silence};
use super::triggers::ttl::TtlLooks;
use super::triggers::ttl_memory::TtlMemory;
use super::triggers::ttl_replay::TtlPlace;
use super::triggers::{Sources, Told};
use super::{CONSUMER, WebhookError};
use orrery_contract_data::CONSUMER as CONTRACT_DATA;
use orrery_executables::InterfaceReader;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::RowBounds;

/// What a replay keeps from one ledger to the next.
#[derive(Default)]
pub(super) struct Replay {
    silence: InTurn,
    /// The stored ledgers.
    ledgers: Option<Ledgers>,
    ttl: TtlMemory,
    /// How far the ledger was looked at.
    place: TtlPlace,
}

/// What was collected of a ledger.
#[derive(Default)]
pub(super) struct Collected {
    /// Number of deliveries.
    pub count: usize,
    /// Number of events that could not be judged.
    pub unjudged: u64,
    /// Whether more of it is left.
    pub is_cut: bool,
}

/// Adds what a subscription is told to what was collected.
type Add<'a> = &'a mut dyn FnMut(Vec<Told>, &mut Collected) -> Result<(), WebhookError>;

/// When a request ends.
#[derive(Clone, Copy)]
pub(super) struct End<'e> {
    /// Its time.
    pub until: Instant,
    /// Number of deliveries that it may still make.
    pub room: usize,
    /// Whether it has passed a ledger, so that it need not end the next one.
    pub has_passed: bool,
    /// Whether the client no longer waits.
    pub is_abandoned: &'e dyn Fn() -> bool,
}

impl End<'_> {
    fn is_reached(&self) -> bool {
        (self.is_abandoned)() || Instant::now() >= self.until
    }
}

impl Webhooks {
    /// Begins a replay with a ledger; where an earlier request has stopped there, as far as that one came.
    pub(super) fn begin_replay(&self, id: u32, first: LedgerSeq) -> Replay {
        let stopped = self.stopped.lock().remove(&id);
        let stopped = stopped.filter(|it| it.ledger == first && it.at.elapsed() < REMEMBERED);
        let Some(Stopped { silence, place, .. }) = stopped else { return Replay::default() };
        Replay { silence, place, ..Replay::default() }
    }

    /// Remembers where a replay has stopped.
    pub(super) fn stop_replay(&self, id: u32, ledger: LedgerSeq, replay: &Replay) {
        let (silence, place) = (replay.silence, replay.place);
        let mut stopped = self.stopped.lock();
        if stopped.len() >= MOST_REMEMBERED {
            stopped.clear();
        }
        stopped.insert(id, Stopped { ledger, at: Instant::now(), silence, place });
    }

    /// Collects what a subscription is told in a ledger, and writes what is collected so far whenever there
    /// is much. `None` when that is not known yet.
    pub(super) fn collect_triggers(
        &self,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        (now, end): (Moment, End<'_>),
        found: &mut Vec<FoundEvent>,
        replay: &mut Replay,
    ) -> Result<Option<Collected>, WebhookError> {
        let (network, names) = (self.store.network().id(), self.registry.naming.reader()?);
        let (store, followed) = (&*self.store, &self.registry.followed);
        let sources = Sources { store, network, names: names.as_ref(), followed };
        let trigger = &subscription.definition.trigger;
        if self.lacks_data(trigger, ledger)? {
            return Ok(None);
        }
        let mut collected = Collected::default();
        let mut add = |told: Vec<Told>, collected: &mut Collected| {
            self.add_told(subscription, told, (now, &mut *found), collected)
        };
        match *trigger {
            Trigger::Event => {}
            Trigger::Upgrade | Trigger::Storage { .. } | Trigger::FailedCall { .. } => {
                let is_over = || (end.is_abandoned)() || end.has_passed && end.is_reached();
                match of_transactions(sources, subscription, ledger, &is_over)? {
                    Some(told) => add(told, &mut collected)?,
                    None => collected.is_cut = true,
                }
            }
            Trigger::Silence { within } => {
                let ledgers = &*replay.ledgers.get_or_insert_with(|| Ledgers::of(&sources));
                let silence = Silence::of(&sources, ledgers, (subscription, within), MOST_STEPS);
                match replay.silence.listen(&silence, ledger, end.until)? {
                    Some(listened) => {
                        collected.unjudged += listened.unjudged();
                        add(listened.told.into_iter().collect(), &mut collected)?;
                    }
                    None => collected.is_cut = true,
                }
            }
            Trigger::Ttl { .. } => {
                let of = (ledger, end);
                let collected =
                    self.collect_expiring(sources, subscription, of, replay, &mut add)?;
                finish(names.as_ref())?;
                return Ok(collected);
            }
        }
        finish(names.as_ref())?;
        Ok(Some(collected))
    }

    /// Whether a trigger needs what contracts hold, which is not known of the ledger yet.
    fn lacks_data(&self, trigger: &Trigger, ledger: LedgerSeq) -> Result<bool, WebhookError> {
        if trigger.keys().is_none() {
            return Ok(false);
        }
        match self.store.consumer(CONTRACT_DATA) {
            None => Err(WebhookError::StorageOff(trigger.name())),
            Some(_) => Ok(self.store.lacks(CONTRACT_DATA, ledger) == Some(true)),
        }
    }

    /// Collects a ledger's expiring entries, a page at a time.
    fn collect_expiring(
        &self,
        sources: Sources<'_>,
        subscription: &Arc<Subscription>,
        (ledger, end): (LedgerSeq, End<'_>),
        replay: &mut Replay,
        add: Add<'_>,
    ) -> Result<Option<Collected>, WebhookError> {
        let mut collected = Collected::default();
        let memory = std::mem::take(&mut replay.ttl);
        let mut looks = TtlLooks::new(sources, end.until, MAX_DURATION, memory);
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        loop {
            let page = looks.replayed(subscription, ledger, &view, &mut replay.place)?;
            let Some((told, is_last)) = page else { return Ok(None) };
            add(told, &mut collected)?;
            collected.is_cut = !is_last;
            if is_last || collected.count >= end.room || end.is_reached() {
                replay.ttl = looks.memory;
                return Ok(Some(collected));
            }
        }
    }

    /// Adds what a subscription is told to what is found.
    fn add_told(
        &self,
        subscription: &Arc<Subscription>,
        told: Vec<Told>,
        (now, found): (Moment, &mut Vec<FoundEvent>),
        collected: &mut Collected,
    ) -> Result<(), WebhookError> {
        let all_decimals = Decimals::new(&self.registry.naming);
        for Told { number, ledger, body, is_sure, .. } in told {
            if !is_sure {
                collected.unjudged += 1;
                continue;
            }
            collected.count += 1;
            let decimals = all_decimals.of(subscription, &body, None)?;
            found.push(FoundEvent { number, ledger: ledger.0, body, decimals });
            let bytes: usize = found.iter().map(|it| it.body.len()).sum();
            if found.len() >= MAX_BATCH_DELIVERIES || bytes >= MAX_BATCH_BYTES {
                self.write(subscription, found, now)?;
            }
        }
        Ok(())
    }
}

fn finish(names: Option<&InterfaceReader<'_>>) -> Result<(), WebhookError> {
    names.map(InterfaceReader::finish).transpose()?;
    Ok(())
}
