//! Looks whether the code has become known of contracts whose events may have a name by which a project selects
//! events of any contract.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::index::Flags;
use super::state::ReadTo;
use super::stored::StoredMember;
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_ledger::domain::ContractId;
use orrery_store::RowCodec;

impl Runner {
    /// Looks whether the code has become known that contracts had when they emitted events which may have a name of
    /// the project. These contracts' events are read again. Returns whether there are some.
    pub(crate) fn look_at_names(
        &self,
        entry: &Entry,
        manifest: &Manifest,
    ) -> Result<bool, ProgramError> {
        let Some(project) = manifest.events.as_ref().filter(|it| !it.unnamed.is_empty()) else {
            return Ok(false);
        };
        let Some(mut state) = entry.members.state.try_lock() else { return Ok(false) };
        let generation = self.events.interfaces().generation();
        if !state.is_read || state.named_with == Some(generation) {
            return Ok(false);
        }
        let names = self.events.interfaces().loading_reader()?;
        let mut known: BTreeSet<ContractId> = BTreeSet::new();
        for span in project.unnamed.spans() {
            let is_sure = |at| names.tried_surely(&span.contract, at).1;
            if !known.contains(&span.contract)
                && (is_sure(span.first)
                    || is_sure(span.last)
                    || (span.first < span.last
                        && !span.may_be_joined
                        && !names.is_same_between(&span.contract, span.first, span.last)?))
            {
                known.insert(span.contract);
            }
        }
        names.finish()?;
        if known.is_empty() {
            state.named_with = Some(generation);
            return Ok(false);
        }
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(false);
        }
        let mut manifest = Manifest::clone(&cell.manifest);
        if let Some(project) = &mut manifest.events {
            known.iter().for_each(|contract| project.unnamed.remove(contract));
        }
        let (id, stored) = (entry.id, Arc::clone(&cell.manifest));
        let written = cell.write(&self.store, |changes| {
            for contract in &known {
                let row = storage::member(id, contract);
                let none = StoredMember {
                    flags: Flags::BY_NAME,
                    pending: true,
                    ..StoredMember::default()
                };
                let member = match self.store.shared_row(&row)? {
                    Some(stored) => {
                        let known = StoredMember::decode(&stored).ok_or_else(|| row.damaged())?;
                        StoredMember { pending: true, ..known }
                    }
                    None => none,
                };
                changes.put(&row, member.encode())?;
            }
            manifest.put(changes, Some(&stored))
        });
        if let Err(error) = written {
            (state.is_read, state.in_doubt) = (false, true);
            return Err(error);
        }
        cell.manifest = Arc::new(manifest);
        drop(cell);
        state.pending.extend(known.into_iter().map(|contract| (contract, ReadTo::default())));
        entry.members.set_pending(state.pending.len());
        Ok(true)
    }
}
