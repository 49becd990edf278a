//! Looks whether it has become known what contracts ran at transactions whose events may belong to a
//! project.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::selection::{Selected, Updates, ran_there};
use crate::events::logged::{LoggedEvents, in_this_form};
use crate::events::looking::Found;
use crate::events::looks::ApartLooks;
use crate::events::pause::pause_after;
use crate::events::{EventProject, UnsureSpan};
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::lookup::Lookup;
use orrery_ledger::domain::{ContractId, Hash32, ProgramId};
use orrery_store::{RowBounds, StoreError, TransactionPosition};

impl Runner {
    /// Looks whether it has become known what contracts of a project ran where it was not, for about `time`.
    pub(crate) fn look_at_apart(
        &self,
        program: ProgramId,
        project: &EventProject,
        looks: &mut ApartLooks,
        time: Duration,
    ) -> Result<Found, ProgramError> {
        if project.apart.is_empty() {
            return Ok(Found::Nothing);
        }
        let begun = Instant::now();
        let pause = pause_after(looks.last, begun);
        if !pause.is_zero() {
            return Ok(Found::NothingSoFar(pause));
        }
        let generation = self.events.interfaces().generation();
        if looks.walk.is_none() && looks.walked == Some(generation) {
            return Ok(Found::Nothing);
        }
        let walk = looks.walk.take().unwrap_or((generation, None));
        let walked = self.walk_apart((program, project), looks, walk, begun + time)?;
        looks.last = Some((Instant::now(), begun.elapsed()));
        let rest = || Found::NothingSoFar(pause_after(looks.last, Instant::now()));
        Ok(match walked {
            Walked::Known => Found::More,
            Walked::UpTo(_) => rest(),
            Walked::All => {
                let found = match walk.0 == generation {
                    true => Found::Nothing,
                    // More may have been stored since the walk began.
                    false => rest(),
                };
                looks.walked = Some(walk.0);
                found
            }
        })
    }

    /// Goes on with a walk over the spans of contracts that are listed, then over the transactions of others, until a
    /// time. Remembers where it stops.
    fn walk_apart(
        &self,
        (program, project): (ProgramId, &EventProject),
        looks: &mut ApartLooks,
        (of, mut at): (u64, Option<(ContractId, TransactionPosition)>),
        until: Instant,
    ) -> Result<Walked, ProgramError> {
        let beyond = looks.beyond.take();
        let lookup = Lookup::new(&self.store, RowBounds::none())?;
        let with = (&lookup, project.selectors.wasm.as_slice());
        for span in project.apart.spans() {
            if at.is_some_and(|(contract, passed)| {
                (contract, passed) >= (span.contract, span.last) || contract > span.contract
            }) {
                continue;
            }
            let after = at.filter(|(contract, _)| *contract == span.contract).map(|(_, at)| at);
            match self.look_at_span(program, with, &span, after, until)? {
                Walked::All => at = Some((span.contract, span.last)),
                Walked::Known => return Ok(Walked::Known),
                Walked::UpTo(position) => {
                    looks.walk = Some((of, Some((span.contract, position))));
                    return Ok(Walked::UpTo(position));
                }
            }
        }
        let Some((before, last)) = project.apart.beyond() else { return Ok(Walked::All) };
        let between = (beyond.unwrap_or(before), last);
        let walked = self.look_between_apart(program, with, None, between, until)?;
        if let Walked::UpTo(position) = walked {
            (looks.walk, looks.beyond) = (Some((of, at)), Some(position));
        }
        Ok(walked)
    }

    fn look_at_span(
        &self,
        program: ProgramId,
        (lookup, codes): (&Lookup<'_>, &[Hash32]),
        span: &UnsureSpan,
        after: Option<TransactionPosition>,
        until: Instant,
    ) -> Result<Walked, ProgramError> {
        let UnsureSpan { contract, first, last, may_be_joined } = *span;
        if is_known(lookup, codes, &contract, first)? || is_known(lookup, codes, &contract, last)? {
            return Ok(Walked::Known);
        }
        if first == last || (!may_be_joined && lookup.is_same_between(&contract, first, last)?) {
            return Ok(Walked::All);
        }
        let between = (after.unwrap_or(first).max(first), last);
        self.look_between_apart(program, (lookup, codes), Some(&contract), between, until)
    }

    /// Looks at the transactions after one of them and up to another: at those with events of a contract, or of
    /// any, of which it was not known whether they belong to the project.
    fn look_between_apart(
        &self,
        program: ProgramId,
        (lookup, codes): (&Lookup<'_>, &[Hash32]),
        contract: Option<&ContractId>,
        (after, last): (TransactionPosition, TransactionPosition),
        until: Instant,
    ) -> Result<Walked, ProgramError> {
        let mut walked = Walked::All;
        let mut failed = None;
        let is_known_now = |rows: &[u8], at| -> Result<bool, ProgramError> {
            for apart in apart_contracts(rows)? {
                if contract.is_none_or(|contract| apart == *contract)
                    && is_known(lookup, codes, &apart, at)?
                {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        storage::rows_after(&self.store, program, after, |at, rows| {
            if at > last {
                return Ok(ControlFlow::Break(()));
            }
            match is_known_now(rows, at) {
                Ok(true) => walked = Walked::Known,
                Ok(false) if Instant::now() >= until => walked = Walked::UpTo(at),
                Ok(false) => return Ok(ControlFlow::Continue(())),
                Err(error) => failed = Some(error),
            }
            Ok::<_, StoreError>(ControlFlow::Break(()))
        })?;
        failed.map_or(Ok(walked), Err)
    }
}

/// Outcome of a walk over the transactions of a span.
enum Walked {
    /// Something has become known.
    Known,
    /// Nothing has.
    All,
    /// Nothing has up to this transaction.
    UpTo(TransactionPosition),
}

/// Returns the contracts of a transaction in stored form with events, or changes of what they hold, that may belong to
/// the project.
fn apart_contracts(stored: &[u8]) -> Result<BTreeSet<ContractId>, ProgramError> {
    let stored = in_this_form(stored)?;
    let read = LoggedEvents::read(&stored)?;
    let mut found = BTreeSet::new();
    for change in read.changes.iter() {
        let change = change?;
        if change.is_apart {
            found.insert(change.contract);
        }
    }
    for event in read.all_events() {
        let event = event?;
        if event.is_apart {
            found.insert(event.contract);
        }
    }
    Ok(found)
}

/// Whether it is known if a contract ran one of these codes at a transaction.
fn is_known(
    lookup: &Lookup<'_>,
    codes: &[Hash32],
    contract: &ContractId,
    at: TransactionPosition,
) -> Result<bool, ProgramError> {
    Ok(ran_there(lookup, codes, contract, at, &Updates::default())? != Selected::NotKnown)
}
