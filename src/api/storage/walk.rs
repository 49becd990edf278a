//! Pages of changes, the newest first, over all stored ledgers.

use std::fmt;
use std::str::FromStr;

use serde_json::value::{RawValue, to_raw_value};

use super::super::call::CurrentCall;
use super::super::{ApiError, Deps};
use super::at::{At, index, with_changes};
use super::cursor::{NotACursor, cursor};
use super::record::ChangeRecord;
use orrery_contract_data::{LAST_ORDER, Lookup, Past, PastPage};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{StoreError, TransactionPosition};

/// Number of changes that are read at a time. Two of them have the largest entries before and after.
const READ_AT_ONCE: usize = 32;
/// Maximum number of changes that are read for one page, whether they are wanted or not.
const MOST_READ: usize = 4_096;

/// Where a list of changes goes on: after the first rows of the changes at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    at: TransactionPosition,
    /// Number of rows at the position that precede.
    rows: u32,
}

/// A page of changes.
pub(super) struct ChangesPage {
    pub rows: Vec<Box<RawValue>>,
    pub cursor: Option<String>,
    /// Whether it ended because of its number of rows, or at the end.
    pub is_complete: bool,
    /// The first of the ledgers around the newest one that was asked for, of which all changes are
    /// stored; `None` when no stored ledger was asked for.
    pub known_since: Option<LedgerSeq>,
}

/// A list of changes.
pub(super) struct Walk<'w, 'c> {
    pub deps: &'w Deps,
    pub call: &'w CurrentCall<'c>,
    pub contract: ContractId,
    /// Ledgers of the changes.
    pub ledgers: LedgerRange,
    pub limit: usize,
}

/// Reads changes in a range of ledgers before a position, about as many as are given.
type Read<'r> = &'r dyn Fn(
    &Lookup<'_>,
    LedgerRange,
    TransactionPosition,
    usize,
) -> Result<PastPage, StoreError>;
/// Returns the rows of a change.
type Rows<'r> = &'r dyn Fn(&Past) -> Result<Vec<ChangeRecord>, ApiError>;

/// A page that is being filled.
struct Filling {
    /// Where it begins.
    start: Option<Cursor>,
    rows: Vec<Box<RawValue>>,
    /// Size of the rows.
    bytes: usize,
    /// Number of changes that were read.
    read: usize,
    /// Position of the last change, and the number of its rows so far.
    last: Option<Cursor>,
}

impl Walk<'_, '_> {
    /// Returns the page that begins at the cursor of the request.
    pub fn page(&self, read: Read<'_>, rows: Rows<'_>) -> Result<ChangesPage, ApiError> {
        let start = cursor(self.call.query)?;
        let pieces = self.pieces()?;
        let known_since = match pieces.first() {
            Some(newest) => {
                let at = At::open(self.deps, self.call, Some(newest.last))?;
                at.first_known(&self.contract)?
            }
            None => None,
        };
        let mut filling = Filling { start, rows: Vec::new(), bytes: 0, read: 0, last: None };
        let mut next = None;
        let is_left = |piece: &&LedgerRange| start.is_none_or(|it| piece.first <= it.at.ledger);
        for piece in pieces.iter().filter(is_left) {
            let end = TransactionPosition { ledger: piece.last, application_order: LAST_ORDER };
            let from = start.map_or(end, |start| start.at.min(end));
            next = match filling.read > 0 && self.is_over(&filling) {
                true => Some(Cursor { at: end, rows: 0 }),
                false => self.fill(&mut filling, *piece, from, read, rows)?,
            };
            if next.is_some() {
                break;
            }
        }
        Ok(ChangesPage {
            is_complete: next.is_none() || filling.rows.len() >= self.limit,
            rows: filling.rows,
            cursor: next.map(|next| next.to_string()),
            known_since,
        })
    }

    /// Returns the ledgers of the walk of which changes are stored, the newest first.
    fn pieces(&self) -> Result<Vec<LedgerRange>, ApiError> {
        index(&self.deps.store)?;
        let Some(newest) = self.call.as_of else { return Ok(Vec::new()) };
        let stored = with_changes(&self.deps.store, newest)?;
        Ok(stored.within(self.ledgers).ranges().iter().rev().copied().collect())
    }

    fn is_over(&self, filling: &Filling) -> bool {
        filling.read >= MOST_READ || self.call.allowance.is_over()
    }

    /// Adds the changes of a piece from a position on. Returns where the list goes on if the page ends
    /// before they do.
    fn fill(
        &self,
        filling: &mut Filling,
        piece: LedgerRange,
        from: TransactionPosition,
        read: Read<'_>,
        rows: Rows<'_>,
    ) -> Result<Option<Cursor>, ApiError> {
        let at = At::open(self.deps, self.call, Some(piece.last))?;
        let mut before = just_after(from);
        let begun = filling.start.filter(|start| start.at == from);
        let mut next = begun.unwrap_or(Cursor { at: from, rows: 0 });
        loop {
            let page = read(&at.lookup, piece, before, READ_AT_ONCE)?;
            // What was read then may lack some.
            if at.lookup.is_cut() {
                return match filling.read {
                    0 => Err(ApiError::Busy { retry_after: 1 }),
                    _ => Ok(Some(next)),
                };
            }
            for past in &page.changes {
                filling.read += 1;
                for row in rows(past)? {
                    if let Some(next) = self.add(filling, past.position, &row)? {
                        return Ok(Some(next));
                    }
                }
            }
            let Some((last, _)) = page.next else { return Ok(None) };
            before = last;
            next = Cursor { at: last, rows: u32::MAX };
            if self.is_over(filling) {
                return Ok(Some(next));
            }
        }
    }

    /// Adds a row of the change at a position, unless it precedes the page. Returns where the list goes
    /// on if the page ends before the row.
    fn add(
        &self,
        filling: &mut Filling,
        position: TransactionPosition,
        row: &ChangeRecord,
    ) -> Result<Option<Cursor>, ApiError> {
        let here = filling.last.filter(|last| last.at == position);
        let here = here.unwrap_or(Cursor { at: position, rows: 0 });
        filling.last = Some(Cursor { rows: here.rows + 1, ..here });
        if filling.start.is_some_and(|start| start.at == position && here.rows < start.rows) {
            return Ok(None);
        }
        let is_full = filling.rows.len() >= self.limit;
        if is_full || self.call.allowance.may_continue(filling.bytes).is_break() {
            return Ok(Some(here));
        }
        let row = to_raw_value(row).map_err(|_| ApiError::Encoding)?;
        filling.bytes += row.get().len();
        filling.rows.push(row);
        Ok(None)
    }
}

/// Returns a position after this one and before all others that come later.
fn just_after(at: TransactionPosition) -> TransactionPosition {
    match (at.application_order < LAST_ORDER, at.ledger.next()) {
        (false, Some(ledger)) => TransactionPosition { ledger, application_order: 0 },
        (false, None) => at,
        (true, _) => TransactionPosition { application_order: at.application_order + 1, ..at },
    }
}

impl fmt::Display for Cursor {
    /// Ledger, position in apply order, and number of rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at: TransactionPosition { ledger, application_order }, rows } = self;
        write!(f, "{ledger}-{application_order}-{rows}")
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let number = |text: &str| text.parse::<u32>().map_err(|_| NotACursor);
        let parts: Vec<&str> = text.split('-').collect();
        let [ledger, order, rows] = parts[..] else { return Err(NotACursor) };
        let (ledger, application_order) = (LedgerSeq(number(ledger)?), number(order)?);
        let at = TransactionPosition { ledger, application_order };
        let cursor = Self { at, rows: number(rows)? };
        // There is one spelling of each.
        let is_one = application_order <= LAST_ORDER && cursor.to_string() == text;
        if is_one { Ok(cursor) } else { Err(NotACursor) }
    }
}
