//! Looks whether the code has become known of which a project has read events while it was not. A look is
//! due whenever more is stored (`Interfaces::listen`), also where no further ledger comes. What it costs
//! follows from the project's own contracts, so a project's looks take a small part of the time only.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::logged::{LoggedEvents, in_this_form};
use super::looks::{Looks, Walk};
use super::unsure::UnsureSpan;
use super::{EventInterfaces, EventProject};
use crate::lanes::Lanes;
use crate::registry::Registry;
use crate::rows::Damaged;
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::{InterfaceReader, Interfaces, News};
use orrery_ledger::domain::{ContractId, ProgramId};
use orrery_store::{StoreError, TransactionPosition};

/// Time after which another server is asked again for what it did not know; asking too soon is up to
/// [`Interfaces`](orrery_executables::Interfaces).
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Outcome of a look, and of what followed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// Nothing has become known. Whatever will is followed by a wake-up.
    Nothing,
    /// The tables have changed, or the rows were derived anew. More may have become known meanwhile.
    Derived,
    /// Some rows were derived anew, and the rest is to be.
    InPart,
    /// The next look is due after this time, also without a wake-up.
    Again(Duration),
}

/// Outcome of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Something has become known.
    More,
    /// Nothing has.
    Nothing,
    /// Nothing has, but not everything was looked at: the rest is, after this time.
    NothingSoFar(Duration),
}

/// Wakes projects of events whenever more is known of the code of contracts: those that have read events
/// while it was not.
pub(crate) fn look_when_more_is_known(
    interfaces: &Interfaces,
    registry: &Arc<Registry>,
    lanes: &Arc<Lanes>,
) {
    let (registry, lanes) = (Arc::downgrade(registry), Arc::downgrade(lanes));
    interfaces.listen(move |news| {
        let Some((registry, lanes)) = registry.upgrade().zip(lanes.upgrade()) else {
            return false;
        };
        if news == News::Stored {
            let waiting = registry.waiting_for_code();
            if !waiting.is_empty() {
                lanes.wake_those(|program| waiting.contains(&program));
            }
        }
        true
    });
}

impl EventInterfaces {
    /// Looks whether the code has become known that a contract had at one of the ends of these spans.
    /// Within a span that was not joined, all becomes known at once.
    fn look_at_ends(
        &self,
        project: &EventProject,
        looks: &mut Looks,
        names: &InterfaceReader<'_>,
        (generation, until): (u64, Instant),
    ) -> Result<Found, ProgramError> {
        let begun = looks.ends.take().unwrap_or(Walk::new(generation));
        let is_left =
            |span: &UnsureSpan| begun.at.is_none_or(|at| (span.contract, span.first) > at);
        for span in project.unsure.spans().filter(is_left) {
            if self.is_known_at_ends(&span, names)? {
                return Ok(Found::More);
            }
            if Instant::now() >= until {
                looks.ends = Some(Walk { at: Some((span.contract, span.first)), ..begun });
                return Ok(Found::NothingSoFar(Duration::ZERO));
            }
        }
        // More may have been stored since the walk began.
        Ok(match begun.generation == generation {
            true => Found::Nothing,
            false => Found::NothingSoFar(Duration::ZERO),
        })
    }

    fn is_known_at_ends(
        &self,
        span: &UnsureSpan,
        names: &InterfaceReader<'_>,
    ) -> Result<bool, ProgramError> {
        let UnsureSpan { contract, first, last, may_be_joined } = *span;
        let is_sure = |at| names.tried_surely(&contract, at).1;
        if is_sure(first) || (first < last && is_sure(last)) {
            return Ok(true);
        }
        // The contract has turned out to refer to an entry, which was changed in between. One
        // transaction alone says nothing: its ledger may not be indexed yet.
        Ok(first < last && !may_be_joined && !names.is_same_between(&contract, first, last)?)
    }
}

impl Runner {
    /// Looks whether the code has become known of which a project has read events while it was not: for
    /// about `time` at the ends of spans, and if nothing was found, as long through the middles.
    pub(crate) fn look(
        &self,
        program: ProgramId,
        project: &EventProject,
        looks: &mut Looks,
        time: Duration,
    ) -> Result<Found, ProgramError> {
        if project.unsure.is_empty() {
            return Ok(Found::Nothing);
        }
        let begun = Instant::now();
        let pause = looks.pause(begun);
        if !pause.is_zero() {
            return Ok(Found::NothingSoFar(pause));
        }
        let interfaces = &self.events.interfaces;
        // What is stored from here on is followed by a wake-up.
        let generation = interfaces.generation();
        let names = interfaces.loading_reader()?;
        let now = (generation, begun + time);
        let mut found = self.events.look_at_ends(project, looks, &names, now)?;
        if found == Found::Nothing {
            let now = (generation, Instant::now() + time);
            found = self.look_within(program, project, looks, &names, now)?;
        }
        names.finish()?;
        looks.last = Some((Instant::now(), begun.elapsed()));
        if let Found::NothingSoFar(wait) = &mut found {
            *wait = looks.pause(Instant::now());
        } else if found == Found::Nothing && interfaces.has_source() {
            found = Found::NothingSoFar(ASK_AGAIN);
        }
        Ok(found)
    }

    /// Looks through the middles of joined spans, and at the transactions of contracts that are not listed.
    fn look_within(
        &self,
        program: ProgramId,
        project: &EventProject,
        looks: &mut Looks,
        names: &InterfaceReader<'_>,
        (generation, until): (u64, Instant),
    ) -> Result<Found, ProgramError> {
        if looks.walk.is_none() && looks.walked == Some(generation) {
            return Ok(Found::Nothing);
        }
        let mut walk = looks.walk.take().unwrap_or(Walk::new(generation));
        let is_joined = |span: &UnsureSpan| span.may_be_joined && span.first < span.last;
        for span in project.unsure.spans().filter(is_joined).filter(|_| walk.beyond.is_none()) {
            let after = match walk.at {
                Some((contract, at)) if contract == span.contract => span.first.max(at),
                Some((contract, _)) if contract > span.contract => continue,
                _ => span.first,
            };
            if after >= span.last {
                continue;
            }
            let of = (Some(&span.contract), (after, span.last));
            match self.look_between(program, of, names, until)? {
                Middle::Nothing => {}
                Middle::Known => return Ok(Found::More),
                Middle::Until(at) => {
                    looks.walk = Some(Walk { at: Some((span.contract, at)), ..walk });
                    return Ok(Found::NothingSoFar(Duration::ZERO));
                }
            }
        }
        if let Some((before, last)) = project.unsure.beyond() {
            let of = (None, (walk.beyond.unwrap_or(before), last));
            match self.look_between(program, of, names, until)? {
                Middle::Nothing => {}
                Middle::Known => return Ok(Found::More),
                Middle::Until(at) => {
                    walk.beyond = Some(at);
                    looks.walk = Some(walk);
                    return Ok(Found::NothingSoFar(Duration::ZERO));
                }
            }
        }
        looks.walked = Some(walk.generation);
        // More may have been stored since the walk began.
        Ok(match walk.generation == generation {
            true => Found::Nothing,
            false => Found::NothingSoFar(Duration::ZERO),
        })
    }

    /// Looks at the transactions after one of them and up to another: at those with events of a contract, or of
    /// any, whose code was not known.
    fn look_between(
        &self,
        program: ProgramId,
        (contract, (after, last)): (
            Option<&ContractId>,
            (TransactionPosition, TransactionPosition),
        ),
        names: &InterfaceReader<'_>,
        until: Instant,
    ) -> Result<Middle, ProgramError> {
        let mut found = Middle::Nothing;
        storage::rows_after(&self.store, program, after, |at, rows| {
            if at > last {
                return Ok(ControlFlow::Break(()));
            }
            let mut unsure = unsure_contracts(rows).map_err(|_| damaged(program))?;
            unsure.retain(|it| contract.is_none_or(|contract| it == contract));
            if unsure.iter().any(|contract| names.tried_surely(contract, at).1) {
                found = Middle::Known;
                return Ok(ControlFlow::Break(()));
            }
            if Instant::now() >= until {
                found = Middle::Until(at);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

/// Returns the contracts whose code was not known when a transaction in stored form was read: of its events and of
/// its changes of what they hold.
fn unsure_contracts(stored: &[u8]) -> Result<BTreeSet<ContractId>, Damaged> {
    let stored = in_this_form(stored)?;
    let read = LoggedEvents::read(&stored)?;
    let mut found = BTreeSet::new();
    for event in read.events() {
        let event = event?;
        if !event.is_sure && !event.is_system {
            found.insert(event.contract);
        }
    }
    for change in read.changes.iter() {
        let change = change?;
        if !change.is_sure {
            found.insert(change.contract);
        }
    }
    Ok(found)
}

/// What was found among transactions.
enum Middle {
    /// Nothing that has become known.
    Nothing,
    /// Something has.
    Known,
    /// Nothing up to this transaction.
    Until(TransactionPosition),
}

fn damaged(program: ProgramId) -> StoreError {
    StoreError::Corrupt { family: "rows", key: format!("program {program}") }
}
