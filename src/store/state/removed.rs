//! Which ledgers retention has removed records of, in memory and as rows of the database.
//!
//! Each kind of records has a set of its own, which changes in the write that removes the records: a
//! ledger is in the set from the write that removes the first of them. A ledger that is stored later
//! is not, however old it is. A ledger that never had records of a kind may be in its set, so that
//! the set has few ranges.

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};

use super::consumers::spec::Needs;
use super::totals::{TOTALS_ROW, Totals};
use crate::db::database::{Batch, Database};
use crate::db::snapshot::Snapshot;
use crate::encoding::bytes::{Malformed, Reader};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

/// Ledgers whose records are no longer stored, by kind of records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Ledgers without their raw form, which was removed or was not kept in the first place.
    pub raw_ledgers: LedgerSet,
    /// Ledgers without some or all of their events.
    pub events: LedgerSet,
    /// Ledgers without some or all of their smart-contract transactions.
    pub transactions: LedgerSet,
}

/// Kinds of records.
const KINDS: [Needs; 3] = [Needs::RAW_LEDGERS, Needs::EVENTS, Needs::TRANSACTIONS];

impl Removed {
    /// Returns the ledgers without something that is in `needs`.
    pub fn of(&self, needs: Needs) -> LedgerSet {
        let Self { raw_ledgers, events, transactions } = self;
        let kinds = [
            (needs.raw_ledgers, raw_ledgers),
            (needs.events, events),
            (needs.transactions, transactions),
        ];
        let mut sets = kinds.into_iter().filter(|(needed, _)| *needed).map(|(_, set)| set);
        let mut all = sets.next().cloned().unwrap_or_default();
        sets.for_each(|set| all.insert_all(set));
        all
    }

    /// Reads the sets of all kinds. A directory that has only floors, below which records were
    /// removed, gets all ledgers below them.
    pub(crate) fn load(database: &Database) -> Result<Self, StoreError> {
        let read =
            |needs| read(needs, |key| Ok(database.get(Family::Meta, key)?.map(|it| it.to_vec())));
        let [raw_ledgers, events, transactions] = KINDS.map(read);
        let mut removed =
            Self { raw_ledgers: raw_ledgers?, events: events?, transactions: transactions? };
        if let Some((events, transactions)) = old_floors(database)? {
            removed.events.insert(ledgers_below(events));
            removed.transactions.insert(ledgers_below(transactions));
        }
        Ok(removed)
    }

    /// Puts the rows of the sets that differ from those of `before`.
    pub(crate) fn put_changes(
        &self,
        before: &Self,
        batch: &mut Batch<'_>,
    ) -> Result<(), StoreError> {
        for needs in KINDS {
            let (set, before) = (self.kind(needs), before.kind(needs));
            if set != before {
                batch.put_raw(Family::Meta, row(needs), &encode(set))?;
            }
        }
        Ok(())
    }

    fn kind(&self, needs: Needs) -> &LedgerSet {
        match needs {
            Needs { raw_ledgers: true, .. } => &self.raw_ledgers,
            Needs { events: true, .. } => &self.events,
            _ => &self.transactions,
        }
    }
}

/// Returns the ledgers of which something in `needs` was no longer stored when the snapshot was
/// taken.
pub(crate) fn removed_at(snapshot: &Snapshot<'_>, needs: Needs) -> Result<LedgerSet, StoreError> {
    read(needs, |key| Ok(snapshot.get(Family::Meta, key)?.map(|bytes| bytes.to_vec())))
}

/// Reads the rows of the kinds in `needs`.
fn read(
    needs: Needs,
    get: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<LedgerSet, StoreError> {
    let mut removed = LedgerSet::default();
    for kind in KINDS.into_iter().filter(|kind| needs.includes(*kind)) {
        let key = row(kind);
        if let Some(bytes) = get(key)? {
            removed.insert_all(&decode(&bytes).map_err(corrupt(Family::Meta, key))?);
        }
    }
    Ok(removed)
}

/// Returns the first ledgers whose events and transactions are stored, for a directory that has only
/// these.
pub(crate) fn old_floors(
    database: &Database,
) -> Result<Option<(LedgerSeq, LedgerSeq)>, StoreError> {
    let Some(bytes) = database.get(Family::Meta, TOTALS_ROW)? else { return Ok(None) };
    Totals::old_floors(&bytes).map_err(corrupt(Family::Meta, TOTALS_ROW))
}

/// Returns whether this is the key of a set, for the audit.
pub(crate) fn is_row(key: &[u8]) -> bool {
    KINDS.into_iter().any(|kind| row(kind) == key)
}

/// Returns the range of all ledgers below `floor`.
pub(crate) fn ledgers_below(floor: LedgerSeq) -> LedgerRange {
    match floor.previous() {
        Some(last) => LedgerRange { first: LedgerSeq(0), last },
        None => LedgerRange::new(1, 0),
    }
}

/// Key of the row of one kind.
fn row(kind: Needs) -> &'static [u8] {
    match kind {
        Needs { raw_ledgers: true, .. } => b"removed_raw_ledgers",
        Needs { events: true, .. } => b"removed_events",
        _ => b"removed_transactions",
    }
}

/// Encodes a set for a row of `meta`.
pub(crate) fn encode(set: &LedgerSet) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 * set.ranges().len());
    for range in set.ranges() {
        out.extend_from_slice(&range.first.0.to_be_bytes());
        out.extend_from_slice(&range.last.0.to_be_bytes());
    }
    out
}

/// Decodes a set.
pub(crate) fn decode(bytes: &[u8]) -> Result<LedgerSet, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut set = LedgerSet::default();
    while !reader.is_at_end() {
        set.insert(LedgerRange::new(reader.u32()?, reader.u32()?));
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let none = LedgerSet::default();
        assert_eq!(decode(&encode(&none)), Ok(none));
        let set: LedgerSet =
            [LedgerRange::new(0, 9), LedgerRange::new(11, u32::MAX)].into_iter().collect();
        assert_eq!(decode(&encode(&set)), Ok(set.clone()));
        assert_eq!(decode(&encode(&set)[..9]), Err(Malformed));
    }

    #[test]
    fn needs_of_several_kinds_are_united() {
        let of = |ledger| LedgerSet::from(LedgerRange::new(ledger, ledger));
        let removed = Removed { raw_ledgers: of(1), events: of(3), transactions: of(5) };
        let needs = |raw_ledgers, events, transactions| {
            let needs = Needs { raw_ledgers, events, transactions };
            removed.of(needs).ranges().iter().map(|range| range.first.0).collect::<Vec<_>>()
        };
        assert!(needs(false, false, false).is_empty());
        assert_eq!(needs(false, true, false), [3]);
        assert_eq!(needs(true, false, true), [1, 5]);
        assert_eq!(needs(true, true, true), [1, 3, 5]);
    }
}
