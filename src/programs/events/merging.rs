//! Adds events to those that are stored of a transaction, when contracts were registered since.

use std::collections::BTreeSet;

use super::raw::RawEvent;
use crate::ProgramError;
use crate::rows::RunRows;

/// Events of a transaction of which some were stored before.
#[derive(Debug)]
pub struct Merged {
    /// Those that were not.
    pub added: RunRows,
    /// All of them, in stored form.
    pub encoded: Vec<u8>,
    /// Number of bytes by which that is longer than what was stored.
    pub grown: u64,
}

/// Returns the events of a transaction together with those that are stored; `None` when all are.
///
/// # Errors
/// When a stored or a new event is damaged.
pub fn merged(stored: &[u8], read: &RunRows) -> Result<Option<Merged>, ProgramError> {
    const DAMAGED: ProgramError = ProgramError::Damaged("the events of a transaction");
    let mut all = RunRows::decode(stored).map_err(|_| DAMAGED)?;
    let index = |emit| RawEvent::from_emit(emit).map(|event| event.index).ok_or(DAMAGED);
    let known: BTreeSet<u32> = all.emits.iter().map(index).collect::<Result<_, _>>()?;
    let mut added = RunRows { emits: Vec::new(), ..read.clone() };
    for emit in &read.emits {
        if !known.contains(&index(emit)?) {
            added.emits.push(emit.clone());
        }
    }
    if added.emits.is_empty() {
        return Ok(None);
    }
    all.emits.extend(added.emits.iter().cloned());
    let encoded = all.encode().map_err(|_| DAMAGED)?;
    let grown = encoded.len().saturating_sub(stored.len()) as u64;
    Ok(Some(Merged { added, encoded, grown }))
}
