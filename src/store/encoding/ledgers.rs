//! Row that is kept for every ledger permanently: its hashes, counts and digest.

use orrery_ledger::domain::{CloseTime, Digest, EventId, LedgerHash};

use super::bytes::{Malformed, Reader, put_varint};
use super::indexed_as::IndexedAs;

/// Value of the family `ledgers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// Hash of the ledger.
    pub hash: LedgerHash,
    /// Hash of the previous ledger.
    pub previous_hash: LedgerHash,
    /// When the ledger closed.
    pub close_time: CloseTime,
    /// Protocol version after the ledger's upgrades.
    pub protocol: u32,
    /// Id of its first event; when it has none, the id that the next stored event gets.
    pub first_event: EventId,
    /// Counts of what the ledger held and of what was stored of it.
    pub counts: LedgerCounts,
    /// Settings under which it was indexed.
    pub indexed_as: IndexedAs,
    /// Digest of what was stored. Not changed when the events are pruned.
    pub digest: Digest,
}

/// Counts of one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerCounts {
    /// All transactions, stored or not.
    pub transactions: u32,
    /// Failed transactions.
    pub failed: u32,
    /// Smart-contract transactions, stored or not.
    pub smart_contract: u32,
    /// Smart-contract transactions that were stored.
    pub stored_transactions: u32,
    /// Stored events of smart-contract transactions' operations.
    pub contract_events: u32,
    /// Stored events of classic transactions' operations.
    pub classic_events: u32,
    /// Stored fee events.
    pub fee_events: u32,
}

impl LedgerCounts {
    /// Returns the number of all events that were stored, pruned ones included.
    pub fn events(&self) -> u64 {
        u64::from(self.contract_events)
            + u64::from(self.classic_events)
            + u64::from(self.fee_events)
    }

    fn all(&mut self) -> [&mut u32; 7] {
        [
            &mut self.transactions,
            &mut self.failed,
            &mut self.smart_contract,
            &mut self.stored_transactions,
            &mut self.contract_events,
            &mut self.classic_events,
            &mut self.fee_events,
        ]
    }
}

impl LedgerRow {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.extend_from_slice(self.hash.as_bytes());
        out.extend_from_slice(self.previous_hash.as_bytes());
        put_varint(&mut out, self.close_time.seconds());
        put_varint(&mut out, u64::from(self.protocol));
        put_varint(&mut out, self.first_event.0);
        for count in self.counts.clone().all() {
            put_varint(&mut out, u64::from(*count));
        }
        out.push(self.indexed_as.encode());
        out.extend_from_slice(&self.digest.to_bytes());
        if let Some(milliseconds) = self.close_time.milliseconds() {
            out.extend_from_slice(&((milliseconds % 1000) as u16).to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let hash = LedgerHash::from(*reader.array()?);
        let previous_hash = LedgerHash::from(*reader.array()?);
        let seconds = reader.varint()?;
        let protocol = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let first_event = EventId(reader.varint()?);
        let mut counts = LedgerCounts::default();
        for count in counts.all() {
            *count = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        }
        let indexed_as = IndexedAs::decode(reader.u8()?)?;
        let digest = Digest::from(*reader.array()?);
        let close_time = match reader.is_at_end() {
            true => CloseTime::Seconds(seconds),
            false => in_milliseconds(seconds, u16::from_be_bytes(*reader.array()?))?,
        };
        reader.end()?;
        Ok(Self {
            hash,
            previous_hash,
            close_time,
            protocol,
            first_event,
            counts,
            indexed_as,
            digest,
        })
    }
}

/// Returns the close time from whole seconds and the milliseconds within the second.
fn in_milliseconds(seconds: u64, milliseconds: u16) -> Result<CloseTime, Malformed> {
    let whole = seconds.checked_mul(1000).filter(|_| milliseconds < 1000).ok_or(Malformed)?;
    let time = whole.checked_add(u64::from(milliseconds)).ok_or(Malformed)?;
    Ok(CloseTime::Milliseconds(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> LedgerRow {
        LedgerRow {
            hash: LedgerHash::from([1; 32]),
            previous_hash: LedgerHash::from([2; 32]),
            close_time: CloseTime::Seconds(1_750_000_000),
            protocol: 26,
            first_event: EventId(12_345_678),
            counts: LedgerCounts {
                transactions: 300,
                failed: 1,
                smart_contract: 2,
                stored_transactions: 7,
                contract_events: 3,
                classic_events: 4,
                fee_events: 5,
            },
            indexed_as: IndexedAs { fee_events: true, ..IndexedAs::default() },
            digest: Digest::from([3; 32]),
        }
    }

    #[test]
    fn ledger_rows_round_trip() {
        let row = row();
        assert_eq!(LedgerRow::decode(&row.encode()), Ok(row.clone()));
        assert_eq!(LedgerRow::decode(&row.encode()[..70]), Err(Malformed));
        assert_eq!(row.counts.events(), 12);
    }

    #[test]
    fn close_times_in_milliseconds_round_trip() {
        let row = |close_time| LedgerRow { close_time, ..row() };
        let plain = row(CloseTime::Seconds(1_750_000_000));
        for time in [0, 999, 1_750_000_000_000, 1_750_000_000_123, u64::MAX] {
            let row = row(CloseTime::Milliseconds(time));
            assert_eq!(LedgerRow::decode(&row.encode()), Ok(row));
        }
        let mut malformed = plain.encode();
        malformed.extend(1000u16.to_be_bytes());
        assert_eq!(LedgerRow::decode(&malformed), Err(Malformed));
        malformed.truncate(malformed.len() - 1);
        assert_eq!(LedgerRow::decode(&malformed), Err(Malformed));
        let latest = row(CloseTime::Seconds(u64::MAX));
        assert_eq!(LedgerRow::decode(&[latest.encode(), vec![0, 0]].concat()), Err(Malformed));
    }
}
