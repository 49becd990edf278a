//! The two ids of an event: the row id in this store, and the id that Stellar RPC returns.

use std::fmt;
use std::str::FromStr;

use super::{LedgerSeq, ParseError, excerpt};

/// Row id of an event in this store: consecutive, from 1, in the order of ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventId(pub u64);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Id of an event as `getEvents` of Stellar RPC returns it: the total-order id of SEP-35 (ledger 32
/// bits, transaction 20 bits, operation 12 bits) and the number of the event at that position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcEventId {
    /// Total-order id.
    pub toid: u64,
    /// Number of the event within that position.
    pub index: u32,
}

impl RpcEventId {
    /// Transaction number of events that come after all transactions of a ledger.
    pub const AFTER_ALL_TRANSACTIONS: u32 = (1 << 20) - 1;
    /// Operation number of events that come after all operations of a transaction.
    pub const AFTER_TRANSACTION: u32 = (1 << 12) - 1;

    /// Greatest total-order id that is read: Stellar RPC takes it for a signed number of 64 bits.
    pub const LARGEST_TOID: u64 = i64::MAX as u64;

    /// Composes the id; `transaction` is 1-based and below 2^20, `operation` below 2^12.
    pub fn new(ledger: u32, transaction: u32, operation: u32, index: u32) -> Self {
        let toid = u64::from(ledger) << 32 | u64::from(transaction) << 12 | u64::from(operation);
        Self { toid, index }
    }

    /// Returns the greatest id of a ledger, which is greater than the ids of all its events.
    pub fn end_of(ledger: LedgerSeq) -> Self {
        let (transaction, operation) = (Self::AFTER_ALL_TRANSACTIONS, Self::AFTER_TRANSACTION);
        Self::new(ledger.0, transaction, operation, u32::MAX)
    }

    /// Returns the ledger of the event.
    pub fn ledger(self) -> LedgerSeq {
        LedgerSeq((self.toid >> 32) as u32)
    }

    /// Returns the 1-based position of its transaction; 0 before all transactions,
    /// [`Self::AFTER_ALL_TRANSACTIONS`] after them.
    pub fn transaction(self) -> u32 {
        (self.toid >> 12) as u32 & Self::AFTER_ALL_TRANSACTIONS
    }

    /// Returns the 0-based position of its operation; [`Self::AFTER_TRANSACTION`] after the last
    /// operation.
    pub fn operation(self) -> u32 {
        self.toid as u32 & Self::AFTER_TRANSACTION
    }
}

impl FromStr for RpcEventId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let id = text.split_once('-').filter(|(toid, index)| digits(toid) && digits(index));
        let id = id.and_then(|(toid, index)| {
            Some(Self { toid: toid.parse().ok()?, index: index.parse().ok()? })
        });
        let id = id.filter(|id| id.toid <= Self::LARGEST_TOID);
        id.ok_or_else(|| ParseError(format!("'{}' is not the id of an event", excerpt(text))))
    }
}

impl fmt::Display for RpcEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:019}-{:010}", self.toid, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpc_event_ids_start_with_the_total_order_id() {
        let id = RpcEventId::new(63_092_982, 1, 0, 3);
        assert_eq!(id.to_string(), "0270982294297120768-0000000003");
        assert_eq!(id.toid >> 32, 63_092_982);
    }

    #[test]
    fn ids_of_every_ledger_are_read_as_they_are_written() {
        for ledger in [0, 1, 63_092_982, i32::MAX as u32] {
            for id in [RpcEventId::new(ledger, 1, 0, 3), RpcEventId::end_of(LedgerSeq(ledger))] {
                assert_eq!(id.to_string().parse(), Ok(id), "{id}");
            }
        }
        for text in [
            "9223372036854775808-0",
            "18446744073709551616-0",
            "1-4294967296",
            "-1-0",
            "1",
            "1-",
            "+1-0",
        ] {
            assert!(text.parse::<RpcEventId>().is_err(), "{text}");
        }
    }
}
