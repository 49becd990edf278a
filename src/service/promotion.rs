//! Makes a reader a writer, and says from which ledger on its webhooks deliver.

use super::{Node, Reader, ServiceError};
use crate::domain::{LedgerRange, LedgerSeq, LedgerSet};
use crate::webhooks;

/// What a promotion has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promoted {
    /// From where the data directory was restored.
    pub reader: Reader,
    /// First ledger whose events webhooks deliver.
    pub webhooks_from: LedgerSeq,
    /// Newest ledger whose deliveries the snapshot knew; `None` when it knew none.
    pub webhooks_known: Option<LedgerSeq>,
    /// Stored ledgers that lie between: webhooks deliver none of their events, unless they are replayed.
    pub passed_over: LedgerSet,
}

/// Makes the reader in `node` a writer: webhooks deliver the events of ledgers from `webhooks_from` on, by
/// default of those that are stored later. The change is on disk when this returns, and counts from the next
/// start of a service on.
///
/// # Errors
/// When the data directory is no reader, `webhooks_from` is a ledger whose deliveries the snapshot knew or
/// beyond what is stored, or something cannot be written.
pub fn promote(node: &Node, webhooks_from: Option<LedgerSeq>) -> Result<Promoted, ServiceError> {
    let store = node.store();
    let Some(reader) = node.reader().cloned() else {
        return Err(ServiceError::Other(format!(
            "{} is not a reader: it was not restored from a snapshot, or has been promoted before",
            store.directory().display()
        )));
    };
    let place = store.cursor(webhooks::CONSUMER)?.unwrap_or_default();
    let unknown = store.ledgers_after(place);
    let webhooks_known = known_before(node, &unknown);
    let next = store
        .status()
        .latest()
        .map_or(LedgerSeq::FIRST, |latest| LedgerSeq(latest.0.saturating_add(1)));
    let from = webhooks_from.unwrap_or(next);
    refuse_outside(from, webhooks_known, next)?;
    let mut passed_over = unknown;
    // Of a promotion that was interrupted, or what retention has removed.
    let lost = store.lost_after(webhooks::CONSUMER, place);
    passed_over.remove(LedgerRange { first: from, last: LedgerSeq(u32::MAX) });
    passed_over.insert_all(&lost);
    // The consumer stays where it is, and skips what is lost to it.
    store.mark_passed(webhooks::CONSUMER, place, &passed_over);
    store.write_cursors()?;
    store.flush()?;
    Reader::end(store.directory())?;
    Ok(Promoted { reader, webhooks_from: from, webhooks_known, passed_over })
}

/// Returns the newest stored ledger that is none of the `unknown` ones.
fn known_before(node: &Node, unknown: &LedgerSet) -> Option<LedgerSeq> {
    let mut known: LedgerSet = node.store().status().ranges.iter().copied().collect();
    known.remove_all(unknown);
    known.ranges().last().map(|range| range.last)
}

fn refuse_outside(
    from: LedgerSeq,
    known: Option<LedgerSeq>,
    next: LedgerSeq,
) -> Result<(), ServiceError> {
    if known.is_some_and(|known| from <= known) && from != next {
        let known = known.unwrap_or_default();
        return Err(ServiceError::Other(format!(
            "the snapshot knew the deliveries of ledgers up to {known}, and webhooks would send those from \
             {from} on again: give a ledger after {known}, and let `replay` send what is to be sent again"
        )));
    }
    if from > next {
        return Err(ServiceError::Other(format!(
            "ledger {from} is beyond what is stored: give {next} at the most, from which webhooks go on \
             without --webhooks-from"
        )));
    }
    Ok(())
}
