//! Looks whether the code has become known of contracts whose events may have a name by which a project selects
//! events of any contract. These contracts' events are read again, by the index of events by contract.
//!
//! What became known shows at the ends of the spans in which it was not, or, where there are so many that some were
//! joined, by reading all again: as often as more is known, in a small part of the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::index::Flags;
use super::name_looks::{NameWalk, OfJoined};
use super::state::{MemberState, ReadTo};
use super::stored::StoredMember;
use crate::events::looking::Found;
use crate::events::pause::{LOOK_AGAIN, pause_after};
use crate::events::put_unnamed;
use crate::events::spans::Spans;
use crate::manifest::Manifest;
use crate::registry::Entry;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::InterfaceReader;
use orrery_ledger::domain::{ContractId, ProgramId};
use orrery_store::{KindChanges, RowCodec, StoreError};

/// Maximum number of members whose earlier events have yet to be read with which further contracts have theirs read
/// again: those that are, are in memory.
///
/// Few in unit tests, so that looks wait for it.
const MOST_PENDING: usize = if cfg!(test) { 2 } else { 1_024 };

/// Time after which it is looked again whether there are fewer: they are read in turns between the looks.
const NEXT_TURN: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_millis(10) };

/// Contracts that are to be read again.
#[derive(Default)]
struct Again {
    /// Those of which something has become known.
    known: BTreeSet<ContractId>,
    /// Those of which something may have.
    joined: BTreeSet<ContractId>,
}

impl Runner {
    /// Looks whether the code has become known that contracts had when they emitted events which may have a name of
    /// the project, for about `time`. These contracts' events are read again in later turns.
    pub(crate) fn look_at_names(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        time: Duration,
    ) -> Result<Found, ProgramError> {
        let project = manifest.events.as_ref().filter(|it| !it.selectors.all.is_empty());
        let Some(project) = project else { return Ok(Found::Nothing) };
        let Some(mut state) = entry.members.state.try_lock() else {
            return Ok(Found::NothingSoFar(LOOK_AGAIN));
        };
        if !state.is_read {
            return Ok(Found::Nothing);
        }
        if !project.unnamed.is_empty() || project.has_more_unnamed {
            self.take_earlier_names(entry)?;
        }
        if entry.members.take_late_names() {
            state.names.forget();
        }
        let (begun, generation) = (Instant::now(), self.events.interfaces().generation());
        let begins = begin_names(&mut state, manifest, (begun, generation));
        let (mut walk, most) = match begins {
            Ok(walk) => walk,
            Err(found) => return Ok(found),
        };
        let (again, is_over) = self.walk_names(entry.id, &mut walk, (most, begun + time))?;
        let looks = &mut state.names;
        if is_over {
            looks.end(walk);
        } else {
            looks.walk = Some(walk);
        }
        looks.last = Some((Instant::now(), begun.elapsed()));
        let wait = pause_after(looks.last, Instant::now());
        if !again.known.is_empty() || !again.joined.is_empty() {
            let stored = self.read_names_again(entry, &mut state, again);
            if stored.is_err() {
                state.names.forget();
            }
            return stored.map(|()| Found::More);
        }
        Ok(match is_over && walk.generation == generation && !walk.has_passed {
            true => Found::Nothing,
            // More may have been stored since the walk began.
            false => Found::NothingSoFar(wait),
        })
    }

    /// Walks over further contracts, until a time, or until so many are to be read again. Returns these, and whether
    /// there are no others.
    fn walk_names(
        &self,
        program: ProgramId,
        walk: &mut NameWalk,
        (most, until): (usize, Instant),
    ) -> Result<(Again, bool), ProgramError> {
        let names = self.events.interfaces().loading_reader()?;
        let (mut again, mut is_over) = (Again::default(), true);
        storage::unnamed_after(&self.store, program, walk.at, |contract, row| {
            let damaged = || storage::unnamed(program, &contract).damaged();
            let spans = Spans::decode(row).ok_or_else(damaged)?;
            if is_known_at_ends(&names, &contract, &spans)? {
                again.known.insert(contract);
            } else if spans.may_be_joined() {
                match walk.of_joined {
                    OfJoined::Read => {
                        again.joined.insert(contract);
                    }
                    OfJoined::PassOver => walk.has_passed = true,
                    OfJoined::AreRead => {}
                }
            }
            walk.at = Some(contract);
            let count = again.known.len() + again.joined.len();
            is_over = count < most && Instant::now() < until;
            Ok(storage::more_if(is_over))
        })?;
        names.finish()?;
        Ok((again, is_over))
    }

    /// Stores that contracts' events are to be read again: what is not known of them then is noted anew.
    fn read_names_again(
        &self,
        entry: &Entry,
        state: &mut MemberState,
        again: Again,
    ) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(());
        }
        let contracts = || again.known.iter().chain(&again.joined);
        let written = cell.write(&self.store, |changes| {
            contracts().try_for_each(|contract| self.put_pending(changes, entry.id, contract))
        });
        drop(cell);
        if let Err(error) = written {
            (state.is_read, state.in_doubt) = (false, true);
            return Err(error);
        }
        state.pending.extend(contracts().map(|contract| (*contract, ReadTo::default())));
        entry.members.set_pending(state.pending.len());
        state.names.begin_reading(again.joined);
        Ok(())
    }

    fn put_pending(
        &self,
        changes: &mut KindChanges<'_>,
        program: ProgramId,
        contract: &ContractId,
    ) -> Result<(), StoreError> {
        let row = storage::member(program, contract);
        let stored = match self.store.shared_row(&row)? {
            Some(stored) => StoredMember::decode(&stored).ok_or_else(|| row.damaged())?,
            None => StoredMember { flags: Flags::BY_NAME, ..StoredMember::default() },
        };
        changes.put(&row, StoredMember { pending: true, ..stored }.encode())?;
        changes.delete(&storage::unnamed(program, contract))
    }

    /// Stores what an earlier version had in the manifest. It has passed over contracts beyond some thousands: where
    /// there were such, the next start reads all events again.
    fn take_earlier_names(&self, entry: &Entry) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        let mut manifest = Manifest::clone(&cell.manifest);
        let Some(project) = manifest.events.as_mut().filter(|_| !cell.deleted) else {
            return Ok(());
        };
        let unnamed = std::mem::take(&mut project.unnamed).into_listed();
        if std::mem::take(&mut project.has_more_unnamed) {
            project.backfilled = 0;
        }
        let unnamed = self.events.unnamed_rows(entry.id, [&unnamed])?;
        let stored = Arc::clone(&cell.manifest);
        cell.write(&self.store, |changes| {
            put_unnamed(changes, entry.id, &unnamed)?;
            manifest.put(changes, Some(&stored))
        })?;
        cell.manifest = Arc::new(manifest);
        Ok(())
    }
}

/// Returns the walk that is in progress or begins now, and how many contracts may be read again; what comes of the
/// look where there is none.
fn begin_names(
    state: &mut MemberState,
    manifest: &Manifest,
    (begun, generation): (Instant, u64),
) -> Result<(NameWalk, usize), Found> {
    let MemberState { names: looks, pending, .. } = state;
    looks.keep_reading(|contract| pending.contains_key(contract));
    let pause = pause_after(looks.last, begun);
    if !pause.is_zero() {
        return Err(Found::NothingSoFar(pause));
    }
    if pending.len() >= MOST_PENDING {
        // One that is paused reads nothing.
        return Err(Found::NothingSoFar(if manifest.running { NEXT_TURN } else { LOOK_AGAIN }));
    }
    let walk = looks.begin(generation, begun);
    let walk = walk.map_err(|wait| wait.map_or(Found::Nothing, Found::NothingSoFar))?;
    Ok((walk, MOST_PENDING - pending.len()))
}

/// Whether the code has become known that a contract had at the end of a span. Within a span that was not joined, all
/// becomes known at once.
fn is_known_at_ends(
    names: &InterfaceReader<'_>,
    contract: &ContractId,
    spans: &Spans,
) -> Result<bool, StoreError> {
    let is_sure = |at| names.tried_surely(contract, at).1;
    let is_whole = !spans.may_be_joined();
    for (first, last) in spans.ends() {
        if is_sure(first) || (first < last && is_sure(last)) {
            return Ok(true);
        }
        // The contract has turned out to refer to an entry, which was changed in between.
        if first < last && is_whole && !names.is_same_between(contract, first, last)? {
            return Ok(true);
        }
    }
    Ok(false)
}
