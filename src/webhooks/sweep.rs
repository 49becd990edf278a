//! Removes deliveries that ended long ago, and old payloads.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::manage::Webhooks;
use super::rows::{
    DELIVERIES, Delivery, FINISHED, Finished, PAYLOADS, QUEUE, Queued, delivery_key,
};
use super::schedule::DEAD_DAYS;
use super::{CONSUMER, WebhookError};
use crate::store::RowBounds;

/// Maximum number of deliveries that are removed in one write.
const MAX_BATCH_DELIVERIES: usize = 1000;

/// Days for which payloads are kept. A delivery may be retried for more than ten days when its
/// endpoint asks for long waits, and a dead one is kept for thirty.
const PAYLOAD_DAYS: u16 = DEAD_DAYS + 15;

impl Webhooks {
    /// Removes everything that is past its retention period, and returns the number of deliveries
    /// removed. Nothing is removed that the queue needs.
    ///
    /// # Errors
    /// Errors of the store; what was removed before stays removed.
    pub fn sweep(&self) -> Result<u64, WebhookError> {
        let now = self.registry.now();
        let today = now.day_kept();
        let delivered_days = self.registry.settings().delivered_days;
        let mut removed = 0;
        for (dead, days) in [(false, delivered_days), (true, DEAD_DAYS)] {
            // Earlier days are removed.
            let first_kept = today.saturating_sub(days);
            let mut day = self.first_day(dead, 0)?;
            while let Some(at) = day.filter(|day| *day < first_kept) {
                removed += self.remove_day(at, dead)?;
                day = self.first_day(dead, at.saturating_add(1))?;
            }
        }
        let first_kept = self.first_kept_payloads(today.saturating_sub(PAYLOAD_DAYS))?;
        let registry = Arc::clone(&self.registry);
        self.store.change_consumer_rows(CONSUMER, move |effects| {
            registry.put_kept(effects, now)?;
            effects.delete_range(PAYLOADS, &[], &first_kept.to_be_bytes())
        })?;
        Ok(removed)
    }

    /// Returns the first day whose payloads are kept: `expired`, or an earlier day if a delivery in
    /// the queue has its payload there. A delivery waits for that long while the service does not
    /// run, and it seems so when the clock is far ahead for a moment.
    fn first_kept_payloads(&self, expired: u16) -> Result<u16, WebhookError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let oldest = view.scan_prefix(PAYLOADS, &[], &[], |key, _| {
            ControlFlow::Break(key.first_chunk().map(|day| u16::from_be_bytes(*day)))
        })?;
        let oldest = oldest.break_value().flatten().unwrap_or(u16::MAX);
        if oldest >= expired {
            return Ok(expired);
        }
        let mut first_kept = expired;
        let scanned = view.scan_prefix(QUEUE, &[], &[], |key, _| {
            let Some(queued) = Queued::read(key) else { return ControlFlow::Continue(()) };
            match view.get(DELIVERIES, &delivery_key(queued.subscription, queued.number)) {
                Ok(row) => {
                    let day = row.and_then(|row| Delivery::decode(&row)).map(|it| it.day);
                    first_kept = first_kept.min(day.unwrap_or(u16::MAX));
                }
                Err(error) => return ControlFlow::Break(Some(error)),
            }
            if first_kept <= oldest { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
        })?;
        match scanned.break_value().flatten() {
            Some(error) => Err(error.into()),
            None => Ok(first_kept),
        }
    }

    /// Returns the first day, beginning with `from`, on which delivered or dead deliveries ended.
    fn first_day(&self, dead: bool, from: u16) -> Result<Option<u16>, WebhookError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let mut from = from;
        loop {
            let key = [&from.to_be_bytes()[..], &[u8::from(dead)]].concat();
            let first = view.scan_prefix(FINISHED, &[], &key, |key, _| {
                ControlFlow::Break(Finished::read(key))
            })?;
            match first.break_value().flatten() {
                None => return Ok(None),
                Some(found) if found.dead == dead => return Ok(Some(found.day)),
                // A row of the other kind: continue with the next day if it is of this day,
                // otherwise with its day.
                Some(found) if found.day == from => match from.checked_add(1) {
                    None => return Ok(None),
                    Some(next) => from = next,
                },
                Some(found) => from = found.day,
            }
        }
    }

    /// Removes the deliveries that ended on a day.
    fn remove_day(&self, day: u16, dead: bool) -> Result<u64, WebhookError> {
        let mut removed = 0;
        let part = [&day.to_be_bytes()[..], &[u8::from(dead)]].concat();
        // The rows before are deleted already, and reading over them takes time.
        let mut from = Vec::new();
        loop {
            let mut page = Vec::new();
            let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
            let _ = view.scan_prefix(FINISHED, &part, &from, |rest, _| {
                match Finished::read(&[&part, rest].concat()) {
                    Some(found) if page.len() < MAX_BATCH_DELIVERIES => page.push(found),
                    _ => return ControlFlow::Break(()),
                }
                ControlFlow::Continue(())
            })?;
            let Some(last) = page.last() else { return Ok(removed) };
            from = last.key()[part.len()..].to_vec();
            let page = Arc::new(page);
            removed += self.store.change_consumer_rows(CONSUMER, move |effects| {
                let mut removed = 0;
                for found in page.iter() {
                    let key = delivery_key(found.subscription, found.number);
                    let row = effects.get(DELIVERIES, &key)?;
                    let delivery = row.and_then(|row| Delivery::decode(&row));
                    // A replay may have queued it again, and it may have ended on another day.
                    let ends = |it: Delivery| it.finished(found.subscription, found.number);
                    if delivery.and_then(ends) == Some(*found) {
                        effects.delete(DELIVERIES, key)?;
                        removed += 1;
                    }
                    effects.delete(FINISHED, found.key())?;
                }
                Ok::<_, WebhookError>(removed)
            })?;
        }
    }
}
