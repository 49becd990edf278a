//! The number of a delivery within its subscription, by which deliveries are ordered, and the id that
//! receivers see.
//!
//! The number of an event's delivery is the id of the event, shifted to the left: the order of ingestion.
//! The lower bits number tests, which sort after the event that was the newest at the time. Other
//! deliveries, and tests of their subscriptions, have a place in the chain: ledger, transaction, kind and
//! number. A subscription has deliveries of one of these forms alone.

use std::fmt;

use orrery_ledger::domain::{EventId, LedgerSeq};
use orrery_store::RowCodec;

/// Number of bits below the event id.
const TEST_BITS: u32 = 16;
/// Number of bits below the ledger, of which the last are the kind.
const LEDGER_BITS: u32 = 32;
const KIND_BITS: u32 = 8;
/// The order of what comes after all transactions of a ledger. No transaction has it.
const AFTER_ALL: u64 = (1 << (LEDGER_BITS - KIND_BITS)) - 1;

/// Number of a delivery within its subscription.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    head: u64,
    /// What distinguishes deliveries of one place in the chain; `None` for events.
    tail: Option<Tail>,
}

/// The number at a place in the chain.
type Tail = [u64; 2];

/// What a delivery with a place in the chain tells. Within a transaction, and after all of them, the order
/// is that of these variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerKind {
    /// A change of contract data.
    Storage,
    /// A contract has changed its own code.
    Upgrade,
    /// What a contract refers to names other code.
    Repointed,
    /// A call that failed.
    FailedCall,
    /// An entry that is about to expire.
    Ttl,
    /// No event for some time.
    Silence,
    /// A test.
    Test,
}

impl TriggerKind {
    const ALL: [(Self, char); 7] = [
        (Self::Storage, 's'),
        (Self::Upgrade, 'u'),
        (Self::Repointed, 'r'),
        (Self::FailedCall, 'f'),
        (Self::Ttl, 'l'),
        (Self::Silence, 'q'),
        (Self::Test, 't'),
    ];

    /// Returns the letter in ids.
    fn letter(self) -> char {
        Self::ALL[self as usize].1
    }
}

impl Number {
    /// The smallest number.
    pub const FIRST: Self = Self { head: 0, tail: None };
    /// A number that is greater than that of any delivery.
    pub const LAST: Self = Self { head: u64::MAX, tail: Some([u64::MAX; 2]) };

    /// Returns the number of an event's delivery.
    pub fn of_event(event: EventId) -> Self {
        Self { head: event.0 << TEST_BITS, tail: None }
    }

    /// Returns the number of the `count`-th test (from 1) after this event; `None` when `count` is
    /// out of range.
    pub fn of_test(after: EventId, count: u64) -> Option<Self> {
        let is_number = (1..1 << TEST_BITS).contains(&count);
        is_number.then_some(Self { head: after.0 << TEST_BITS | count, tail: None })
    }

    /// Returns the number of what a transaction of a ledger triggered, or what came after all of them
    /// (`None`).
    pub fn of_trigger(
        ledger: LedgerSeq,
        transaction: Option<u32>,
        kind: TriggerKind,
        number: [u64; 2],
    ) -> Self {
        let order = transaction.map_or(AFTER_ALL, u64::from);
        let head = u64::from(ledger.0) << LEDGER_BITS | order << KIND_BITS | kind as u64;
        Self { head, tail: Some(number) }
    }

    /// Whether this is the delivery of an event, which all subscriptions get alike.
    pub fn is_of_event(self) -> bool {
        self.tail.is_none() && self.test().is_none()
    }

    /// Returns the event; for a test, the newest event before it. `None` where the number is a place in the
    /// chain.
    pub fn event(self) -> Option<EventId> {
        self.tail.is_none().then_some(EventId(self.head >> TEST_BITS))
    }

    /// Returns the ledger, transaction, kind and number; `None` where the number is that of an event.
    pub fn place(self) -> Option<(LedgerSeq, Option<u32>, TriggerKind, [u64; 2])> {
        let tail = self.tail?;
        let ledger = LedgerSeq(u32::try_from(self.head >> LEDGER_BITS).ok()?);
        let order = self.head >> KIND_BITS & AFTER_ALL;
        let transaction = (order != AFTER_ALL).then(|| u32::try_from(order)).transpose().ok()?;
        let kind = TriggerKind::ALL.get(usize::try_from(self.head & 0xff).ok()?)?.0;
        Some((ledger, transaction, kind, tail))
    }

    /// Returns which test this is, after its event or in its ledger; `None` for other deliveries.
    pub fn test(self) -> Option<u64> {
        match self.place() {
            Some((_, _, kind, [_, number])) => (kind == TriggerKind::Test).then_some(number),
            None => Some(self.head & ((1 << TEST_BITS) - 1)).filter(|count| *count > 0),
        }
    }

    /// Returns the next greater number.
    #[must_use]
    pub fn next(self) -> Self {
        match self.tail {
            None => Self { head: self.head.saturating_add(1), tail: None },
            Some([high, u64::MAX]) => Self { tail: Some([high.saturating_add(1), 0]), ..self },
            Some([high, low]) => Self { tail: Some([high, low + 1]), ..self },
        }
    }

    /// Returns the delivery id that receivers see. `tag` is the subscription's.
    pub fn id(self, tag: &str) -> String {
        if let Some((ledger, transaction, kind, [high, low])) = self.place() {
            let number = u128::from(high) << 64 | u128::from(low);
            return format!(
                "{tag}-{ledger}-{}-{}{number}",
                transaction.unwrap_or(0),
                kind.letter()
            );
        }
        let event = self.head >> TEST_BITS;
        match self.test() {
            None => format!("{tag}-{event}"),
            Some(count) => format!("{tag}-{event}-t{count}"),
        }
    }

    /// Parses the delivery id of a subscription with this tag; `None` for any other text.
    pub fn parse(tag: &str, id: &str) -> Option<Self> {
        let rest = id.strip_prefix(tag)?.strip_prefix('-')?;
        let parts: Vec<&str> = rest.split('-').collect();
        let number = match parts[..] {
            [event] => Self::of_event(event_id(event)?),
            [event, test] => {
                Self::of_test(event_id(event)?, test.strip_prefix('t')?.parse().ok()?)?
            }
            [ledger, transaction, number] => {
                let (letter, number) = number.split_at_checked(1)?;
                let is_it = |(_, it): &&(TriggerKind, char)| letter.starts_with(*it);
                let kind = TriggerKind::ALL.iter().find(is_it)?.0;
                let number: u128 = number.parse().ok()?;
                let number = [(number >> 64) as u64, number as u64];
                let transaction: u32 = transaction.parse().ok()?;
                let transaction = Some(transaction).filter(|it| *it > 0);
                if transaction.is_some_and(|it| u64::from(it) >= AFTER_ALL) {
                    return None;
                }
                Self::of_trigger(LedgerSeq(ledger.parse().ok()?), transaction, kind, number)
            }
            _ => return None,
        };
        // Only the canonical spelling is accepted.
        (number.id(tag) == id).then_some(number)
    }
}

fn event_id(text: &str) -> Option<EventId> {
    Some(EventId(text.parse().ok().filter(|id| *id < 1 << (64 - TEST_BITS))?))
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id("Number"))
    }
}

/// Numbers of events have the eight bytes that stores of earlier versions have; others have 24. A number is
/// the last part of every key.
impl RowCodec for Number {
    fn write(&self, to: &mut Vec<u8>) {
        self.head.write(to);
        if let Some(tail) = self.tail {
            tail.iter().for_each(|part| part.write(to));
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let head = u64::read(bytes)?;
        let tail = match bytes.is_empty() {
            true => None,
            false => Some([u64::read(bytes)?, u64::read(bytes)?]),
        };
        Some(Self { head, tail })
    }
}

#[cfg(test)]
impl Number {
    /// Returns the number of an event that has this head.
    pub fn plain(head: u64) -> Self {
        Self { head, tail: None }
    }

    /// Returns the head.
    pub fn head(self) -> u64 {
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "00112233aabbccdd";

    #[test]
    fn delivery_ids_round_trip_and_contain_no_dot() {
        let event = EventId(123_456_789);
        let numbers = [Number::of_event(event), Number::of_test(event, 7).unwrap()];
        for number in numbers {
            let id = number.id(TAG);
            assert!(!id.contains('.'));
            assert_eq!(Number::parse(TAG, &id), Some(number));
            assert_eq!(number.event(), Some(event));
            assert_eq!(Number::parse("00112233aabbccde", &id), None);
            for other in [format!("{id}0x"), format!(" {id}"), id.replace('-', "--")] {
                assert_eq!(Number::parse(TAG, &other), None, "{other}");
            }
        }
        assert!(numbers[0] < numbers[1] && numbers[1] < Number::of_event(EventId(123_456_790)));
        for other in ["-1-t0", "-1-t65536", "-01", "-+1", "-281474976710656", "-", ""] {
            assert_eq!(Number::parse(TAG, &format!("{TAG}{other}")), None, "{other}");
        }
    }

    #[test]
    fn ids_of_places_round_trip_in_the_order_of_the_chain() {
        let mut all = Vec::new();
        for ledger in [2, 62_000_000, u32::MAX] {
            for transaction in [Some(1), Some(2), Some(0x00ff_fffe), None] {
                for (kind, _) in TriggerKind::ALL {
                    for number in [[0, 0], [0, 1], [0, u64::MAX], [1, 0], [u64::MAX; 2]] {
                        let ledger = LedgerSeq(ledger);
                        all.push(Number::of_trigger(ledger, transaction, kind, number));
                    }
                }
            }
        }
        assert!(all.is_sorted() && all.windows(2).all(|two| two[0].next() <= two[1]));
        assert!(all.iter().all(|number| *number < Number::LAST && *number > Number::FIRST));
        for number in &all {
            let id = number.id(TAG);
            assert_eq!(Number::parse(TAG, &id), Some(*number), "{id}");
            assert_eq!(Number::decode(&number.encode()), Some(*number));
            assert!(number.event().is_none() && !number.is_of_event() && !id.contains('.'));
        }
        assert!(all.windows(2).all(|two| two[0].encode() < two[1].encode()));
        assert_eq!(
            Number::of_trigger(LedgerSeq(7), None, TriggerKind::Silence, [0, 0]).id(TAG),
            format!("{TAG}-7-0-q0")
        );
        for other in ["-7-0-x0", "-7-0-", "-7-0-q", "-7-16777215-s1", "-7--s1", "-7-0-s1-1"] {
            assert_eq!(Number::parse(TAG, &format!("{TAG}{other}")), None, "{other}");
        }
    }
}
