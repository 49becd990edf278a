//! What lists of events and transactions are made from, and the parameter that adds names to them.

use super::answer::Answer;
use super::call::ReadCall;
use super::params::Query;
use super::{ApiError, json};
use orrery_executables::{InterfaceReader, Interfaces};
use orrery_store::{RowBounds, Store};

/// Parameter that adds names and readable values to each event and transaction.
pub(super) const DECODED: &str = "decoded";

/// What is stored, and the interfaces of the contracts in it.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub store: &'a Store,
    pub interfaces: &'a Interfaces,
}

impl<'a> Stored<'a> {
    /// Returns the reader of interfaces for a list; `None` when the request does not want names.
    ///
    /// # Errors
    /// When `decoded` is neither true nor false, or the database fails.
    pub fn names<'c>(&self, call: &'c ReadCall<'_>) -> Result<Option<InterfaceReader<'c>>, ApiError>
    where
        'a: 'c,
    {
        if !is_decoded(call.query)? {
            return Ok(None);
        }
        let bounds =
            RowBounds { interrupted: Box::new(|| call.allowance.is_over()), ..RowBounds::none() };
        Ok(Some(self.interfaces.reader(bounds)?))
    }

    /// Begins a list of about this many elements, which have names if there is a reader of them.
    pub fn list<'n>(
        &self,
        names: Option<&'n InterfaceReader<'n>>,
        elements: usize,
    ) -> json::List<'n> {
        let list = json::List::with_room_for(elements);
        match names {
            Some(names) => list.decoding(*self.store.network().id(), names),
            None => list,
        }
    }
}

/// Returns the answer with a list, which may have ended early, and with what its names lacked. It is not
/// complete if a name that is missing now may be found later without a change of the store.
///
/// # Errors
/// The first failure of reading interfaces.
pub(super) fn answer(
    list: json::List<'_>,
    is_complete: bool,
    names: Option<&InterfaceReader<'_>>,
) -> Result<Answer, ApiError> {
    let list = Answer { is_complete, ..Answer::json(list.finish()) };
    let Some(names) = names else { return Ok(list) };
    let is_complete = names.finish()? && is_complete;
    Ok(Answer { is_complete, lacking: names.lacking(), ..list })
}

/// Returns whether the request wants names.
pub(super) fn is_decoded(query: &Query<'_>) -> Result<bool, ApiError> {
    Ok(query.word(DECODED, &[("true", true), ("false", false)])?.unwrap_or(false))
}
