//! Progress of a consumer, in memory and as a row of the family `consumers`.

use orrery_ledger::domain::{LedgerRange, LedgerSet};

use super::spec::Needs;
use crate::encoding::bytes::{Malformed, Reader, put_varint};

/// Ledgers after its place that a consumer is done with, for a consumer that does not work in the
/// order of ingestion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OutOfOrderProgress {
    /// All ledgers that it has processed.
    pub done: LedgerSet,
    /// Number of ledgers after its place that it has processed or that are lost to it.
    pub ledgers: u64,
}

/// A consumer's state in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Consumer {
    pub needs: Needs,
    /// Build of its rows.
    pub build: u32,
    /// Place in the feed up to which it has processed every ledger.
    pub place: u64,
    pub lost: LedgerSet,
    /// Whether it takes ledgers in this process.
    pub active: bool,
    /// Place up to which its rows have all that the ledgers have, if that is after `place`: there is
    /// more to do with the last of them. In memory only.
    pub taken: u64,
    /// What it has processed after its place. In memory only.
    pub ahead: OutOfOrderProgress,
    /// Whether the state in memory is newer than the row.
    pub dirty: bool,
}

impl Consumer {
    /// Creates the state of a consumer at `place` that has processed nothing itself.
    pub(crate) fn new(needs: Needs, place: u64) -> Self {
        let lost = LedgerSet::default();
        let ahead = OutOfOrderProgress::default();
        Self { needs, build: 0, place, lost, active: false, taken: 0, ahead, dirty: false }
    }

    /// Returns the place up to which its rows have all that the ledgers have.
    pub(crate) fn reached(&self) -> u64 {
        self.place.max(self.taken)
    }

    pub(crate) fn mark_passed(&mut self, place: u64, lost: &LedgerSet) {
        if place > self.place || !lost.is_empty() {
            self.place = self.place.max(place);
            self.lost.insert_all(lost);
            self.dirty = true;
        }
    }

    /// Takes over what was changed in memory while this state was written: `now` is the state in
    /// memory, and `before` what it was when this one was made from it.
    pub(crate) fn keep_newer(&mut self, before: Option<&Self>, now: &Self) {
        self.active = now.active;
        self.ahead = now.ahead.clone();
        let Some(before) = before.filter(|before| before.build == now.build) else { return };
        if self.build != now.build || (before.place, &before.lost) == (now.place, &now.lost) {
            return;
        }
        let mut merged = self.clone();
        let (mut found, mut lost) = (before.lost.clone(), now.lost.clone());
        found.remove_all(&now.lost);
        lost.remove_all(&before.lost);
        merged.lost.remove_all(&found);
        merged.lost.insert_all(&lost);
        merged.place = match (self.place == before.place, now.place == before.place) {
            (true, _) => now.place,
            (false, true) => self.place,
            (false, false) => self.place.max(now.place),
        };
        merged.dirty = (merged.place, &merged.lost) != (self.place, &self.lost);
        *self = merged;
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Needs { raw_ledgers, events, transactions } = self.needs;
        let needs = u8::from(raw_ledgers) | u8::from(events) << 1 | u8::from(transactions) << 2;
        let mut out = vec![needs];
        put_varint(&mut out, u64::from(self.build));
        put_varint(&mut out, self.place);
        for range in self.lost.ranges() {
            out.extend_from_slice(&range.first.0.to_be_bytes());
            out.extend_from_slice(&range.last.0.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let needs = match reader.u8()? {
            bits @ 0..8 => Needs {
                raw_ledgers: bits & 1 != 0,
                events: bits & 2 != 0,
                transactions: bits & 4 != 0,
            },
            _ => return Err(Malformed),
        };
        let build = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let place = reader.varint()?;
        let mut lost = LedgerSet::default();
        while !reader.is_at_end() {
            lost.insert(LedgerRange::new(reader.u32()?, reader.u32()?));
        }
        Ok(Self { build, lost, ..Self::new(needs, place) })
    }
}

/// Checks a row of the family `consumers` and returns its place, for the audit.
pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<u64, Malformed> {
    std::str::from_utf8(key).map_err(|_| Malformed)?;
    Ok(Consumer::decode(value)?.place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_rows_round_trip() {
        let needs = Needs { events: true, raw_ledgers: true, ..Needs::default() };
        let mut consumer = Consumer { build: 3, ..Consumer::new(needs, 1 << 40) };
        assert_eq!(Consumer::decode(&consumer.encode()), Ok(consumer.clone()));
        consumer.lost = [LedgerRange::new(2, 9), LedgerRange::new(11, 11)].into_iter().collect();
        assert_eq!(Consumer::decode(&consumer.encode()), Ok(consumer.clone()));
        let bytes = consumer.encode();
        assert_eq!(Consumer::decode(&bytes[..bytes.len() - 1]), Err(Malformed));
        assert_eq!(Consumer::decode(&[8, 0, 0]), Err(Malformed));
    }
}
