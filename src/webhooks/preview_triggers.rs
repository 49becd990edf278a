//! What a subscription to something other than events would have sent, before it is made.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::found::{MAX_DURATION, MOST_STEPS};
use super::manage::{NewSubscriptions, Webhooks};
use super::preview::{Previewed, SHOWN};
use super::subscription::{Row, State, Subscription};
use super::trigger::Trigger;
use super::triggers::silence::{InTurn, Ledgers, Silence};
use super::triggers::transactions::TransactionTriggers;
use super::triggers::ttl_preview::TtlPreview;
use super::triggers::{Sources, Told};
use super::{Secret, Secrets, WebhookError};
use orrery_contract_data::CONSUMER as CONTRACT_DATA;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, Owner};
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
        let Some(newest) = self.store.ends().latest else { return Ok(Previewed::default()) };
        let range = LedgerRange::new(newest.0.saturating_sub(last.saturating_sub(1)), newest.0);
        let stored = self.store.status().ledgers_with(match wanted.trigger.is_of_transactions() {
            true => Needs::TRANSACTIONS,
            false => Needs::EVENTS,
        });
        let stored = stored.within(range);
        let first = stored.ranges().first().map_or(range.first, |stored| stored.first);
        let subscriptions = self.as_if_made(wanted, first)?;
        let names = self.registry.naming.reader()?;
        let network = self.store.network().id();
        let (store, followed) = (&*self.store, &self.registry.followed);
        let sources = Sources { store, network, names: names.as_ref(), followed };
        let until = Instant::now() + MAX_DURATION;
        let is_over = || (bounds.interrupted)() || Instant::now() >= until;
        let previewed =
            self.preview_ledgers(wanted, &subscriptions, &stored, sources, (until, &is_over))?;
        if let Some(names) = &names {
            names.finish()?;
        }
        Ok(previewed)
    }

    /// Looks through ledgers until time is over.
    fn preview_ledgers(
        &self,
        wanted: &NewSubscriptions,
        subscriptions: &[Arc<Subscription>],
        stored: &LedgerSet,
        sources: Sources<'_>,
        (until, is_over): (Instant, &dyn Fn() -> bool),
    ) -> Result<Previewed, WebhookError> {
        let mut previewed = Previewed::default();
        let mut previews: Vec<Preview<'_>> = subscriptions.iter().map(Preview::new).collect();
        // What transactions did is told of each by itself, so the newest come first, as of events. Expiry and
        // silence follow from the ledgers before.
        let is_backward = wanted.trigger.is_of_transactions();
        for ledger in in_order(stored, is_backward) {
            let is_indexed = self.store.lacks(CONTRACT_DATA, ledger) != Some(true);
            let is_lacking = wanted.trigger.keys().is_some() && !is_indexed;
            if is_lacking && is_backward {
                continue;
            }
            if is_over() || is_lacking {
                break;
            }
            let mut found = Vec::new();
            let mut is_whole = true;
            for preview in &mut previews {
                match preview.look(sources, ledger, until, is_over)? {
                    Some(seen) => {
                        found.extend(seen.told);
                        previewed.unjudged += seen.unjudged;
                    }
                    None => is_whole = false,
                }
            }
            if !is_whole {
                break;
            }
            previewed.add(ledger, found, is_backward);
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
        let state = State::enabled(0, first.0.saturating_sub(1));
        let make = |definition: super::subscription::Definition| {
            let secrets = sealer.seal_all(&definition.tag, &secrets)?;
            let row = Row { definition, secrets, state: state.clone() };
            Ok(Arc::new(Subscription::new(0, row, sealer)?))
        };
        let definitions = self.definitions(&Owner(String::new()), wanted)?;
        definitions.into_iter().map(make).collect()
    }
}

impl Previewed {
    /// Adds what would have been told in a ledger, which comes before all that were looked at or behind them.
    fn add(&mut self, ledger: LedgerSeq, mut told: Vec<Told>, is_before: bool) {
        let all = told.len();
        told.retain(|told| told.is_sure);
        self.unjudged += (all - told.len()) as u64;
        told.sort_by_key(|told| told.number);
        self.ledgers += 1;
        self.matched += told.len() as u64;
        self.from = Some(self.from.map_or(ledger, |from| from.min(ledger)));
        self.to = Some(self.to.map_or(ledger, |to| to.max(ledger)));
        let bodies = told.into_iter().take(SHOWN).map(|told| told.body);
        if is_before {
            drop(self.first.splice(0..0, bodies));
        } else {
            self.first.extend(bodies);
        }
        self.first.truncate(SHOWN);
    }
}

/// Returns the ledgers of a set in the order of the chain, or against it.
fn in_order(ledgers: &LedgerSet, is_backward: bool) -> Box<dyn Iterator<Item = LedgerSeq> + '_> {
    let all = ledgers.ranges().iter().flat_map(|range| range.first.0..=range.last.0);
    let all = all.map(LedgerSeq);
    if is_backward { Box::new(all.rev()) } else { Box::new(all) }
}

/// The preview of one subscription.
struct Preview<'s> {
    subscription: &'s Arc<Subscription>,
    silence: InTurn,
    /// The stored ledgers.
    ledgers: Option<Ledgers>,
    ttl: TtlPreview,
}

/// What a subscription would have been told in a ledger.
#[derive(Default)]
struct Seen {
    told: Vec<Told>,
    /// Number of events that its condition could not be asked of.
    unjudged: u64,
}

impl<'s> Preview<'s> {
    fn new(subscription: &'s Arc<Subscription>) -> Self {
        let (silence, ledgers) = (InTurn::default(), None);
        Self { subscription, silence, ledgers, ttl: TtlPreview::default() }
    }

    /// Returns what the subscription would have been told in a ledger, which follows those before; `None`
    /// when time is over first.
    fn look(
        &mut self,
        sources: Sources<'_>,
        ledger: LedgerSeq,
        until: Instant,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Seen>, WebhookError> {
        let subscription = self.subscription;
        let told = match subscription.definition.trigger {
            Trigger::Event => Some(Vec::new()),
            Trigger::Upgrade | Trigger::Storage { .. } | Trigger::FailedCall { .. } => {
                of_transactions(sources, subscription, ledger, is_over)?
            }
            Trigger::Silence { within } => {
                let ledgers = &*self.ledgers.get_or_insert_with(|| Ledgers::of(&sources));
                let silence = Silence::of(&sources, ledgers, (subscription, within), MOST_STEPS);
                let Some(listened) = self.silence.listen(&silence, ledger, until)? else {
                    return Ok(None);
                };
                let unjudged = listened.unjudged();
                return Ok(Some(Seen { told: listened.told.into_iter().collect(), unjudged }));
            }
            Trigger::Ttl { .. } => self.ttl.look(&sources, subscription, ledger, is_over)?,
        };
        Ok(told.map(|told| Seen { told, unjudged: 0 }))
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
