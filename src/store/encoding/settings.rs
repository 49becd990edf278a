//! Rows of `settings` and `conditions`: what governs calls of contracts on the state after a ledger.
//! Only raw ledgers have it otherwise, and these are removed; the rows stay.
//!
//! A row of `settings` is a byte that says what it is, the length of the entry before and its bytes, and
//! the entry after, empty when it is gone. A row of `conditions` is the base reserve, and the size of
//! the state if the ledger says it.

use orrery_ledger::decode::{Conditions, SettingBefore, SettingChange};

use super::bytes::{Malformed, Reader, put_varint};

/// What the first byte of a row of `settings` says.
const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const ENTRY: u8 = 2;
/// Added when the setting was found in the state after the ledger, which did not change it.
const FOUND: u8 = 4;

/// What governs calls on the state after a ledger, besides the network's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerConditions {
    /// Unit of the minimum balance of accounts, in stroops.
    pub base_reserve: u32,
    /// Size of all live contract data and code, in bytes; `None` before protocol 20.
    pub state_size: Option<u64>,
}

impl LedgerConditions {
    pub(crate) fn of(conditions: &Conditions<'_>) -> Self {
        let Conditions { base_reserve, state_size, .. } = *conditions;
        Self { base_reserve, state_size }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = self.base_reserve.to_be_bytes().to_vec();
        row.extend(self.state_size.into_iter().flat_map(u64::to_be_bytes));
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(row);
        let base_reserve = reader.u32()?;
        let state_size = if reader.is_at_end() { None } else { Some(reader.u64()?) };
        reader.end()?;
        Ok(Self { base_reserve, state_size })
    }
}

/// A row of `settings`. Entries are XDR `LedgerEntry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettingRow<'a> {
    pub before: SettingBefore<'a>,
    /// `None` when the setting is gone.
    pub after: Option<&'a [u8]>,
    /// Whether the setting was found in the state after the ledger, which did not change it.
    pub is_found: bool,
}

impl<'a> SettingRow<'a> {
    pub(crate) fn of(change: &SettingChange<'a>) -> Self {
        Self { before: change.before, after: change.after, is_found: false }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, before) = match self.before {
            SettingBefore::Unknown => (UNKNOWN, &[][..]),
            SettingBefore::Absent => (ABSENT, &[][..]),
            SettingBefore::Entry(entry) => (ENTRY, entry),
        };
        let mut row = vec![kind | if self.is_found { FOUND } else { 0 }];
        put_varint(&mut row, before.len() as u64);
        row.extend_from_slice(before);
        row.extend_from_slice(self.after.unwrap_or_default());
        row
    }

    pub(crate) fn decode(row: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(row);
        let kind = reader.u8()?;
        let length = reader.len()?;
        let entry = reader.take(length)?;
        let before = match kind & !FOUND {
            UNKNOWN if entry.is_empty() => SettingBefore::Unknown,
            ABSENT if entry.is_empty() => SettingBefore::Absent,
            ENTRY if !entry.is_empty() => SettingBefore::Entry(entry),
            _ => return Err(Malformed),
        };
        let after = Some(reader.rest()).filter(|entry| !entry.is_empty());
        Ok(Self { before, after, is_found: kind & FOUND != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        for state_size in [None, Some(0), Some(u64::MAX)] {
            let conditions = LedgerConditions { base_reserve: 5_000_000, state_size };
            let row = conditions.encode();
            assert_eq!(LedgerConditions::decode(&row), Ok(conditions));
            assert_eq!(LedgerConditions::decode(&row[..3]), Err(Malformed));
        }
        let befores =
            [SettingBefore::Unknown, SettingBefore::Absent, SettingBefore::Entry(&[7; 300])];
        for before in befores {
            for (after, is_found) in [(None, false), (Some(&[8; 9][..]), true)] {
                let row = SettingRow { before, after, is_found };
                assert_eq!(SettingRow::decode(&row.encode()), Ok(row));
            }
        }
        assert_eq!(SettingRow::decode(&[ABSENT, 1, 0]), Err(Malformed));
        assert_eq!(SettingRow::decode(&[ENTRY, 2, 0]), Err(Malformed));
    }
}
