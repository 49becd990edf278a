//! Finds what the contracts of a project held when its first ledger began, of a project that begins later
//! than the stored ledgers. What is found is rows of that ledger, in entries of the row log before all
//! transactions. More may become known with ledgers that are stored later. A project's looks take a small
//! part of the time only.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::data_log::{ChangesWriter, DataChangeKind, LoggedChange};
use super::logged::{EventsWriter, LoggedEvents, in_this_form};
use super::looking::Found;
use super::looks::{DataFinds, DataWalkOfKeys, FoundWith, KnownFound};
use super::members::{Selected, Selection, Updates};
use super::pause::LOOK_AGAIN;
use super::{EventProject, Kinds};
use crate::effects::{Effects, Run};
use crate::manifest::Manifest;
use crate::records::{Execution, RunSource};
use crate::registry::Entry;
use crate::rows::RunRows;
use crate::runner::Runner;
use crate::writing::WriteOutcome;
use crate::{ProgramError, storage};
use orrery_contract_data::{Held, KeyTag, LAST_ORDER, Lookup, are_recorded, hash_of, held};
use orrery_ledger::domain::{CloseTime, ContractId, LedgerSeq, TxHash};
use orrery_store::{RowBounds, TransactionPosition};

/// The ledger of the entries of the row log with what was found: no network has it.
pub(super) const BEFORE_ALL: LedgerSeq = LedgerSeq(0);
/// The order of the first entry of that ledger that has changes of members instead.
pub(super) const MEMBERS_FROM: u32 = 1 << 23;
/// Number of keys that are looked up, and written in one entry, at once.
const AT_ONCE: usize = if cfg!(test) { 3 } else { 512 };
/// Maximum number of entries that are found.
const MOST_FOUND: usize = 1_000_000;

impl EventProject {
    /// Returns the ledger whose rows an entry of the row log has.
    pub(super) fn ledger_of(&self, at: TransactionPosition) -> LedgerSeq {
        if at.ledger == BEFORE_ALL { LedgerSeq(self.from) } else { at.ledger }
    }

    /// Returns the position at which the changes of an entry of the row log hold: of what was found, the end
    /// of the ledger before the first one.
    pub(super) fn position_of(&self, at: TransactionPosition) -> TransactionPosition {
        let before = LedgerSeq(self.from.saturating_sub(1));
        let found = TransactionPosition { ledger: before, application_order: LAST_ORDER };
        if at.ledger == BEFORE_ALL { found } else { at }
    }

    /// Returns the ledger at whose end is looked for what the contracts held.
    fn found_at(&self) -> Option<LedgerSeq> {
        LedgerSeq(self.from).previous().filter(|_| self.has_storage && self.from > 1)
    }
}

impl Runner {
    /// Looks for what the contracts of a project held when its first ledger began, for about `time`.
    /// [`Found::More`] if rows were written.
    pub(crate) fn find_data(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        finds: &mut DataFinds,
        time: Duration,
    ) -> Result<Found, ProgramError> {
        let Some(project) = &manifest.events else { return Ok(Found::Nothing) };
        let Some(before) = project.found_at() else { return Ok(Found::Nothing) };
        let begun = Instant::now();
        let pause = finds.pause(begun);
        if !pause.is_zero() {
            return Ok(Found::NothingSoFar(pause));
        }
        let (place, again) = self.data_place();
        let contracts = manifest.contracts.len();
        let seen = FoundWith { place, contracts, members: entry.members.versions() };
        if finds.walk.is_none() && finds.walked == Some(seen) {
            return Ok(again);
        }
        // Its rows have the close time of the first ledger.
        let Some(first) = self.store.ledger(LedgerSeq(project.from))? else { return Ok(again) };
        let (mut finding, mut walk) =
            self.finding(entry, manifest, (before, first.close_time), (finds, seen))?;
        let mut is_over = false;
        while !is_over {
            match finding.step(&mut walk)? {
                Step::Done => {}
                Step::Over => is_over = true,
                Step::NotRecorded => {
                    let is_found = finding.is_found;
                    (finds.known, finds.walk) = (Some(finding.known), Some(walk));
                    // An index that gets to it wakes nobody.
                    let wait = Found::NothingSoFar(LOOK_AGAIN);
                    return Ok(if is_found { Found::More } else { wait });
                }
                Step::NotWritten => return Ok(again),
            }
            if begun.elapsed() >= time || self.is_full(entry) {
                break;
            }
        }
        let Finding { known, is_found, .. } = finding;
        finds.last = Some((Instant::now(), begun.elapsed()));
        // Up to a million keys: between two walks they are not kept in memory.
        finds.known = (!is_over).then_some(known);
        match is_over {
            true => finds.walked = Some(walk.seen),
            false => finds.walk = Some(walk),
        }
        Ok(match (is_found, is_over) {
            (true, _) => Found::More,
            (false, true) if walk.seen == seen => again,
            (false, _) => Found::NothingSoFar(finds.pause(Instant::now())),
        })
    }

    /// Goes on with the walk in progress, or begins one, at the end of the ledger `before`. The rows have the close
    /// time of the next ledger.
    fn finding<'a>(
        &'a self,
        entry: &'a Entry,
        manifest: &'a Manifest,
        (before, closed_at): (LedgerSeq, CloseTime),
        (finds, seen): (&mut DataFinds, FoundWith),
    ) -> Result<(Finding<'a>, DataWalkOfKeys), ProgramError> {
        let new = DataWalkOfKeys { seen, contract: 0, member: None, after: None };
        // What was found of members that are none any more is gone.
        let walk = finds.walk.take().filter(|it| seen.members.keeps_those_of(it.seen.members));
        let known = finds.known.take().filter(|_| walk.is_some());
        let finding = Finding {
            runner: self,
            entry,
            manifest,
            lookup: Lookup::new(&self.store, before, RowBounds::none())?.without_updated(),
            selection: Selection::new(&self.store, self.events.members(), manifest)?,
            closed_at,
            // Read again after a failure.
            known: match known {
                Some(known) => known,
                None => self.found_so_far(manifest)?,
            },
            is_found: false,
        };
        Ok((finding, walk.unwrap_or(new)))
    }

    /// Returns the keys of what was found, and the number of the last entry of the row log with some.
    fn found_so_far(&self, manifest: &Manifest) -> Result<KnownFound, ProgramError> {
        let (mut known, mut last, mut damaged) = (BTreeSet::new(), 0, false);
        let begin = TransactionPosition { ledger: BEFORE_ALL, application_order: 0 };
        storage::rows_after(&self.store, manifest.id, begin, |at, stored| {
            if at.ledger != BEFORE_ALL || at.application_order >= MEMBERS_FROM {
                return Ok(ControlFlow::Break(()));
            }
            last = at.application_order;
            let Ok(stored) = in_this_form(stored) else {
                damaged = true;
                return Ok(ControlFlow::Break(()));
            };
            let Ok(read) = LoggedEvents::read(&stored) else {
                damaged = true;
                return Ok(ControlFlow::Break(()));
            };
            let changes = read.changes.iter().filter_map(Result::ok);
            known.extend(changes.map(|it| (it.contract, KeyTag::of(&it.key_hash))));
            Ok(ControlFlow::Continue(()))
        })?;
        if damaged {
            Err(ProgramError::Damaged("what was found for a project"))
        } else {
            Ok((known, last))
        }
    }

    /// Writes what was found. Returns whether it was written.
    fn write_found(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        position: TransactionPosition,
        (closed_at, changes): (CloseTime, &ChangesWriter),
    ) -> Result<bool, ProgramError> {
        let Some(project) = &manifest.events else { return Ok(false) };
        let declaring = self.declaring(manifest)?;
        let first = LedgerSeq(project.from);
        let mut effects = Effects::none(manifest, first, RunSource::Backfill);
        let at = (position, &Updates::default());
        let (examined, count) = self.examine_new(&declaring, project, at, changes, &mut effects)?;
        declaring.names.finish()?;
        if examined.is_empty() {
            return Ok(true);
        }
        let none = TxHash::from([0; 32]);
        let encoded = EventsWriter::with_changes(&none, closed_at, &examined)?.finish();
        let mut execution = Execution::of(first, &none, effects.source, (self.clock)());
        execution.rows = count;
        let rows = RunRows::none(none, closed_at);
        let kinds = Kinds::default();
        effects.add(Run { position, execution, fuel: 0, rows, kinds, encoded });
        let outcome = self.write(entry, &[effects], |_, _, _, _| None)?;
        Ok(matches!(outcome, WriteOutcome::Runs(_)))
    }
}

/// Outcome of a step of a walk over keys.
enum Step {
    /// Some keys were looked up.
    Done,
    /// There are no more.
    Over,
    /// What the next contract holds is not recorded yet.
    NotRecorded,
    /// What was found could not be written.
    NotWritten,
}

/// Looks up what the contracts of a project held.
struct Finding<'a> {
    runner: &'a Runner,
    entry: &'a Entry,
    manifest: &'a Manifest,
    lookup: Lookup<'a>,
    selection: Selection<'a>,
    /// Close time of the project's first ledger.
    closed_at: CloseTime,
    known: KnownFound,
    is_found: bool,
}

impl Finding<'_> {
    /// Looks up the next keys of a walk, and writes what they held.
    fn step(&mut self, walk: &mut DataWalkOfKeys) -> Result<Step, ProgramError> {
        let named = self.manifest.contracts.get(walk.contract).copied();
        let next = match named {
            Some(named) => Some(named),
            None => self.next_member(walk.member)?,
        };
        let Some(contract) = next else { return Ok(Step::Over) };
        if !are_recorded(&self.runner.store, [&contract])? {
            return Ok(Step::NotRecorded);
        }
        let keys = match self.is_wanted(&contract)? {
            true => self.lookup.keys_after(&contract, walk.after, AT_ONCE)?,
            false => Vec::new(),
        };
        let changes = self.held(contract, &keys)?;
        walk.after = keys.last().copied();
        if keys.len() < AT_ONCE {
            walk.after = None;
            match named {
                Some(_) => walk.contract += 1,
                None => walk.member = Some(contract),
            }
        }
        if changes.is_empty() {
            return Ok(Step::Done);
        }
        let at = TransactionPosition { ledger: BEFORE_ALL, application_order: self.known.1 };
        let of = (self.closed_at, &changes);
        if !self.runner.write_found(self.entry, self.manifest, at, of)? {
            return Ok(Step::NotWritten);
        }
        self.is_found = true;
        Ok(Step::Done)
    }

    /// Returns the next member after one of them that the project does not name.
    fn next_member(&self, after: Option<ContractId>) -> Result<Option<ContractId>, ProgramError> {
        let Manifest { id, contracts, .. } = self.manifest;
        let mut found = None;
        storage::members_after(&self.runner.store, *id, after, |contract, _| {
            let is_member = !self.runner.events.members().flags(*id, &contract).is_empty();
            if !is_member || contracts.contains(&contract) {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(contract);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Whether what a contract held when the project begins may be rows.
    fn is_wanted(&self, contract: &ContractId) -> Result<bool, ProgramError> {
        let Some(project) = &self.manifest.events else { return Ok(false) };
        let begin = TransactionPosition { ledger: BEFORE_ALL, application_order: 0 };
        let at = project.position_of(begin);
        Ok(self.selection.of(contract, at, &Updates::default())? != Selected::No)
    }

    /// Returns what keys held, without those that are known, which are added.
    fn held(
        &mut self,
        contract: ContractId,
        keys: &[KeyTag],
    ) -> Result<ChangesWriter, ProgramError> {
        let (known, last) = &mut self.known;
        let mut changes = ChangesWriter::default();
        for tag in keys {
            let of = (contract, *tag);
            if known.contains(&of) || known.len() >= MOST_FOUND {
                continue;
            }
            let Held::Present(entry) = self.lookup.held(of)? else { continue };
            changes.push(&LoggedChange {
                contract,
                key_hash: hash_of(&entry.key.entry_key()),
                kind: DataChangeKind::Found,
                durability: entry.key.durability(),
                live_until: entry.live_until.map(|until| until.0),
                key: Some(entry.key.scval()),
                value: held(&entry.entry, &entry.key),
                interfaces: Vec::new(),
                is_sure: false,
                is_apart: false,
            })?;
            known.insert(of);
        }
        *last += u32::from(!changes.is_empty());
        Ok(changes)
    }
}
