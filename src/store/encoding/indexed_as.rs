//! Settings under which ledgers were indexed, in three bits: digests can be compared where these
//! are equal. Records whether events were restricted to listed contracts, not to which.

use super::bytes::Malformed;

/// Settings under which a ledger was indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexedAs {
    /// Whether events of classic operations were stored.
    pub classic_events: bool,
    /// Whether fee events were stored.
    pub fee_events: bool,
    /// Whether events and transactions were restricted to a list of contracts.
    pub listed_contracts: bool,
}

impl IndexedAs {
    const COMBINATIONS: u8 = 8;

    pub(crate) fn encode(self) -> u8 {
        u8::from(self.classic_events)
            | u8::from(self.fee_events) << 1
            | u8::from(self.listed_contracts) << 2
    }

    pub(crate) fn decode(byte: u8) -> Result<Self, Malformed> {
        if byte >= Self::COMBINATIONS {
            return Err(Malformed);
        }
        Ok(Self {
            classic_events: byte & 1 != 0,
            fee_events: byte & 2 != 0,
            listed_contracts: byte & 4 != 0,
        })
    }
}

/// Set of the settings that occur among some ledgers: one bit per combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settings(pub u8);

impl From<IndexedAs> for Settings {
    fn from(one: IndexedAs) -> Self {
        Self(1 << one.encode())
    }
}

impl Settings {
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether some ledgers were restricted to listed contracts; their codes are the upper
    /// half.
    pub(crate) fn has_listed_contracts(self) -> bool {
        let listed = IndexedAs { listed_contracts: true, ..IndexedAs::default() };
        self.0 >> listed.encode() != 0
    }

    pub(crate) fn list(self) -> Vec<IndexedAs> {
        let codes = (0..IndexedAs::COMBINATIONS).filter(|code| self.0 & 1 << code != 0);
        codes.filter_map(|code| IndexedAs::decode(code).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_round_trips_and_can_be_united() {
        let all: Vec<_> = (0..8).map(|code| IndexedAs::decode(code).unwrap()).collect();
        assert!(all.iter().enumerate().all(|(code, one)| usize::from(one.encode()) == code));
        assert_eq!(IndexedAs::decode(8), Err(Malformed));
        let some = [all[5], all[0], all[5]].map(Settings::from);
        let union = some.into_iter().fold(Settings::default(), Settings::union);
        assert_eq!(union.list(), [all[0], all[5]]);
        for one in &all {
            assert_eq!(Settings::from(*one).has_listed_contracts(), one.listed_contracts);
        }
    }
}
