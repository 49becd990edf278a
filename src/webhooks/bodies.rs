//! The bodies of listed deliveries, as they are sent.

use super::manage::Webhooks;
use super::rows::{Delivery, Number, PAYLOADS, payload_key};
use super::{CONSUMER, WebhookError};
use orrery_ledger::domain::Owner;
use orrery_store::RowBounds;

impl Webhooks {
    /// Returns the bodies that are sent for deliveries of a subscription, in their order; `None` for one
    /// that is not stored any more. Ends before the bodies exceed `most` bytes, but not before the
    /// first.
    pub fn bodies(
        &self,
        owner: &Owner,
        id: u32,
        deliveries: &[(Number, Delivery)],
        most: usize,
    ) -> Result<Vec<Option<String>>, WebhookError> {
        self.registry.of_owner(owner, id)?;
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let (mut bodies, mut bytes) = (Vec::new(), 0);
        for (number, delivery) in deliveries {
            let stored = PAYLOADS.get(&view, &payload_key(delivery.day, id, *number))?;
            bytes += stored.as_ref().map_or(0, Vec::len);
            if bytes > most && !bodies.is_empty() {
                break;
            }
            bodies.push(stored.and_then(|body| String::from_utf8(body).ok()));
        }
        Ok(bodies)
    }
}
