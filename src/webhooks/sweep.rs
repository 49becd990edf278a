//! Removes deliveries that ended long ago, old payloads, and secrets that have ended.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::manage::Webhooks;
use super::rows::{DELIVERIES, FINISHED, Finished, Number, PAYLOADS, QUEUE};
use super::schedule::DEAD_DAYS;
use super::{CONSUMER, WebhookError};
use orrery_store::RowBounds;

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
        self.clear_secrets()?;
        self.clear_lives()?;
        let now = self.registry.now();
        let today = now.day_kept();
        let delivered_days = self.registry.settings().delivered_days.get();
        let delivered_days = u16::try_from(delivered_days).unwrap_or(u16::MAX);
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
            effects.delete_range(PAYLOADS.family, &[], &first_kept.to_be_bytes())
        })?;
        Ok(removed)
    }

    /// Returns the first day whose payloads are kept: `expired`, or an earlier day if a delivery in
    /// the queue has its payload there. A delivery waits for that long while the service does not
    /// run, and it seems so when the clock is far ahead for a moment.
    fn first_kept_payloads(&self, expired: u16) -> Result<u16, WebhookError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let oldest = PAYLOADS.first(&view, None)?.map_or(u16::MAX, |((day, _), _)| day);
        if oldest >= expired {
            return Ok(expired);
        }
        let mut first_kept = expired;
        QUEUE.scan_all(&view, None, |queued, ()| {
            let delivery = DELIVERIES.get(&view, &(queued.subscription, queued.number))?;
            first_kept = first_kept.min(delivery.map_or(u16::MAX, |it| it.day));
            let is_found = first_kept <= oldest;
            Ok(if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(first_kept)
    }

    /// Returns the first day, beginning with `from`, on which delivered or dead deliveries ended.
    fn first_day(&self, dead: bool, from: u16) -> Result<Option<u16>, WebhookError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let mut from = from;
        loop {
            let begin = Finished { day: from, dead, subscription: 0, number: Number::FIRST };
            let first = FINISHED.first(&view, Some(&begin))?;
            match first.map(|(found, ())| found) {
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
        // The rows before are deleted already, and reading over them takes time.
        let mut from = None;
        loop {
            let mut page = Vec::new();
            let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
            FINISHED.scan(&view, &(day, dead), from.as_ref(), |found, ()| {
                page.push(found);
                let is_full = page.len() == MAX_BATCH_DELIVERIES;
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            let Some(last) = page.last() else { return Ok(removed) };
            from = Some(*last);
            let page = Arc::new(page);
            removed += self.store.change_consumer_rows(CONSUMER, move |effects| {
                let mut removed = 0;
                for found in page.iter() {
                    let (id, number) = (found.subscription, found.number);
                    let delivery = DELIVERIES.get(effects, &(id, number))?;
                    // A replay may have queued it again, and it may have ended on another day.
                    if delivery.and_then(|it| it.finished(id, number)) == Some(*found) {
                        DELIVERIES.delete(effects, &(id, number))?;
                        removed += 1;
                    }
                    FINISHED.delete(effects, found)?;
                }
                Ok::<_, WebhookError>(removed)
            })?;
        }
    }
}
