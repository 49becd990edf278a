//! Why something asked of the programs was not done.

use super::engine::EngineError;
use super::state::StateError;
use super::transaction::TransactionError;
use crate::domain::{ContractId, ProgramId};
use crate::store::StoreError;
use crate::tables::TablesError;
use crate::tables::query::QueryError;

/// Why something asked of the programs was not done. Then nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such program.
    #[error("there is no program {0}: see /rest/retroshade/list for yours")]
    Unknown(ProgramId),
    /// Somebody else's program.
    #[error("program {0} is not yours: only its owner may do this")]
    NotYours(ProgramId),
    /// The project's name is taken.
    #[error("the project name '{0}' is taken on this network: choose another")]
    ProjectExists(String),
    /// A contract is registered already.
    #[error("the contract {0} is registered for this program already: leave it out")]
    Registered(ContractId),
    /// A value of the request is malformed: its name, and the rest of a sentence.
    #[error("'{name}' {problem}")]
    Value {
        /// Name of the value.
        name: &'static str,
        /// What is wrong, and what to give instead.
        problem: String,
    },
    /// The module cannot be a program.
    #[error("{0}")]
    Module(String),
    /// The program's module has not been made ready.
    #[error("program {0} has not been made ready to run")]
    NotReady(ProgramId),
    /// An owner has as many rows as an owner may have.
    #[error("the rows of '{0}' take as much room as one owner may use: delete a program")]
    Full(String),
    /// A backfill of the program is under way.
    #[error("a backfill of program {0} is under way: wait for it, or cancel it")]
    BackfillRuns(ProgramId),
    /// No backfill of the program was asked for.
    #[error("no backfill of program {0} was asked for")]
    NoBackfill(ProgramId),
    /// A transaction is not stored.
    #[error("the transaction {0} is not stored: give the hash of one that is")]
    UnknownTransaction(String),
    /// Too much at a time.
    #[error("too many modules are being looked at: try again in a moment")]
    Busy,
    /// The query was not answered.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The tables failed.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The engine failed.
    #[error(transparent)]
    Engine(EngineError),
    /// Looking into the state failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// A stored transaction cannot be read.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run failed through no fault of the program's.
    #[error("a run could not be made: {0}")]
    Run(String),
    /// Something stored is not what it should be.
    #[error("{0} is damaged in the store: restore a backup, or delete the program")]
    Damaged(&'static str),
}

impl From<EngineError> for ProgramError {
    fn from(error: EngineError) -> Self {
        match error.is_about_the_module() {
            true => Self::Module(error.to_string()),
            false => Self::Engine(error),
        }
    }
}
