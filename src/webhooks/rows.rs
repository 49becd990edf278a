//! What lies in the store for webhooks: rows of the consumer's families, their keys, and deliveries.
//!
//! | Family | Key → value |
//! |---|---|
//! | `subscriptions` | `s`, number → [`super::subscription::Row`]; `n` → the next number; `o`, owner's hash → how many the owner has; `d`, hash of all that makes two the same → number; `p` → how far the work on a ledger has got that is done in parts |
//! | `deliveries` | subscription, number → [`Delivery`] |
//! | `payloads` | day, event or subscription and number → what is sent |
//! | `queue` | subscription, [`Class`], when it is due, number → nothing: what is to be sent |
//! | `finished` | day, state, subscription, number → nothing: what is to be forgotten some day |
//!
//! A delivery's number is its event's id, shifted to the left, so that deliveries of a subscription lie in the
//! order of ingestion. The bits below are for test deliveries, which come after the newest event of their time.

use serde::{Deserialize, Serialize};

use super::schedule::is_prompt;
use super::target::Attempted;
use crate::domain::EventId;

/// Family of subscriptions.
pub const SUBSCRIPTIONS: &str = "subscriptions";
/// Family of deliveries.
pub const DELIVERIES: &str = "deliveries";
/// Family of what is sent.
pub const PAYLOADS: &str = "payloads";
/// Family of what is to be sent.
pub const QUEUE: &str = "queue";
/// Family of what is to be forgotten.
pub const FINISHED: &str = "finished";

/// All families.
pub const FAMILIES: &[&str] = &[SUBSCRIPTIONS, DELIVERIES, PAYLOADS, QUEUE, FINISHED];

/// Bits below an event's id in a delivery's number.
const TEST_BITS: u32 = 16;

/// Attempts of one delivery that are kept, the newest.
const MOST_ATTEMPTS: usize = 32;

/// Milliseconds of a day.
const DAY: u64 = 24 * 3600 * 1000;

/// Whole days since 1970.
pub fn day_of(unix_ms: u64) -> u16 {
    u16::try_from(unix_ms / DAY).unwrap_or(u16::MAX)
}

/// Number of a delivery within its subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u64);

impl Number {
    /// That of an event.
    pub fn of_event(event: EventId) -> Self {
        Self(event.0 << TEST_BITS)
    }

    /// That of a test, the `count`-th, from 1, after this event; none when there were too many.
    pub fn of_test(after: EventId, count: u64) -> Option<Self> {
        (1..1 << TEST_BITS).contains(&count).then_some(Self(after.0 << TEST_BITS | count))
    }

    /// The event; of a test the newest one before it.
    pub fn event(self) -> EventId {
        EventId(self.0 >> TEST_BITS)
    }

    /// Which test it is after its event; none when it is none.
    pub fn test(self) -> Option<u64> {
        Some(self.0 & ((1 << TEST_BITS) - 1)).filter(|count| *count > 0)
    }

    /// What receivers know the delivery by. `tag` is the subscription's.
    pub fn id(self, tag: &str) -> String {
        match self.test() {
            None => format!("{tag}-{}", self.event().0),
            Some(count) => format!("{tag}-{}-t{count}", self.event().0),
        }
    }

    /// The number in an id of a subscription with this tag; none when it is another's, or no id.
    pub fn parse(tag: &str, id: &str) -> Option<Self> {
        let rest = id.strip_prefix(tag)?.strip_prefix('-')?;
        let (event, test) = match rest.split_once("-t") {
            Some((event, test)) => (event, Some(test)),
            None => (rest, None),
        };
        let event = EventId(event.parse().ok().filter(|id| *id < 1 << (64 - TEST_BITS))?);
        let number = match test {
            None => Self::of_event(event),
            Some(test) => Self::of_test(event, test.parse().ok()?)?,
        };
        // There is one way to spell it.
        (number.id(tag) == id).then_some(number)
    }
}

/// Why something is to be sent, which decides about what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// For the first time: one at a time, in the order of ingestion.
    First,
    /// Once more, after one of the first, short waits.
    Soon,
    /// Once more, later.
    Later,
    /// Because somebody asked for it: one at a time, in the order of ingestion.
    Asked,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::First, Self::Soon, Self::Later, Self::Asked];

    fn byte(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Soon => 1,
            Self::Later => 2,
            Self::Asked => 3,
        }
    }
}

/// Where something lies in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queued {
    /// The subscription.
    pub subscription: u32,
    /// Why it is to be sent.
    pub class: Class,
    /// When, in UNIX milliseconds; 0 for the first time.
    pub due: u64,
    /// Which delivery.
    pub number: Number,
}

impl Queued {
    /// What is to be sent for the first time.
    pub fn first(subscription: u32, number: Number) -> Self {
        Self { subscription, class: Class::First, due: 0, number }
    }

    /// Its key.
    pub fn key(&self) -> [u8; 21] {
        let mut key = [0; 21];
        key[..4].copy_from_slice(&self.subscription.to_be_bytes());
        key[4] = self.class.byte();
        key[5..13].copy_from_slice(&self.due.to_be_bytes());
        key[13..].copy_from_slice(&self.number.0.to_be_bytes());
        key
    }

    /// What lies under a key; none when it is none of this family.
    pub fn read(key: &[u8]) -> Option<Self> {
        let key: &[u8; 21] = key.try_into().ok()?;
        let class = Class::ALL.into_iter().find(|class| class.byte() == key[4])?;
        Some(Self {
            subscription: u32::from_be_bytes(key[..4].try_into().ok()?),
            class,
            due: u64::from_be_bytes(key[5..13].try_into().ok()?),
            number: Number(u64::from_be_bytes(key[13..].try_into().ok()?)),
        })
    }
}

/// Key of a subscription.
pub fn subscription_key(subscription: u32) -> [u8; 5] {
    let [a, b, c, d] = subscription.to_be_bytes();
    [b's', a, b, c, d]
}

/// Key of a delivery.
pub fn delivery_key(subscription: u32, number: Number) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&subscription.to_be_bytes());
    key[4..].copy_from_slice(&number.0.to_be_bytes());
    key
}

/// Subscription and number in a delivery's key.
pub fn delivery_of(key: &[u8]) -> Option<(u32, Number)> {
    let (subscription, number) = key.split_first_chunk()?;
    Some((u32::from_be_bytes(*subscription), Number(u64::from_be_bytes(number.try_into().ok()?))))
}

/// First key of a subscription's rows in the families that begin with its number, and the key before which
/// they end.
pub fn subscription_range(subscription: u32) -> ([u8; 4], Vec<u8>) {
    let end = match subscription.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![u8::MAX; 5],
    };
    (subscription.to_be_bytes(), end)
}

/// Key of what is sent. Subscriptions share what is sent of an event; a test's is its own.
pub fn payload_key(day: u16, subscription: u32, number: Number) -> Vec<u8> {
    let mut key = day.to_be_bytes().to_vec();
    match number.test() {
        None => {
            key.push(b'e');
            key.extend_from_slice(&number.event().0.to_be_bytes());
        }
        Some(_) => {
            key.push(b't');
            key.extend_from_slice(&delivery_key(subscription, number));
        }
    }
    key
}

/// What is to be forgotten: a delivery that came to its end on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The day.
    pub day: u16,
    /// Whether it did not arrive.
    pub dead: bool,
    /// The subscription.
    pub subscription: u32,
    /// The delivery.
    pub number: Number,
}

impl Finished {
    /// Its key.
    pub fn key(&self) -> [u8; 15] {
        let mut key = [0; 15];
        key[..2].copy_from_slice(&self.day.to_be_bytes());
        key[2] = u8::from(self.dead);
        key[3..].copy_from_slice(&delivery_key(self.subscription, self.number));
        key
    }

    /// What lies under a key; none when it is none of this family.
    pub fn read(key: &[u8]) -> Option<Self> {
        let key: &[u8; 15] = key.try_into().ok()?;
        let (subscription, number) = delivery_of(&key[3..])?;
        let day = u16::from_be_bytes([key[0], key[1]]);
        Some(Self { day, dead: key[2] != 0, subscription, number })
    }
}

/// How far a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has not been tried yet.
    Pending,
    /// It failed, and is tried again.
    Retrying,
    /// It arrived.
    Delivered,
    /// It is not tried any more.
    Dead,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it began, in UNIX milliseconds.
    pub at: u64,
    /// Status of the answer; none when none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Milliseconds up to the head of the answer, or to the failure.
    pub ms: u64,
    /// Why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the answer's body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
}

impl Attempt {
    /// What came of one that began at that time.
    pub fn of(at: u64, attempted: &Attempted) -> Self {
        Self {
            at,
            status: attempted.status,
            ms: u64::try_from(attempted.duration.as_millis()).unwrap_or(u64::MAX),
            error: attempted.error.clone(),
            excerpt: attempted.excerpt.clone(),
        }
    }
}

/// A delivery: one event for one subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// How far it is.
    pub state: State,
    /// Ledger of the event; of a test the newest one.
    pub ledger: u32,
    /// When it was made, in UNIX milliseconds.
    pub made: u64,
    /// Day under which its payload lies.
    pub day: u16,
    /// How often somebody asked for it once more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// Attempts since it was made, or somebody asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// When it is tried again, or was asked for, in UNIX milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
    /// When it arrived, or was given up, in UNIX milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The newest attempts, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Delivery {
    /// One that has not been tried.
    pub fn new(ledger: u32, now: u64) -> Self {
        Self {
            state: State::Pending,
            ledger,
            made: now,
            day: day_of(now),
            round: 0,
            tries: 0,
            due: None,
            ended: None,
            reason: None,
            attempts: Vec::new(),
        }
    }

    /// Its row.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts serialize")
    }

    /// A row's delivery; none when it is damaged.
    pub fn decode(row: &[u8]) -> Option<Self> {
        serde_json::from_slice(row).ok()
    }

    /// Notes an attempt. Of very many only the newest are kept.
    pub fn add(&mut self, attempt: Attempt) {
        if self.attempts.len() >= MOST_ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }

    /// Where it lies in the queue, while it is to be sent.
    pub fn queued(&self, subscription: u32, number: Number) -> Option<Queued> {
        let (class, due) = match (self.state, self.due) {
            (State::Pending, None) => (Class::First, 0),
            (State::Pending, Some(due)) => (Class::Asked, due),
            (State::Retrying, Some(due)) if is_prompt(self.tries) => (Class::Soon, due),
            (State::Retrying, Some(due)) => (Class::Later, due),
            _ => return None,
        };
        Some(Queued { subscription, class, due, number })
    }

    /// Where it lies among what is to be forgotten, once it has come to its end.
    pub fn finished(&self, subscription: u32, number: Number) -> Option<Finished> {
        let dead = match self.state {
            State::Delivered => false,
            State::Dead => true,
            State::Pending | State::Retrying => return None,
        };
        Some(Finished { day: day_of(self.ended?), dead, subscription, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_deliveries_are_read_back_and_hold_no_dot() {
        let (event, tag) = (EventId(123_456_789), "00112233aabbccdd");
        let numbers = [Number::of_event(event), Number::of_test(event, 7).unwrap()];
        for number in numbers {
            let id = number.id(tag);
            assert!(!id.contains('.'));
            assert_eq!(Number::parse(tag, &id), Some(number));
            assert_eq!(number.event(), event);
            assert_eq!(Number::parse("00112233aabbccde", &id), None);
            for other in [format!("{id}0x"), format!(" {id}"), id.replace('-', "--")] {
                assert_eq!(Number::parse(tag, &other), None, "{other}");
            }
        }
        assert!(numbers[0] < numbers[1] && numbers[1] < Number::of_event(EventId(123_456_790)));
        for other in ["-1-t0", "-1-t65536", "-01", "-+1", "-281474976710656", "-", ""] {
            assert_eq!(Number::parse(tag, &format!("{tag}{other}")), None, "{other}");
        }
    }

    #[test]
    fn keys_survive_a_round_trip_and_sort_as_they_should() {
        let number = Number::of_event(EventId(7));
        for class in Class::ALL {
            let queued = Queued { subscription: 9, class, due: 1 << 40, number };
            assert_eq!(Queued::read(&queued.key()), Some(queued));
            assert_eq!(Queued::read(&queued.key()[1..]), None);
            let later = Queued { due: (1 << 40) + 1, number: Number(0), ..queued };
            assert!(queued.key() < later.key());
        }
        let finished = Finished { day: 20_000, dead: true, subscription: 1, number };
        assert_eq!(Finished::read(&finished.key()), Some(finished));
        assert_eq!(delivery_of(&delivery_key(5, number)), Some((5, number)));
        assert_eq!(delivery_of(&[1, 2, 3]), None);
        assert_eq!(day_of(86_400_000 * 3 - 1), 2);
    }

    #[test]
    fn a_delivery_survives_a_round_trip_and_keeps_the_newest_attempts() {
        let mut delivery = Delivery::new(5, 1_700_000_000_000);
        assert_eq!(Delivery::decode(&delivery.encode()), Some(delivery.clone()));
        for at in 0..40 {
            let error = (at % 2 == 0).then(|| "no connection".to_owned());
            delivery.add(Attempt { at, status: None, ms: 3, error, excerpt: "x".to_owned() });
        }
        assert_eq!((delivery.attempts.len(), delivery.attempts[0].at), (32, 8));
        assert_eq!(Delivery::decode(&delivery.encode()), Some(delivery));
        assert_eq!(Delivery::decode(b"{"), None);
    }
}
