//! What a subscription would have sent, before it is made; and whether its condition can be met at all.

use std::ops::ControlFlow;
use std::time::Duration;

use super::decimals::{Decimals, asset_emitter};
use super::found::query_of;
use super::judging::{self, JudgedEvent, Verdict, WHERE};
use super::manage::{NewSubscriptions, Webhooks};
use super::message::Facts;
use super::message::format::Format;
use super::projects::Declaring;
use super::{WebhookError, payload, triggers};
use orrery_executables::InterfaceReader;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, Owner};
use orrery_membership::Selected;
use orrery_store::{Bounds, EventRecord, Needs, StoreError};
use serde_json::Value as Json;

/// Number of bodies that are shown.
pub(super) const SHOWN: usize = 3;
/// Maximum number of ledgers that are read together.
const MOST_TOGETHER: u32 = 64;
/// How long interfaces of contracts are waited for that are stored and not in memory.
const MOST_WAITED: Duration = Duration::from_secs(1);

/// What a subscription would have sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Previewed {
    /// Number of stored ledgers that were looked through.
    pub ledgers: u64,
    /// The first and the last of them: of what follows from the ledgers before, those that are not looked
    /// through in time are the newest, else the oldest.
    pub from: Option<LedgerSeq>,
    /// See `from`.
    pub to: Option<LedgerSeq>,
    /// Number of deliveries.
    pub matched: u64,
    /// Number of events of which it is not known whether they would have been sent.
    pub unjudged: u64,
    /// Bodies of the first of them.
    pub first: Vec<Vec<u8>>,
}

impl Previewed {
    /// Adds what was found in ledgers before all that were looked through.
    fn put_before(&mut self, mut found: Self) {
        self.matched += found.matched;
        self.unjudged += found.unjudged;
        found.first.append(&mut self.first);
        found.first.truncate(SHOWN);
        self.first = found.first;
    }
}

impl Webhooks {
    /// Looks through the newest `last` ledgers for what subscriptions would have sent, as far as `bounds`
    /// allow, backwards from the newest.
    ///
    /// # Errors
    /// Errors of the store, and [`WebhookError::Value`] when no event can meet the condition.
    pub fn preview(
        &self,
        owner: &Owner,
        wanted: NewSubscriptions,
        last: u32,
        bounds: Bounds<'_>,
    ) -> Result<Previewed, WebhookError> {
        let wanted = &self.of_project(owner, wanted)?;
        self.check_condition(wanted)?;
        self.check_message(wanted)?;
        if !wanted.trigger.is_event() {
            let mut previewed = self.preview_triggers(wanted, last, bounds)?;
            for body in &mut previewed.first {
                *body = self.shown(wanted, std::mem::take(body), None)?;
            }
            return Ok(previewed);
        }
        let mut previewed = Previewed::default();
        let Some(newest) = self.store.ends().latest else { return Ok(previewed) };
        let oldest = newest.0.saturating_sub(last.saturating_sub(1));
        let stored = self.store.status().ledgers_with(Needs::EVENTS);
        let (mut left, mut together) = (bounds, 1);
        let mut to = newest.0;
        loop {
            let from = oldest.max(to.saturating_sub(together - 1));
            let range = LedgerRange::new(from, to);
            let Some(cost) = self.preview_of(wanted, range, left, &mut previewed)? else { break };
            let looked = stored.within(range);
            previewed.ledgers += looked.ledgers();
            if let (Some(first), Some(last)) = (looked.ranges().first(), looked.ranges().last()) {
                previewed.from = Some(first.first);
                previewed.to = previewed.to.or(Some(last.last));
            }
            left.records = left.records.saturating_sub(cost.0);
            left.index_rows = left.index_rows.saturating_sub(cost.1);
            if from == oldest || (left.interrupted)() || left.records == 0 || left.index_rows == 0 {
                break;
            }
            (to, together) = (from - 1, (2 * together).min(MOST_TOGETHER));
        }
        Ok(previewed)
    }

    /// Adds what would have been sent of some ledgers, which come before all that were looked through.
    /// Returns the records and index rows that it took; `None` when it was interrupted, and then nothing
    /// is added.
    fn preview_of(
        &self,
        wanted: &NewSubscriptions,
        range: LedgerRange,
        bounds: Bounds<'_>,
        previewed: &mut Previewed,
    ) -> Result<Option<(u64, u64)>, WebhookError> {
        let names = self.registry.naming.reader()?;
        let network = self.store.network().id();
        let query = query_of(wanted.contracts.clone(), &wanted.filter, range);
        let mut found = Previewed::default();
        let mut of_ledger: Option<(LedgerSeq, Selected)> = None;
        let walked = self.store.events_within(&query, bounds, |event| {
            if !wanted.filter.matches(event.contract, event.topics) {
                return ControlFlow::Continue(());
            }
            let selected = match self.selected_in(wanted, event.ledger, &mut of_ledger) {
                Ok(selected) => selected,
                Err(error) => return ControlFlow::Break(error),
            };
            if selected.is_some_and(|it| !it.may_have(event.id)) {
                return ControlFlow::Continue(());
            }
            if let (Some(names), Some(selected)) = (&names, selected) {
                names.supply(selected.supplied.clone());
            }
            let judged = JudgedEvent::new(event, network, names.as_ref());
            match judged.of_project(wanted.condition.as_ref(), selected) {
                Verdict::Matches => {
                    found.matched += 1;
                    if found.first.len() < SHOWN {
                        match self.shown_event(wanted, event, names.as_ref()) {
                            Ok(shown) => found.first.push(shown),
                            Err(error) => return ControlFlow::Break(error),
                        }
                    }
                }
                Verdict::Unjudged => found.unjudged += 1,
                Verdict::Differs | Verdict::Misfits(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        names.as_ref().map(InterfaceReader::finish).transpose()?;
        walked.broken_off.map_or(Ok(()), Err)?;
        if walked.interrupted.is_some() {
            return Ok(None);
        }
        previewed.put_before(found);
        Ok(Some((walked.cost.records, walked.cost.index_rows)))
    }

    /// Returns the events of a ledger that the project of wanted subscriptions selects; `None` without one.
    fn selected_in<'l>(
        &self,
        wanted: &NewSubscriptions,
        ledger: LedgerSeq,
        last: &'l mut Option<(LedgerSeq, Selected)>,
    ) -> Result<Option<&'l Selected>, StoreError> {
        let Some(project) = &wanted.project else { return Ok(None) };
        if last.as_ref().is_none_or(|(of, _)| *of != ledger) {
            *last = Some((ledger, self.registry.followed.selected(project, ledger)?));
        }
        Ok(last.as_ref().map(|(_, selected)| selected))
    }

    /// As [`Self::shown`], of an event.
    fn shown_event(
        &self,
        wanted: &NewSubscriptions,
        event: &EventRecord<'_>,
        names: Option<&InterfaceReader<'_>>,
    ) -> Result<Vec<u8>, StoreError> {
        let network = self.store.network().id();
        let body = payload::of_event(event, network, names);
        self.shown(wanted, body, asset_emitter(event, network, names))
    }

    /// Returns the body of a delivery as JSON: as it would be sent, or the text of a message as a string.
    fn shown(
        &self,
        wanted: &NewSubscriptions,
        body: Vec<u8>,
        asset: Option<ContractId>,
    ) -> Result<Vec<u8>, StoreError> {
        let Some(message) = &wanted.message else { return Ok(body) };
        let decimals = Decimals::new(&self.registry.naming).of_message(message, &body, asset)?;
        let url = self.registry.public_url();
        let facts = Facts { subscription: 0, decimals: &decimals, public_url: url.as_deref() };
        let written = message.write(&body, &facts);
        Ok(match message.format() {
            Format::Text => Json::from(String::from_utf8_lossy(&written)).to_string().into_bytes(),
            _ => written.into(),
        })
    }

    /// Checks whether events can meet the condition of wanted subscriptions, by what their contracts are
    /// known to declare, or to have declared.
    ///
    /// # Errors
    /// [`WebhookError::Value`], and errors of the store.
    pub(super) fn check_condition(&self, wanted: &NewSubscriptions) -> Result<(), WebhookError> {
        let Some(condition) = &wanted.condition else { return Ok(()) };
        if wanted.trigger.keys().is_some() {
            let checked = triggers::data_fields::check(condition);
            return checked.map_err(|problem| WebhookError::Value { name: WHERE, problem });
        }
        let Declaring { contracts: Some(contracts), supplied } = self.declaring(wanted)? else {
            return Ok(());
        };
        for is_first in [true, false] {
            let Some(names) = self.registry.naming.reader_of_memory()? else { break };
            let checked = judging::check(condition, &contracts, supplied.as_ref(), &names);
            let (lacking, is_known) = (names.lacking().without_ledgers(), names.lacked() == 0);
            names.finish()?;
            match checked {
                Err(problem) if is_known => {
                    return Err(WebhookError::Value { name: WHERE, problem });
                }
                _ if is_known || !is_first => break,
                // What is not at hand may declare what it names, or refuse what nothing else does.
                _ => self.registry.naming.wait_until_read(&lacking, MOST_WAITED),
            };
        }
        Ok(())
    }
}
