//! Forgetting deliveries that have come to their end long ago, and what was sent with them.

use std::sync::Arc;

use super::manage::Webhooks;
use super::rows::{DELIVERIES, Delivery, FINISHED, Finished, PAYLOADS, day_of, delivery_key};
use super::schedule::DEAD_DAYS;
use super::{CONSUMER, WebhookError};

/// Deliveries that are forgotten with one write.
const AT_ONCE: usize = 1000;

/// Days that what is sent is kept: a delivery may be tried for ten days and more when its endpoint asks for
/// long waits, and is kept for thirty when it is dead.
const PAYLOAD_DAYS: u16 = DEAD_DAYS + 15;

impl Webhooks {
    /// Forgets what is too old, and says how many deliveries that were.
    ///
    /// # Errors
    /// What the store says; what was forgotten before stays so.
    pub fn sweep(&self) -> Result<u64, WebhookError> {
        let today = day_of((self.clock)());
        let delivered_days = self.registry.settings().delivered_days;
        let mut forgotten = 0;
        for (dead, days) in [(false, delivered_days), (true, DEAD_DAYS)] {
            // Days before this one.
            let kept = today.saturating_sub(days);
            let mut day = self.first_day(dead, 0)?;
            while let Some(at) = day.filter(|day| *day < kept) {
                forgotten += self.forget_day(at, dead)?;
                day = self.first_day(dead, at.saturating_add(1))?;
            }
        }
        let kept = today.saturating_sub(PAYLOAD_DAYS);
        self.store.change_consumer_rows(CONSUMER, move |effects| {
            effects.delete_range(PAYLOADS, &[], &kept.to_be_bytes())
        })?;
        Ok(forgotten)
    }

    /// The first day from that one on on which deliveries of a kind came to their end.
    fn first_day(&self, dead: bool, from: u16) -> Result<Option<u16>, WebhookError> {
        let view = self.store.consumer_view(CONSUMER)?;
        let mut from = from;
        loop {
            let mut found = None;
            let key = [&from.to_be_bytes()[..], &[u8::from(dead)]].concat();
            view.scan(FINISHED, &key, |key, _| {
                found = Finished::read(key);
                false
            })?;
            match found {
                None => return Ok(None),
                Some(found) if found.dead == dead => return Ok(Some(found.day)),
                // Of the other kind: either of the same day, after which comes the next, or of a later one.
                Some(found) if found.day == from => match from.checked_add(1) {
                    None => return Ok(None),
                    Some(next) => from = next,
                },
                Some(found) => from = found.day,
            }
        }
    }

    /// Forgets what came to its end on a day.
    fn forget_day(&self, day: u16, dead: bool) -> Result<u64, WebhookError> {
        let mut forgotten = 0;
        loop {
            let mut page = Vec::new();
            let from = [&day.to_be_bytes()[..], &[u8::from(dead)]].concat();
            self.store.consumer_view(CONSUMER)?.scan(FINISHED, &from, |key, _| {
                let found = Finished::read(key).filter(|it| (it.day, it.dead) == (day, dead));
                found.map(|found| page.push(found)).is_some() && page.len() < AT_ONCE
            })?;
            if page.is_empty() {
                return Ok(forgotten);
            }
            let page = Arc::new(page);
            forgotten += self.store.change_consumer_rows(CONSUMER, move |effects| {
                let mut forgotten = 0;
                for found in page.iter() {
                    let key = delivery_key(found.subscription, found.number);
                    let row = effects.get(DELIVERIES, &key)?;
                    let delivery = row.and_then(|row| Delivery::decode(&row));
                    // It may have been asked for once more, and come to another end.
                    let ends = |it: Delivery| it.finished(found.subscription, found.number);
                    if delivery.and_then(ends) == Some(*found) {
                        effects.delete(DELIVERIES, key)?;
                        forgotten += 1;
                    }
                    effects.delete(FINISHED, found.key())?;
                }
                Ok::<_, WebhookError>(forgotten)
            })?;
        }
    }
}
