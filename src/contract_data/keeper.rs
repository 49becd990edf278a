//! What is kept of the transactions that retention removes: for each key, what the newest of them said.
//! The result does not depend on the order in which ledgers are removed.

use orrery_ledger::domain::{Hash32, LedgerSeq};
use orrery_store::{Keeper, RowsMut, StoreError, TransactionPosition, TransactionRecord};

use super::changes::{DataChange, Kind, data_changes};
use super::rows::{
    CHANGED, CONSUMER, Given, KEPT, Kept, KeyAndEntry, KeyTag, NEVER_GIVEN, NOWHERE,
};
use super::scope::Recorded;

/// Keeps the newest change of each key.
pub const KEEPER: Keeper = Keeper { consumer: CONSUMER, keep };

fn keep(record: &TransactionRecord<'_>, rows: &mut dyn RowsMut) -> Result<(), StoreError> {
    if !record.successful {
        return Ok(());
    }
    let changes = data_changes(record.meta, record.envelope);
    let changes = changes.map_err(|error| error.at(record.position))?;
    let mut recorded = Recorded::load(rows)?;
    for (key_hash, change) in &changes {
        if !recorded.has(rows, &change.key.contract())? {
            continue;
        }
        let key = (change.key.contract(), KeyTag::of(key_hash));
        let known = KEPT.get(rows, &key)?.unwrap_or_else(|| Kept::new(change));
        CHANGED.delete(rows, &(key.0, record.position))?;
        KEPT.put(rows, &key, &known.after(record.position, Hash32(*record.tx), change))?;
    }
    Ok(())
}

impl Kept {
    fn new(change: &DataChange<'_>) -> Self {
        let key = change.key.entry_key().body.to_vec();
        Self {
            written: NOWHERE,
            changed: NOWHERE,
            tx: Hash32([0; 32]),
            ttl: NEVER_GIVEN,
            content: KeyAndEntry { key, entry: Vec::new() },
        }
    }

    /// Returns what is known after a change, which may be older than what is known.
    fn after(self, position: TransactionPosition, tx: Hash32, change: &DataChange<'_>) -> Self {
        let mut kept = self;
        if let Some(written) = change.written
            && position > kept.written
        {
            kept.written = position;
            kept.content.entry = written.after.unwrap_or_default().to_vec();
        }
        let is_update = change.kind(position.ledger).is_some_and(Kind::is_update);
        if is_update && position > kept.changed {
            (kept.changed, kept.tx) = (position, tx);
        }
        if let Some(ttl) = change.ttl {
            let live_until = LedgerSeq(ttl.after.unwrap_or(0));
            kept.ttl = kept.ttl.after(position.ledger, live_until, change.written.is_some());
        }
        kept
    }
}

impl Given {
    /// Returns the time to live after a change that says one. Among those of one ledger, the greatest
    /// since the last write holds (CAP-63); transactions of a ledger are added in apply order.
    pub(crate) fn after(self, ledger: LedgerSeq, live_until: LedgerSeq, is_written: bool) -> Self {
        let is_raised = live_until > self.live_until;
        let is_newer = ledger > self.at || (ledger == self.at && (is_written || is_raised));
        if is_newer { Self { live_until, at: ledger } } else { self }
    }
}
