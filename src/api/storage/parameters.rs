//! Parameters of the list of what a contract holds, and its cursor.

use std::fmt;
use std::str::FromStr;

use stellar_xdr::ScVal;

use super::super::ApiError;
use super::super::page;
use super::super::params::Query;
use super::super::stored::DECODED;
use super::cursor::{CURSOR, NotACursor, cursor};
use super::key;
use super::record::INSTANCE;
use orrery_contract_data::{Durability, Filter, KeyTag, Order, Place, Wanted};
use orrery_ledger::domain::{Direction, LedgerSeq};

/// Names of the parameters of the list.
pub(super) const OF_LIST: [&str; 10] = [
    AT,
    "durability",
    key::NAME,
    key::KEY,
    "archived",
    ORDER_BY,
    "order",
    "limit",
    CURSOR,
    DECODED,
];
/// The ledger at whose end something is looked up.
pub(super) const AT: &str = "at";
/// The parameter with the order.
pub(super) const ORDER_BY: &str = "order_by";

/// What a request wants of a list.
#[derive(Debug)]
pub(super) struct Parameters {
    /// Ledger of `at`.
    at: Option<LedgerSeq>,
    /// What the entries must be.
    filter: Filter,
    /// Whether only the instance's own map is wanted.
    pub is_of_instance: bool,
    /// Whether the instance's own map is wanted, too.
    pub has_instance: bool,
    /// The only key that is wanted.
    pub key: Option<ScVal>,
    order: Order,
    direction: Direction,
    limit: usize,
    cursor: Option<Cursor>,
}

/// The place after which a list goes on, and the ledger of which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub ledger: LedgerSeq,
    order: Order,
    direction: Direction,
    place: Place,
}

const ORDERS: [(&str, Order); 3] =
    [("key_hash", Order::KeyHash), ("updated", Order::Updated), ("live_until", Order::LiveUntil)];
const DIRECTIONS: [(&str, Direction); 2] =
    [("asc", Direction::OldestFirst), ("desc", Direction::NewestFirst)];

impl Parameters {
    pub(super) fn of(query: &Query<'_>) -> Result<Self, ApiError> {
        let durability = query.word(
            "durability",
            &[
                (Durability::Persistent.name(), Some(Durability::Persistent)),
                (Durability::Temporary.name(), Some(Durability::Temporary)),
                (INSTANCE, None),
            ],
        )?;
        let order = query.word(ORDER_BY, &ORDERS)?.unwrap_or(Order::KeyHash);
        let by_default = match order {
            Order::KeyHash => Direction::OldestFirst,
            _ => Direction::NewestFirst,
        };
        let parameters = Self {
            at: at(query)?,
            filter: Filter {
                durability: durability.flatten(),
                name: key::name(query)?,
                archived: query.word("archived", &[("true", true), ("false", false)])?,
                in_vector: false,
                without_instance: true,
            },
            is_of_instance: durability == Some(None),
            has_instance: durability.flatten().is_none(),
            key: key::key(query)?,
            order,
            direction: query.word("order", &DIRECTIONS)?.unwrap_or(by_default),
            limit: page::limit(query)?,
            cursor: cursor(query)?,
        };
        parameters.check_cursor()?;
        Ok(parameters)
    }

    fn check_cursor(&self) -> Result<(), ApiError> {
        let Some(cursor) = self.cursor else { return Ok(()) };
        if (cursor.order, cursor.direction) != (self.order, self.direction) {
            let problem = "is of a list in another order: give 'order_by' and 'order' as they were";
            return Err(ApiError::parameter(CURSOR, problem));
        }
        if self.at.is_some_and(|at| at != cursor.ledger) {
            let problem = format!(
                "continues the list of ledger {}: give no other one in 'at'",
                cursor.ledger
            );
            return Err(ApiError::parameter(CURSOR, problem));
        }
        Ok(())
    }

    /// Returns the cursor, if this is a later page.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// Returns the ledger that is asked for; `None` for the newest one.
    pub fn ledger(&self) -> Option<LedgerSeq> {
        self.cursor.map(|cursor| cursor.ledger).or(self.at)
    }

    /// Returns what is wanted of the entries.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            filter: self.filter.clone(),
            order: self.order,
            direction: self.direction,
            after: self.cursor.map(|cursor| cursor.place),
            limit: self.limit,
        }
    }

    /// Returns the cursor for the list of a ledger that goes on after a place.
    pub fn next(&self, ledger: LedgerSeq, place: Place) -> Cursor {
        Cursor { ledger, order: self.order, direction: self.direction, place }
    }
}

/// Parses `at`.
pub(super) fn at(query: &Query<'_>) -> Result<Option<LedgerSeq>, ApiError> {
    let number = query.number(AT, u64::from(u32::MAX))?;
    Ok(number.map(|number| LedgerSeq(u32::try_from(number).unwrap_or(u32::MAX))))
}

impl fmt::Display for Cursor {
    /// Ledger, order, direction, what the entry is ordered by, and the first bytes of the key's hash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = ORDERS.iter().find(|(_, order)| *order == self.order).map_or("", |it| it.0);
        let direction = if self.direction == Direction::OldestFirst { "asc" } else { "desc" };
        let Place { by, tag } = self.place;
        write!(f, "{}-{order}-{direction}-{by}-{}", self.ledger, hex::encode(tag.0))
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        fn word<T: Copy>(words: &[(&str, T)], text: &str) -> Result<T, NotACursor> {
            words.iter().find(|(word, _)| *word == text).map(|it| it.1).ok_or(NotACursor)
        }
        let parts: Vec<&str> = text.split('-').collect();
        let [ledger, order, direction, by, tag] = parts[..] else { return Err(NotACursor) };
        let mut bytes = [0; KeyTag::LEN];
        hex::decode_to_slice(tag, &mut bytes).map_err(|_| NotACursor)?;
        let cursor = Self {
            ledger: LedgerSeq(ledger.parse().map_err(|_| NotACursor)?),
            order: word(&ORDERS, order)?,
            direction: word(&DIRECTIONS, direction)?,
            place: Place { by: by.parse().map_err(|_| NotACursor)?, tag: KeyTag(bytes) },
        };
        // There is one spelling of each.
        if cursor.to_string() == text { Ok(cursor) } else { Err(NotACursor) }
    }
}
