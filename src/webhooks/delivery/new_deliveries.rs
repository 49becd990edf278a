//! New deliveries, handed from the consumer to the dispatcher in memory, so that the dispatcher does
//! not read each back from the store. The memory that they take is limited; what exceeds the limit
//! is read from the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use crate::rows::{Delivery, Number};

/// Maximum size of the messages with new deliveries that the dispatcher has not handled yet.
const MAX_UNHANDLED_BYTES: usize = 4 << 20;
/// Maximum size of the contents that the dispatcher keeps.
const MAX_KEPT_BYTES: u64 = 4 << 20;
/// Typical size of a body in bytes; used only to size the table of the cache.
const USUAL_BODY: u64 = 512;
/// Size in bytes of a content without its body, and of a number.
const CONTENT: usize = 256;
const NUMBER: usize = size_of::<Number>();

/// A delivery as it was created, which is the same for all subscriptions that match the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The row of the delivery.
    pub delivery: Delivery,
    /// Body to send.
    pub body: Bytes,
}

/// Deliveries that were created, by one or several ledgers.
#[derive(Debug, Default)]
pub struct Created {
    /// Each subscription that has new deliveries, with their numbers in ascending order. Without
    /// numbers, the queue is to be read.
    pub by_subscription: Vec<(u32, Vec<Number>)>,
    /// Contents of the deliveries. One that is missing is to be read.
    pub contents: Vec<(Number, Content)>,
}

impl Created {
    fn bytes(&self) -> usize {
        let numbers: usize = self.by_subscription.iter().map(|(_, numbers)| numbers.len()).sum();
        let bodies: usize =
            self.contents.iter().map(|(_, content)| CONTENT + content.body.len()).sum();
        NUMBER * numbers + bodies
    }
}

/// Counts the bytes of messages that are not handled yet.
#[derive(Debug, Clone, Default)]
pub struct Unhandled(Arc<AtomicUsize>);

impl Unhandled {
    /// Counts the bytes of `created`, until the returned value is dropped. Removes numbers and
    /// contents if there would be too many bytes.
    pub fn count(&self, created: &mut Created) -> Counted {
        let bytes = created.bytes();
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let counted = Counted { bytes, unhandled: self.clone() };
        if before.saturating_add(bytes) > MAX_UNHANDLED_BYTES {
            created.contents = Vec::new();
            created.by_subscription.iter_mut().for_each(|(_, numbers)| *numbers = Vec::new());
            return Counted { bytes: 0, unhandled: self.clone() };
        }
        counted
    }
}

/// Bytes of a message that is not handled yet.
#[derive(Debug)]
pub struct Counted {
    bytes: usize,
    unhandled: Unhandled,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.unhandled.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The newest contents, by number.
pub struct Contents(Cache<Number, Content, Weight>);

#[derive(Clone)]
struct Weight;

impl Weighter<Number, Content> for Weight {
    fn weight(&self, _: &Number, content: &Content) -> u64 {
        (CONTENT + content.body.len()) as u64
    }
}

impl Default for Contents {
    fn default() -> Self {
        let items = (MAX_KEPT_BYTES / USUAL_BODY) as usize;
        Self(Cache::with_weighter(items, MAX_KEPT_BYTES, Weight))
    }
}

impl Contents {
    /// Adds contents.
    pub fn extend(&mut self, contents: impl IntoIterator<Item = (Number, Content)>) {
        contents.into_iter().for_each(|(number, content)| self.0.insert(number, content));
    }

    /// Returns the content of a delivery that has not been attempted, unless it was dropped.
    pub fn get(&self, number: Number) -> Option<Content> {
        self.0.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Moment;

    fn created(bodies: u64, bytes: usize) -> Created {
        let content = |number| {
            let body = Bytes::from(vec![b'x'; bytes]);
            (Number::plain(number), Content { delivery: Delivery::new(1, Moment::default()), body })
        };
        let numbers: Vec<_> = (0..bodies).map(Number::plain).collect();
        let by_subscription = vec![(1, numbers.clone()), (2, numbers)];
        Created { by_subscription, contents: (0..bodies).map(content).collect() }
    }

    #[test]
    fn unhandled_messages_hold_at_most_4_mib() {
        let unhandled = Unhandled::default();
        let mut counted = Vec::new();
        for message in 0..100 {
            let mut created = created(16, 16 << 10);
            counted.push(unhandled.count(&mut created));
            let fits = message < 15;
            assert_eq!(created.contents.len(), if fits { 16 } else { 0 }, "{message}");
            let numbers = if fits { 16 } else { 0 };
            let kept: Vec<_> =
                created.by_subscription.iter().map(|(id, all)| (*id, all.len())).collect();
            assert_eq!(kept, [(1, numbers), (2, numbers)], "{message}");
        }
        drop(counted);
        let mut one_more = created(16, 16 << 10);
        drop(unhandled.count(&mut one_more));
        assert_eq!(one_more.contents.len(), 16);
        assert_eq!(unhandled.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn cached_contents_are_limited() {
        let mut contents = Contents::default();
        for first in 0..100 {
            let Created { contents: new, .. } = created(16, 16 << 10);
            let moved = new.into_iter().map(|(at, it)| (Number::plain(16 * first + at.head()), it));
            contents.extend(moved);
        }
        let kept =
            (0..1600).filter(|number| contents.get(Number::plain(*number)).is_some()).count();
        assert!((100..=256).contains(&kept), "{kept}");
    }
}
