//! Adds events, and changes of contract data, to those that are stored of a transaction, when contracts were
//! registered since.

use std::collections::BTreeSet;

use super::data_log::{ChangesWriter, LoggedChange, LoggedChanges};
use super::logged::{EventsWriter, LoggedEvents, in_this_form};
use crate::rows::Damaged;

/// Events of a transaction of which some were stored before.
#[derive(Debug)]
pub struct Merged {
    /// Stored form of those events that were not.
    pub added: Vec<u8>,
    /// Number of them, and of such changes.
    pub count: u32,
    /// All, in stored form.
    pub encoded: Vec<u8>,
    /// Number of bytes by which that is longer than what was stored.
    pub grown: u64,
}

/// Returns the events of a transaction together with those that are stored; `None` when all are. Takes
/// both in stored form.
///
/// # Errors
/// When a stored or a new event is damaged.
pub fn merged(stored: &[u8], read: &[u8]) -> Result<Option<Merged>, Damaged> {
    let before = in_this_form(stored)?;
    let (before, read) = (LoggedEvents::read(&before)?, LoggedEvents::read(read)?);
    let (changes, mut count, mut is_more) = changes(before.changes, read.changes)?;
    let (transaction, closed_at) = (&before.transaction, before.closed_at);
    let mut all = EventsWriter::with_changes(transaction, closed_at, &changes)?;
    let mut added = EventsWriter::new(transaction, closed_at);
    // Of an event that is stored apart it may be known now that it belongs to the project.
    let mut selected = BTreeSet::new();
    for event in read.events() {
        selected.insert(event?.index);
    }
    let mut known = BTreeSet::new();
    for event in before.all_events() {
        let event = event?;
        if !(event.is_apart && selected.contains(&event.index)) {
            known.insert(event.index);
            all.push(&event)?;
        }
    }
    for event in read.all_events() {
        let event = event?;
        if !known.contains(&event.index) {
            all.push(&event)?;
            added.push(&event)?;
            count += u32::from(!event.is_apart);
            is_more = true;
        }
    }
    let (added, encoded) = (added.finish(), all.finish());
    let grown = encoded.len().saturating_sub(stored.len()) as u64;
    Ok((count > 0 || is_more).then_some(Merged { added, count, encoded, grown }))
}

/// Returns the changes of both, ordered by the hashes of the keys, the number of the rows that were not stored,
/// and whether anything was not.
fn changes(
    before: LoggedChanges<'_>,
    read: LoggedChanges<'_>,
) -> Result<(ChangesWriter, u32, bool), Damaged> {
    let key = |change: &LoggedChange<'_>| (change.key_hash, change.contract);
    let mut selected = BTreeSet::new();
    for change in read.rows() {
        selected.insert(key(&change?));
    }
    let mut all: Vec<_> = before.iter().collect::<Result<_, _>>()?;
    // Of a change that is stored apart it may be known now that it belongs to the project.
    all.retain(|change| !(change.is_apart && selected.contains(&key(change))));
    let known: BTreeSet<_> = all.iter().map(key).collect();
    let (mut count, mut is_more) = (0, false);
    for change in read.iter() {
        let change = change?;
        if !known.contains(&key(&change)) {
            count += u32::from(!change.is_apart);
            is_more = true;
            all.push(change);
        }
    }
    all.sort_by_key(key);
    let mut writer = ChangesWriter::default();
    all.iter().try_for_each(|change| writer.push(change))?;
    Ok((writer, count, is_more))
}
