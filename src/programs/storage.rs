//! What the store keeps of programs: manifests, modules, progress, the rows that they emitted, and
//! records of their runs. Defines keys and what is written together; does not depend on the content
//! of the values.
//!
//! Programs are a kind of consumers of the store's feed. The kind has these families:
//!
//! | Family | Key → value |
//! |---|---|
//! | `programs` | program → manifest |
//! | `wasm` | SHA-256 → module |
//! | `program_progress` | program → its progress; program, `b` → its backfill; program, `f`, key → a part of the summary of a project of events; program, `j`, number → a member of it that became known; program, `k` → how far its members were looked for; program, `m`, contract → a member of it; program, `n`, selector, contract → where a factory announced it first; program, `o`, contract → the entries of the row log with the changes of a member; program, `r` → why its replacement failed; program, `s` → its subscribers; program, `u`, contract → transactions with events of it that may turn out to have a name of the project; program, `w`, position → a waiting run |
//! | `rows` | program, position of a transaction → rows that the run on it emitted |
//! | `row_log` | program, number → position: the order in which runs with rows were stored |
//! | `executions` | program, number → record of a run; only the newest are kept |
//! | `program_stats` | program, ledger, source → sums over the runs of a ledger |

use std::ops::ControlFlow;

use serde::Serialize;

use super::ProgramError;
use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerRange, LedgerSeq, ProgramId};
use orrery_store::{
    ConsumerKind, Extensions, KindChanges, Mark, Needs, RowCodec, SharedFamily, SharedRow,
    SharedRows, Store, StoreError, TransactionPosition,
};

const PROGRAMS: SharedFamily = family("programs", false);
const WASM: SharedFamily = family("wasm", true);
const PROGRESS: SharedFamily = family("program_progress", false);
const ROWS: SharedFamily = family("rows", true);
const ROW_LOG: SharedFamily = family("row_log", true);
const EXECUTIONS: SharedFamily = family("executions", true);
const STATS: SharedFamily = family("program_stats", true);

/// Programs as consumers of the feed.
pub const KIND: ConsumerKind = ConsumerKind {
    name: "programs",
    families: &[PROGRAMS, WASM, PROGRESS, ROWS, ROW_LOG, EXECUTIONS, STATS],
    needs: Needs { transactions: true, raw_ledgers: false, events: false },
};

const fn family(name: &'static str, compressed: bool) -> SharedFamily {
    SharedFamily { name, compressed }
}

/// Returns the extensions of a store that holds programs and has no other consumer.
pub fn extensions() -> Extensions {
    Extensions::default().with_kind(KIND)
}

/// A run of a program that lacked state in the store and is to be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRun {
    /// Position of the transaction on which the program runs.
    pub position: TransactionPosition,
    /// First ledger of the gapless range of stored ledgers that contains the transaction's ledger,
    /// when the run was tried.
    pub from: LedgerSeq,
}

/// Returns the name of the feed consumer that belongs to a program.
pub fn consumer(program: ProgramId) -> String {
    KIND.consumer(program)
}

/// Writes the changes that `change` makes in one batch, synced.
///
/// # Errors
/// [`StoreError`] when `change` or the database fails; nothing is changed in memory then.
pub fn change(
    store: &Store,
    change: impl FnOnce(&mut KindChanges<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut changes = store.change_kind(&KIND);
    change(&mut changes)?;
    changes.write()
}

/// Names the row with the manifest of a program.
pub fn manifest(program: ProgramId) -> SharedRow {
    PROGRAMS.row(program)
}

/// Names the row with the module that has this SHA-256.
pub fn module(sha256: &Hash32) -> SharedRow {
    WASM.row(*sha256)
}

/// Names the row with the progress of a program.
pub fn progress(program: ProgramId) -> SharedRow {
    PROGRESS.row(program)
}

/// Names the row with the backfill that was requested of a program.
pub fn backfill(program: ProgramId) -> SharedRow {
    PROGRESS.row((program, Mark::<b'b'>))
}

/// Names the row with a part of the summary of a project of events.
pub fn summary(program: ProgramId, part: &[u8]) -> SharedRow {
    PROGRESS.row(((program, Mark::<b'f'>), part.to_vec()))
}

/// Names the row of a member of a project that became known, in the order in which they did.
pub fn newly_known(program: ProgramId, number: u64) -> SharedRow {
    PROGRESS.row(((program, Mark::<b'j'>), number))
}

/// Names the row that says how far the members of a project were looked for.
pub fn member_cursor(program: ProgramId) -> SharedRow {
    PROGRESS.row((program, Mark::<b'k'>))
}

/// Names the row of a member of a project.
pub fn member(program: ProgramId, contract: &ContractId) -> SharedRow {
    PROGRESS.row(((program, Mark::<b'm'>), *contract))
}

/// Names the row with the entries of the row log that have the changes of a member.
pub fn member_entries(program: ProgramId, contract: &ContractId) -> SharedRow {
    PROGRESS.row(((program, Mark::<b'o'>), *contract))
}

/// Names the row of a contract that a factory, the selector with this number, announced.
pub fn announcement(program: ProgramId, selector: u8, contract: &ContractId) -> SharedRow {
    PROGRESS.row(((program, Mark::<b'n'>), (selector, *contract)))
}

/// Names the row of a contract with events that may turn out to have a name by which a project selects events.
pub fn unnamed(program: ProgramId, contract: &ContractId) -> SharedRow {
    PROGRESS.row(((program, Mark::<b'u'>), *contract))
}

/// Names the row that says why the program that was to replace this one did not.
pub fn replacement_failure(program: ProgramId) -> SharedRow {
    PROGRESS.row((program, Mark::<b'r'>))
}

/// Names the row with the subscribers of a program.
pub fn subscribers(program: ProgramId) -> SharedRow {
    PROGRESS.row((program, Mark::<b's'>))
}

/// Names the row of a run that is to be repeated.
pub fn waiting(program: ProgramId, position: TransactionPosition) -> SharedRow {
    PROGRESS.row(((program, Mark::<b'w'>), position))
}

/// Names the row with the rows that a program's run on a transaction emitted.
pub fn rows_of_run(program: ProgramId, position: TransactionPosition) -> SharedRow {
    ROWS.row((program, position))
}

/// Names the row with the position of the run that was stored with this number in the row log.
fn logged(program: ProgramId, number: u64) -> SharedRow {
    ROW_LOG.row((program, number))
}

/// Names the row with the record of a run.
pub fn execution(program: ProgramId, number: u64) -> SharedRow {
    EXECUTIONS.row((program, number))
}

/// Names the row with the sums over a program's runs on a ledger, from one source.
pub fn sums(program: ProgramId, ledger: LedgerSeq, source: u8) -> SharedRow {
    STATS.row((program, (ledger, source)))
}

/// Returns all manifests, ordered by program id.
pub fn manifests(store: &Store) -> Result<Vec<(ProgramId, Vec<u8>)>, StoreError> {
    let mut found = Vec::new();
    store.shared_rows().scan(PROGRAMS, Direction::OldestFirst, &(), &(), |id, manifest| {
        found.push((id, manifest.to_vec()));
        Ok::<_, StoreError>(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Visits the parts of the summary of a project of events: their keys and values.
pub fn summary_parts(
    rows: &SharedRows<'_>,
    program: ProgramId,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), StoreError> {
    let prefix = (program, Mark::<b'f'>);
    rows.scan(PROGRESS, Direction::OldestFirst, &prefix, &(), |part: Vec<u8>, value| {
        visit(&part, value);
        Ok::<_, StoreError>(ControlFlow::Continue(()))
    })
}

/// Visits the members of a project after one of them, by id, until `visit` breaks.
pub fn members_after(
    store: &Store,
    program: ProgramId,
    after: Option<ContractId>,
    mut visit: impl FnMut(ContractId, &[u8]) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let prefix = (program, Mark::<b'm'>);
    let from = after.map(|contract| contract.encode()).unwrap_or_default();
    store.shared_rows().scan(PROGRESS, Direction::OldestFirst, &prefix, &from, |contract, row| {
        if Some(contract) == after { Ok(ControlFlow::Continue(())) } else { visit(contract, row) }
    })
}

/// Visits the members of a project that became known and are remembered, with their numbers, in this order.
pub fn all_newly_known(
    store: &Store,
    program: ProgramId,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let prefix = (program, Mark::<b'j'>);
    store.shared_rows().scan(PROGRESS, Direction::OldestFirst, &prefix, &(), |number, row| {
        visit(number, row).map(ControlFlow::Continue)
    })
}

/// Visits the contracts after one of them with events that may turn out to have a name by which a project selects
/// events, by id, until `visit` breaks.
pub fn unnamed_after(
    store: &Store,
    program: ProgramId,
    after: Option<ContractId>,
    mut visit: impl FnMut(ContractId, &[u8]) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let prefix = (program, Mark::<b'u'>);
    let from = after.map(|contract| contract.encode()).unwrap_or_default();
    store.shared_rows().scan(PROGRESS, Direction::OldestFirst, &prefix, &from, |contract, row| {
        if Some(contract) == after { Ok(ControlFlow::Continue(())) } else { visit(contract, row) }
    })
}

/// Visits the announcements of a project's members: the number of the selector, the contract, and the row.
pub fn announcements(
    store: &Store,
    program: ProgramId,
    mut visit: impl FnMut((u8, ContractId), &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let prefix = (program, Mark::<b'n'>);
    store.shared_rows().scan(PROGRESS, Direction::OldestFirst, &prefix, &(), |key, row| {
        visit(key, row).map(ControlFlow::Continue)
    })
}

/// Returns a program's waiting runs, in chain order.
pub fn waiting_runs(store: &Store, program: ProgramId) -> Result<Vec<WaitingRun>, StoreError> {
    let prefix = (program, Mark::<b'w'>);
    let mut found = Vec::new();
    store.shared_rows().scan(
        PROGRESS,
        Direction::OldestFirst,
        &prefix,
        &(),
        |position, value| {
            let from =
                LedgerSeq::decode(value).ok_or_else(|| waiting(program, position).damaged())?;
            found.push(WaitingRun { position, from });
            Ok::<_, StoreError>(ControlFlow::Continue(()))
        },
    )?;
    Ok(found)
}

/// Visits the transactions in a range of ledgers whose runs have rows, in chain order, until `visit`
/// breaks.
pub fn runs_with_rows(
    store: &Store,
    program: ProgramId,
    ledgers: LedgerRange,
    mut visit: impl FnMut(TransactionPosition) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let (rows, from) = (store.shared_rows(), ledgers.first);
    rows.scan(ROWS, Direction::OldestFirst, &program, &from, |position: TransactionPosition, _| {
        if ledgers.contains(position.ledger) { visit(position) } else { Ok(ControlFlow::Break(())) }
    })
}

/// Visits the runs with rows after a number of the row log, in the log's order, until `visit`
/// breaks.
pub fn row_log_after(
    store: &Store,
    program: ProgramId,
    number: u64,
    mut visit: impl FnMut(u64, TransactionPosition, &[u8]) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let rows = store.shared_rows();
    let from = number.saturating_add(1);
    rows.scan(ROW_LOG, Direction::OldestFirst, &program, &from, |number, value| {
        let damaged = || logged(program, number).damaged();
        let position = TransactionPosition::decode(value).ok_or_else(damaged)?;
        let emitted = rows.get(&rows_of_run(program, position))?;
        visit(number, position, &emitted.ok_or_else(damaged)?)
    })
}

/// Visits the rows of a program's runs on transactions after a position, in the order of the chain, until
/// `visit` breaks.
pub fn rows_after(
    store: &Store,
    program: ProgramId,
    after: TransactionPosition,
    mut visit: impl FnMut(TransactionPosition, &[u8]) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    store.shared_rows().scan(ROWS, Direction::OldestFirst, &program, &after, |position, rows| {
        if position <= after { Ok(ControlFlow::Continue(())) } else { visit(position, rows) }
    })
}

/// Visits the records of a program's runs, newest first, until `visit` breaks.
pub fn executions(
    store: &Store,
    program: ProgramId,
    visit: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, ProgramError>,
) -> Result<(), ProgramError> {
    store.shared_rows().scan(EXECUTIONS, Direction::NewestFirst, &program, &u64::MAX, visit)
}

/// Visits the sums of a program's ledgers in a range until `visit` breaks. Sums of one ledger from
/// different sources are adjacent.
pub fn stats(
    store: &Store,
    program: ProgramId,
    ledgers: LedgerRange,
    direction: Direction,
    mut visit: impl FnMut(LedgerSeq, u8, &[u8]) -> Result<ControlFlow<()>, ProgramError>,
) -> Result<(), ProgramError> {
    let from = match direction {
        Direction::OldestFirst => (ledgers.first, 0),
        Direction::NewestFirst => (ledgers.last, u8::MAX),
    };
    store.shared_rows().scan(STATS, direction, &program, &from, |(ledger, source), sums| {
        match ledgers.contains(ledger) {
            true => visit(ledger, source, sums),
            false => Ok(ControlFlow::Break(())),
        }
    })
}

/// Returns whether a visit goes on.
pub fn more_if(more: bool) -> ControlFlow<()> {
    if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Puts a value as JSON. It consists of numbers and texts, whose serialisation cannot fail.
pub fn put_json(
    changes: &mut KindChanges<'_>,
    row: &SharedRow,
    value: &impl Serialize,
) -> Result<(), StoreError> {
    changes.put(row, serde_json::to_vec(value).expect("numbers and texts serialize"))
}

/// Puts a run that is to be repeated.
pub fn put_waiting_run(
    changes: &mut KindChanges<'_>,
    program: ProgramId,
    run: WaitingRun,
) -> Result<(), StoreError> {
    changes.put(&waiting(program, run.position), run.from.encode())
}

/// Puts the rows of a run, and the entry with this number in the row log.
pub fn put_rows(
    changes: &mut KindChanges<'_>,
    program: ProgramId,
    position: TransactionPosition,
    number: u64,
    rows: &[u8],
) -> Result<(), StoreError> {
    changes.put(&rows_of_run(program, position), rows)?;
    changes.put(&logged(program, number), position.encode())
}

/// Deletes a program with its progress, rows and records. Keeps its module, which another program
/// may use.
pub fn delete_program(changes: &mut KindChanges<'_>, id: ProgramId) -> Result<(), StoreError> {
    changes.delete_consumer(id);
    changes.delete(&manifest(id))?;
    let end = id.0.checked_add(1).map_or(vec![u8::MAX; 16], |next| next.encode());
    [PROGRESS, ROWS, ROW_LOG, EXECUTIONS, STATS]
        .into_iter()
        .try_for_each(|family| changes.delete_range(family, &id.encode(), &end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_keys_are_as_ever() {
        let (program, contract) = (ProgramId(3), ContractId([5; 32]));
        let position = TransactionPosition { ledger: LedgerSeq(258), application_order: 772 };
        for (row, family, key) in [
            (manifest(program), "programs", "00000003".to_owned()),
            (module(&Hash32([7; 32])), "wasm", "07".repeat(32)),
            (progress(program), "program_progress", "00000003".to_owned()),
            (backfill(program), "program_progress", "0000000362".to_owned()),
            (summary(program, &[9, 8]), "program_progress", "00000003660908".to_owned()),
            (replacement_failure(program), "program_progress", "0000000372".to_owned()),
            (subscribers(program), "program_progress", "0000000373".to_owned()),
            (
                unnamed(program, &contract),
                "program_progress",
                format!("0000000375{}", "05".repeat(32)),
            ),
            (waiting(program, position), "program_progress", "000000037700000102000304".to_owned()),
            (rows_of_run(program, position), "rows", "0000000300000102000304".to_owned()),
            (logged(program, 9), "row_log", "000000030000000000000009".to_owned()),
            (execution(program, 9), "executions", "000000030000000000000009".to_owned()),
            (sums(program, LedgerSeq(258), 1), "program_stats", "000000030000010201".to_owned()),
        ] {
            assert_eq!((row.family.name, hex::encode(row.key)), (family, key));
        }
        assert_eq!(TransactionPosition::decode(&position.encode()), Some(position));
        assert_eq!(TransactionPosition::decode(&[0; 6]), None);
    }
}
