//! What a subscription to something other than events would have sent, before it is made.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::found::{MAX_DURATION, MOST_STEPS};
use super::manage::{NewSubscriptions, Webhooks};
use super::preview::{Previewed, SHOWN};
use super::subscription::{Row, State, Subscription};
use super::trigger::Trigger;
use super::triggers::silence::{self, Heard, Silence};
use super::triggers::transactions::TransactionTriggers;
use super::triggers::ttl_preview::TtlPreview;
use super::triggers::{Sources, Told};
use super::{Secret, Secrets, WebhookError};
use orrery_contract_data::CONSUMER as CONTRACT_DATA;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Owner};
use orrery_store::{Bounds, Needs};

impl Webhooks {
    /// Looks through the newest `last` ledgers for what subscriptions would have been told: as if they had
    /// been made just before these.
    pub(super) fn preview_triggers(
        &self,
        wanted: &NewSubscriptions,
        last: u32,
        bounds: Bounds<'_>,
    ) -> Result<Previewed, WebhookError> {
        self.check_storage(wanted)?;
        let mut previewed = Previewed::default();
        let Some(newest) = self.store.ends().latest else { return Ok(previewed) };
        let range = LedgerRange::new(newest.0.saturating_sub(last.saturating_sub(1)), newest.0);
        let subscriptions = self.as_if_made(wanted, range.first)?;
        let stored = self.store.status().ledgers_with(match wanted.trigger.is_of_transactions() {
            true => Needs::TRANSACTIONS,
            false => Needs::EVENTS,
        });
        let names = self.registry.naming.reader()?;
        let network = self.store.network().id();
        let (store, followed) = (&*self.store, &self.registry.followed);
        let sources = Sources { store, network, names: names.as_ref(), followed };
        let until = Instant::now() + MAX_DURATION;
        let is_over = || (bounds.interrupted)() || Instant::now() >= until;
        let mut previews: Vec<Preview<'_>> = subscriptions.iter().map(Preview::new).collect();
        let stored = stored.within(range);
        for ledger in stored.ranges().iter().flat_map(|range| range.first.0..=range.last.0) {
            let ledger = LedgerSeq(ledger);
            let is_indexed = self.store.lacks(CONTRACT_DATA, ledger) != Some(true);
            if is_over() || wanted.trigger.keys().is_some() && !is_indexed {
                break;
            }
            let mut told = Vec::new();
            let mut is_whole = true;
            for preview in &mut previews {
                match preview.look(sources, ledger, until, &is_over)? {
                    Some(more) => told.extend(more),
                    None => is_whole = false,
                }
            }
            if !is_whole {
                break;
            }
            let all = told.len();
            told.retain(|told| told.is_sure);
            previewed.unjudged += (all - told.len()) as u64;
            told.sort_by_key(|told| told.number);
            previewed.ledgers += 1;
            previewed.matched += told.len() as u64;
            let room = SHOWN.saturating_sub(previewed.first.len());
            previewed.first.extend(told.into_iter().take(room).map(|told| told.body));
        }
        if let Some(names) = &names {
            names.finish()?;
        }
        Ok(previewed)
    }

    /// Returns the subscriptions as if they had been made before a ledger.
    fn as_if_made(
        &self,
        wanted: &NewSubscriptions,
        first: LedgerSeq,
    ) -> Result<Vec<Arc<Subscription>>, WebhookError> {
        let sealer = self.registry.sealer()?;
        let secrets = Secrets { present: Secret::generate(), previous: Vec::new() };
        let state = State {
            enabled: true,
            disabled_reason: None,
            failing_since: None,
            failing_kept: None,
            failing_because: None,
            after_place: 0,
            after_ledger: first.0.saturating_sub(1),
        };
        let make = |definition: super::subscription::Definition| {
            let secrets = sealer.seal_all(&definition.tag, &secrets)?;
            let row = Row { definition, secrets, state: state.clone() };
            Ok(Arc::new(Subscription::new(0, row, sealer)?))
        };
        let definitions = self.definitions(&Owner(String::new()), wanted)?;
        definitions.into_iter().map(make).collect()
    }
}

/// The preview of one subscription.
struct Preview<'s> {
    subscription: &'s Arc<Subscription>,
    heard: Option<Heard>,
    ttl: TtlPreview,
}

impl<'s> Preview<'s> {
    fn new(subscription: &'s Arc<Subscription>) -> Self {
        Self { subscription, heard: None, ttl: TtlPreview::default() }
    }

    /// Returns what the subscription would have been told in a ledger, which follows those before; `None`
    /// when time is over first.
    fn look(
        &mut self,
        sources: Sources<'_>,
        ledger: LedgerSeq,
        until: Instant,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Told>>, WebhookError> {
        let subscription = self.subscription;
        Ok(match subscription.definition.trigger {
            Trigger::Event => Some(Vec::new()),
            Trigger::Upgrade | Trigger::Storage { .. } | Trigger::FailedCall { .. } => {
                of_transactions(sources, subscription, ledger, is_over)?
            }
            Trigger::Silence { within } => {
                let stored = silence::stored(&sources);
                let silence = Silence::of(&sources, (subscription, within), MOST_STEPS);
                self.heard = silence.heard(&stored, ledger, self.heard, until)?;
                if self.heard.is_some_and(|heard| heard.next.0 > 0) {
                    return Ok(None);
                }
                let told = self.heard.map(|heard| silence.told(&heard)).transpose()?.flatten();
                Some(told.into_iter().collect())
            }
            Trigger::Ttl { .. } => self.ttl.look(&sources, subscription, ledger, is_over)?,
        })
    }
}

/// Returns what a subscription is told of the transactions of a ledger; `None` when time is over first.
pub(super) fn of_transactions(
    sources: Sources<'_>,
    subscription: &Arc<Subscription>,
    ledger: LedgerSeq,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Vec<Told>>, WebhookError> {
    let one = std::iter::once(Arc::clone(subscription));
    let Some(triggers) = TransactionTriggers::open(sources, ledger, one)? else {
        return Ok(Some(Vec::new()));
    };
    let mut all = Vec::new();
    let query = triggers.query(0);
    let walked =
        sources.store.transactions_within(&query, Bounds::NONE, |record| {
            match triggers.of(record) {
                _ if is_over() => ControlFlow::Break(None),
                Ok(told) => {
                    all.extend(told);
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(Some(error)),
            }
        })?;
    match walked.broken_off {
        None => Ok(Some(all)),
        Some(None) => Ok(None),
        Some(Some(error)) => Err(error.into()),
    }
}
