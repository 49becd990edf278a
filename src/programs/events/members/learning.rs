//! Finds members among what was learnt of creations and codes.

use std::ops::ControlFlow;
use std::time::Instant;

use super::factories::LONGEST_READ;
use super::found::Found;
use super::index::Flags;
use super::selectors::Selectors;
use super::stored::Cursor;
use crate::ProgramError;
use orrery_ledger::domain::ContractId;
use orrery_membership::{Facts, Learnt, Named};
use orrery_store::RowFlow;

/// Maximum number of things that were learnt which a turn takes.
const LEARNT_AT_ONCE: usize = if cfg!(test) { 5 } else { 4_096 };

/// Adds the contracts of which something was learnt after a cursor, for some time, or all at the first look. Moves
/// the cursor. Returns whether there is more.
pub fn learnt(
    facts: &Facts<'_>,
    selectors: &Selectors,
    is_first: bool,
    cursor: &mut Cursor,
    found: &mut Found,
) -> Result<bool, ProgramError> {
    if is_first {
        for creator in &selectors.created_by {
            facts.made_by(&creator.0, None, |contract| add(found, contract, Flags::CREATED))?;
        }
        for code in &selectors.wasm {
            facts.runners(code, |contract| add(found, contract, Flags::MAY_RUN))?;
        }
        cursor.learnt = facts.newest()?;
        return Ok(false);
    }
    let until = Instant::now() + LONGEST_READ;
    let mut new = Vec::new();
    facts.learnt_after(cursor.learnt, |number, what| {
        new.push((number, what));
        Ok(match new.len() < LEARNT_AT_ONCE {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    let mut has_more = new.len() >= LEARNT_AT_ONCE;
    for (number, what) in new {
        add_learnt(facts, selectors, what, found)?;
        cursor.learnt = number;
        if Instant::now() >= until {
            has_more = true;
            break;
        }
    }
    Ok(has_more)
}

/// Adds the contracts that something concerns which was learnt.
fn add_learnt(
    facts: &Facts<'_>,
    selectors: &Selectors,
    what: Learnt,
    found: &mut Found,
) -> Result<(), ProgramError> {
    let may_mean = |named| {
        for code in &selectors.wasm {
            if facts.may_mean(named, code)? {
                return Ok::<_, ProgramError>(true);
            }
        }
        Ok(false)
    };
    match what {
        Learnt::Contract(contract) => {
            found.touched.insert(contract);
            if !selectors.created_by.is_empty()
                && let Some(creation) = facts.creation(&contract)?
                && selectors.created_by.iter().any(|creator| creator.0 == creation.creator)
            {
                found.add(contract, Flags::CREATED);
            }
        }
        Learnt::Ran(contract, named) => {
            found.touched.insert(contract);
            if may_mean(named)? {
                found.add(contract, Flags::MAY_RUN);
            }
        }
        Learnt::Tag(tag) => {
            if may_mean(Named::Tag(tag))? {
                // Also of those that are members a time begins, or ends.
                facts.referring(tag, |contract| {
                    found.touched.insert(contract);
                    add(found, contract, Flags::MAY_RUN)
                })?;
            }
        }
    }
    Ok(())
}

fn add(found: &mut Found, contract: ContractId, flags: Flags) -> RowFlow {
    found.add(contract, flags);
    Ok(ControlFlow::Continue(()))
}
