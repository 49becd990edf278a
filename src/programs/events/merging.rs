//! Adds events to those that are stored of a transaction, when contracts were registered since.

use std::collections::BTreeSet;

use super::logged::{EventsWriter, LoggedEvents, in_this_form};
use crate::rows::Damaged;

/// Events of a transaction of which some were stored before.
#[derive(Debug)]
pub struct Merged {
    /// Stored form of those that were not.
    pub added: Vec<u8>,
    /// Number of them.
    pub count: u32,
    /// All of them, in stored form.
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
    let new = || EventsWriter::new(&before.transaction, before.closed_at);
    let (mut all, mut added, mut count) = (new(), new(), 0);
    let mut known = BTreeSet::new();
    for event in before.events() {
        let event = event?;
        known.insert(event.index);
        all.push(&event)?;
    }
    for event in read.events() {
        let event = event?;
        if !known.contains(&event.index) {
            all.push(&event)?;
            added.push(&event)?;
            count += 1;
        }
    }
    let (added, encoded) = (added.finish(), all.finish());
    let grown = encoded.len().saturating_sub(stored.len()) as u64;
    Ok((count > 0).then_some(Merged { added, count, encoded, grown }))
}
