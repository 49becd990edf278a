//! Looks whether more has become known of the changes of contract data of which a project lacks something:
//! what an entry held, or until when it lives. Ledgers that are stored later say so, before and after a
//! change. A project's looks take a small part of the time only.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::EventProject;
use super::data_reading::{DataReader, with};
use super::logged::{LoggedEvents, in_this_form};
use super::looking::Found;
use super::looks::{DataLooks, DataWalk};
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_contract_data::CONSUMER;
use orrery_ledger::domain::ProgramId;
use orrery_store::TransactionPosition;

/// Time after which a look is made again while the index of contract data is behind.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Number of transactions that are looked at together.
const AT_ONCE: usize = 256;

impl Runner {
    /// Looks whether more has become known of the changes of contract data of a project, for about `time`.
    pub(crate) fn look_at_data(
        &self,
        program: ProgramId,
        project: &EventProject,
        looks: &mut DataLooks,
        time: Duration,
    ) -> Result<Found, ProgramError> {
        let Some(before_all) = project.open.after() else { return Ok(Found::Nothing) };
        let begun = Instant::now();
        let pause = looks.pause(begun);
        if !pause.is_zero() {
            return Ok(Found::NothingSoFar(pause));
        }
        let (place, again) = self.data_place();
        if looks.walk.is_none() && looks.walked == Some(place) {
            return Ok(again);
        }
        let mut walk = looks.walk.take().unwrap_or(DataWalk { place, at: before_all });
        let until = begun + time;
        let found = loop {
            match self.look_at_some((program, project), &mut walk)? {
                Some(found) => break found,
                None if Instant::now() < until => {}
                None => {
                    looks.walk = Some(walk);
                    break Found::NothingSoFar(Duration::ZERO);
                }
            }
        };
        looks.last = Some((Instant::now(), begun.elapsed()));
        Ok(match found {
            Found::Nothing => {
                looks.walked = Some(walk.place);
                // More may have been stored since the walk began.
                if walk.place == place { again } else { Found::NothingSoFar(looks.pause(begun)) }
            }
            Found::NothingSoFar(_) => Found::NothingSoFar(looks.pause(Instant::now())),
            Found::More => Found::More,
        })
    }

    /// Returns the place up to which the index of contract data has all ledgers, and the result of a look
    /// that finds nothing there.
    pub(super) fn data_place(&self) -> (u64, Found) {
        let place = self.store.consumer(CONSUMER).map_or(0, |index| index.place);
        let is_behind = self.store.last_place() > place;
        (place, if is_behind { Found::NothingSoFar(LOOK_AGAIN) } else { Found::Nothing })
    }

    /// Looks at the next transactions of a walk. Returns what was found; `None` when there is more to look
    /// at.
    fn look_at_some(
        &self,
        (program, project): (ProgramId, &EventProject),
        walk: &mut DataWalk,
    ) -> Result<Option<Found>, ProgramError> {
        let mut rows = Vec::new();
        storage::rows_after(&self.store, program, walk.at, |at, stored| {
            rows.push((at, stored.to_vec()));
            let is_over = rows.len() == AT_ONCE;
            Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let mut reader = DataReader::new(&self.store);
        for (at, stored) in &rows {
            if is_more_known(&mut reader, project.position_of(*at), stored)? {
                return Ok(Some(Found::More));
            }
            walk.at = *at;
        }
        Ok((rows.len() < AT_ONCE).then_some(Found::Nothing))
    }
}

/// Whether more is known of the changes at a position.
fn is_more_known(
    reader: &mut DataReader<'_>,
    at: TransactionPosition,
    stored: &[u8],
) -> Result<bool, ProgramError> {
    let stored = in_this_form(stored)?;
    for change in LoggedEvents::read(&stored)?.changes.iter() {
        let change = change?;
        if !change.is_open() {
            continue;
        }
        let now = reader.now(&change, at)?;
        if with(&change, now.as_ref()) != change {
            return Ok(true);
        }
    }
    Ok(false)
}
