//! The rows of webhooks in the store: column families of the consumer, their keys, and deliveries.

use serde::{Deserialize, Serialize};

pub use super::number::{Number, TriggerKind};
use super::schedule::is_prompt;
use super::target::AttemptResult;
use super::time::{Moment, day_of};
use orrery_contract_data::KeyTag;
use orrery_ledger::domain::{ContractId, EventId, LedgerSeq};
use orrery_store::{KeyPrefix, Mark, RowCodec, Table, row_codec};

/// Subscriptions, as [`super::subscription::Row`] encodes them.
pub const SUBSCRIPTIONS: Table<(Mark<b's'>, u32), Vec<u8>> = in_subscriptions();
/// Number of the next subscription.
pub const NEXT: Table<Mark<b'n'>, u32> = in_subscriptions();
/// Number of an owner's subscriptions, by the SHA-256 of the owner.
pub const OWNED: Table<(Mark<b'o'>, [u8; 32]), u32> = in_subscriptions();
/// The subscription with a fingerprint of all that makes two of them identical.
pub const IDENTICAL: Table<(Mark<b'd'>, [u8; 32]), u32> = in_subscriptions();
/// Number of a subscription's last test delivery.
pub const LAST_TESTS: Table<(Mark<b't'>, u32), Number> = in_subscriptions();
/// Place in the feed of a ledger that is processed in several steps, and its last processed event.
pub const PROGRESS: Table<Mark<b'p'>, (u64, EventId)> = in_subscriptions();
/// Place in the feed of a ledger whose events are processed and whose transactions are not all, with the
/// application order of the last one that is.
pub const TRANSACTIONS_DONE: Table<Mark<b'x'>, (u64, u32)> = in_subscriptions();
/// Times to live that entries of watched contracts were given.
pub const LIVES: Table<Life, ()> = Table::new("lives").skip_damaged();
/// The last known [`Moment::kept`], in milliseconds.
pub const KEPT: Table<Mark<b'c'>, u64> = in_subscriptions();
/// Deliveries, by subscription.
pub const DELIVERIES: Table<(u32, Number), Delivery> = Table::new("deliveries").skip_damaged();
/// [`DELIVERIES`] with their rows as they are.
pub const ENCODED_DELIVERIES: Table<(u32, Number), Vec<u8>> = Table::new(DELIVERIES.family);
/// Bodies to send, by day and by what they were made of ([`payload_key`]).
pub const PAYLOADS: Table<(u16, PayloadOf), Vec<u8>> = Table::new("payloads").skip_damaged();
/// Deliveries to send.
pub const QUEUE: Table<Queued, ()> = Table::new("queue").skip_damaged();
/// Deliveries that have ended, to be removed after their retention period.
pub const FINISHED: Table<Finished, ()> = Table::new("finished").skip_damaged();

/// All families.
pub const FAMILIES: &[&str] = &[
    SUBSCRIPTIONS.family,
    DELIVERIES.family,
    PAYLOADS.family,
    QUEUE.family,
    FINISHED.family,
    LIVES.family,
];

/// A table in the family of subscriptions.
pub(super) const fn in_subscriptions<K, V>() -> Table<K, V> {
    Table::new("subscriptions").skip_damaged()
}

/// Number of attempts that are kept per delivery, the newest.
const MAX_RECORDED_ATTEMPTS: usize = 32;

/// Reason why a delivery is to be sent, which decides what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// First attempt: one at a time, in the order of ingestion.
    First,
    /// Retry after one of the first, short waits; or a test, because whoever tests an endpoint that
    /// fails waits for the answer.
    Soon,
    /// Any later retry.
    Later,
    /// Request for a replay: one at a time, by due time and then in the order of
    /// ingestion.
    Requested,
}

row_codec!(enum Class);

impl Class {
    /// All of them; the index of each equals its discriminant.
    pub const ALL: [Self; 4] = [Self::First, Self::Soon, Self::Later, Self::Requested];

    /// Returns the class of a delivery that somebody requested.
    pub fn of_request(number: Number) -> Self {
        if number.test().is_some() { Self::Soon } else { Self::Requested }
    }
}

/// Position of a delivery in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queued {
    /// The subscription.
    pub subscription: u32,
    /// Why it is to be sent.
    pub class: Class,
    /// Due time in UNIX milliseconds; 0 for a first attempt.
    pub due: u64,
    /// Number of the delivery.
    pub number: Number,
}

row_codec!(Queued { subscription, class, due, number });

impl KeyPrefix<Queued> for (u32, Class) {}

impl Queued {
    /// Returns the position of a first attempt.
    pub fn first(subscription: u32, number: Number) -> Self {
        Self { subscription, class: Class::First, due: 0, number }
    }
}

/// Returns the first key of a subscription's rows, and the key before which they end, in the
/// families whose keys begin with the subscription's number.
pub fn subscription_range(subscription: u32) -> ([u8; 4], Vec<u8>) {
    let end = match subscription.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![u8::MAX; 5],
    };
    (subscription.to_be_bytes(), end)
}

/// What a payload was made of: an event, for all subscriptions, or something for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadOf {
    /// The event.
    Event(EventId),
    /// The subscription, and number of a delivery whose body is its own.
    Own(u32, Number),
}

impl RowCodec for PayloadOf {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Event(event) => (b'e', *event).write(to),
            Self::Own(subscription, number) => (b't', (*subscription, *number)).write(to),
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match u8::read(bytes)? {
            b'e' => EventId::read(bytes).map(Self::Event),
            b't' => Some(Self::Own(u32::read(bytes)?, Number::read(bytes)?)),
            _ => None,
        }
    }
}

/// Where the bodies of a subscription's deliveries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bodies {
    /// Number of the subscription.
    pub subscription: u32,
    /// Whether those of events are its own, because they have names that others do not have.
    pub are_own: bool,
}

impl Bodies {
    /// Returns the key of a delivery's payload.
    pub fn key(self, day: u16, number: Number) -> (u16, PayloadOf) {
        match self.are_own {
            true => (day, PayloadOf::Own(self.subscription, number)),
            false => payload_key(day, self.subscription, number),
        }
    }
}

/// Returns the key of a delivery's payload that all subscriptions share.
pub fn payload_key(day: u16, subscription: u32, number: Number) -> (u16, PayloadOf) {
    match number.event().filter(|_| number.is_of_event()) {
        Some(event) => (day, PayloadOf::Event(event)),
        None => (day, PayloadOf::Own(subscription, number)),
    }
}

/// A time to live of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// The contract.
    pub contract: ContractId,
    /// The last ledger in which the entry was to be live.
    pub until: LedgerSeq,
    /// First bytes of the hash of its key.
    pub tag: KeyTag,
}

row_codec!(Life { contract, until, tag });

impl KeyPrefix<Life> for (ContractId, LedgerSeq) {}

/// Row of a delivery that ended on a day, and is to be removed after its retention period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Day on which it ended ([`Moment::day`]).
    pub day: u16,
    /// Whether it was given up instead of delivered.
    pub dead: bool,
    /// The subscription.
    pub subscription: u32,
    /// Number of the delivery.
    pub number: Number,
}

row_codec!(Finished { day, dead, subscription, number });

impl KeyPrefix<Finished> for (u16, bool) {}

/// Progress of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not attempted since it was created or last replayed.
    #[default]
    Pending,
    /// Failed, and waits for a retry.
    Retrying,
    /// Accepted by the endpoint.
    Delivered,
    /// Given up.
    Dead,
}

/// An attempt to send a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// UNIX time in milliseconds at which it began.
    pub at: u64,
    /// Status of the response; `None` when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Milliseconds until the response head or the failure.
    pub ms: u64,
    /// Why there was no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the response body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
}

impl Attempt {
    /// Returns the record of an attempt that began at `at`, in UNIX milliseconds.
    pub fn of(at: u64, attempted: &AttemptResult) -> Self {
        Self {
            at,
            status: attempted.status,
            ms: u64::try_from(attempted.duration.as_millis()).unwrap_or(u64::MAX),
            error: attempted.error.clone(),
            excerpt: attempted.excerpt.clone(),
        }
    }

    /// Returns why a failed attempt failed, in few words.
    pub fn failure(&self) -> String {
        match (&self.error, self.status) {
            (Some(error), _) => error.clone(),
            (None, Some(status)) => format!("the endpoint answered {status}"),
            (None, None) => "the endpoint did not answer".to_owned(),
        }
    }
}

/// A delivery: one event for one subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delivery {
    /// Progress of the delivery.
    pub state: State,
    /// Ledger of the event; for a test, the newest ledger.
    pub ledger: u32,
    /// UNIX time in milliseconds at which it was created.
    pub made: u64,
    /// Day in the key of its payload.
    pub day: u16,
    /// Number of replays that were requested.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub round: u32,
    /// Number of attempts since it was created or last replayed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// UNIX time in milliseconds of the next retry, or at which a replay or test was requested;
    /// `None` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
    /// UNIX time in milliseconds at which it was delivered or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Day in the key of its row in `finished`; `None` if it is that of `ended`, as earlier versions
    /// have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_day: Option<u16>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Decimals of the tokens in whose units its message has numbers, in their order, where they were known
    /// as of its ledger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decimals: Vec<Option<u32>>,
    /// The newest attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// JSON.
impl RowCodec for Delivery {
    fn write(&self, to: &mut Vec<u8>) {
        serde_json::to_writer(to, self).expect("numbers and texts serialize");
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        serde_json::from_slice(std::mem::take(bytes)).ok()
    }
}

impl Delivery {
    /// Returns a delivery that has not been attempted.
    pub fn new(ledger: u32, now: Moment) -> Self {
        Self { ledger, made: now.due, day: now.day(), ..Self::default() }
    }

    /// Adds an attempt. Only the newest attempts are kept.
    pub fn add(&mut self, attempt: Attempt) {
        if self.attempts.len() >= MAX_RECORDED_ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }

    /// Returns its position in the queue; `None` when it is not to be sent.
    pub fn queued(&self, subscription: u32, number: Number) -> Option<Queued> {
        let (class, due) = match (self.state, self.due) {
            (State::Pending, None) => (Class::First, 0),
            (State::Pending, Some(due)) => (Class::of_request(number), due),
            (State::Retrying, Some(due)) if is_prompt(self.tries) => (Class::Soon, due),
            (State::Retrying, Some(due)) => (Class::Later, due),
            _ => return None,
        };
        Some(Queued { subscription, class, due, number })
    }

    /// Returns its row in `finished`; `None` while it has not ended.
    pub fn finished(&self, subscription: u32, number: Number) -> Option<Finished> {
        let dead = match self.state {
            State::Delivered => false,
            State::Dead => true,
            State::Pending | State::Retrying => return None,
        };
        let day = self.ended_day.unwrap_or(day_of(self.ended?));
        Some(Finished { day, dead, subscription, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_bytes<T: RowCodec + PartialEq + std::fmt::Debug>(value: T, hexadecimal: &str) {
        assert_eq!(hex::encode(value.encode()), hexadecimal, "{value:?}");
        assert_eq!(T::decode(&hex::decode(hexadecimal).unwrap()), Some(value));
    }

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_bytes_are_as_ever() {
        let (event, number) = (EventId(7), Number::of_event(EventId(7)));
        let test = Number::of_test(event, 3).unwrap();
        for (class, byte) in Class::ALL.into_iter().zip(["00", "01", "02", "03"]) {
            let queued = Queued { subscription: 9, class, due: 1 << 40, number };
            assert_bytes(queued, &format!("00000009{byte}00000100000000000000000000070000"));
            let later = Queued { due: (1 << 40) + 1, number: Number::FIRST, ..queued };
            assert!(queued.encode() < later.encode());
            assert_eq!(Queued::decode(&queued.encode()[1..]), None);
        }
        assert_eq!(
            Queued::decode(&hex::decode("000000090400000100000000000000000000070000").unwrap()),
            None
        );
        let finished = Finished { day: 20_000, dead: true, subscription: 258, number };
        assert_bytes(finished, "4e2001000001020000000000070000");
        assert_bytes(payload_key(20_000, 258, number), "4e20650000000000000007");
        assert_bytes(payload_key(20_000, 258, test), "4e2074000001020000000000070003");
        assert_bytes((258u32, number), "000001020000000000070000");
        assert_bytes((Mark::<b's'>, 258u32), "7300000102");
        assert_bytes(Mark::<b'n'>, "6e");
        assert_bytes((Mark::<b'o'>, [1; 32]), &["6f", &"01".repeat(32)].concat());
        assert_bytes((5u64, event), "00000000000000050000000000000007");
        let delivery = Delivery::new(5, Moment { due: 1_700_000_000_000, kept: 7, noted: 8 });
        let row = br#"{"state":"pending","ledger":5,"made":1700000000000,"day":0}"#;
        assert_bytes(delivery, &hex::encode(row));
        assert_eq!(<(u32, Number)>::decode(&[1, 2, 3]), None);
    }

    #[test]
    fn deliveries_round_trip_and_keep_only_the_newest_attempts() {
        let mut delivery = Delivery::new(5, Moment { due: 1_700_000_000_000, kept: 7, noted: 8 });
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
