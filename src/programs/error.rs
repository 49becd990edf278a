//! Why something asked of the programs was not done.

use super::engine::{EngineError, RunError};
use super::state::{StateError, UpstreamError};
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
    /// An owner has as many programs as an owner may have.
    #[error("you have {0} programs, which is as many as one owner may have: delete one")]
    TooManyPrograms(usize),
    /// An owner has as many subscriptions as an owner may have.
    #[error("you have {0} subscriptions, which is as many as one owner may have: end one")]
    TooManySubscriptions(usize),
    /// Nobody's public project.
    #[error("there is no public project '{0}': check its name with its owner")]
    NotPublic(String),
    /// A contract is registered already.
    #[error("the contract {0} is registered for this program already: leave it out")]
    Registered(ContractId),
    /// The operator has a list of contracts that are indexed, and this one is not on it.
    #[error(
        "the contract {0} is not indexed here, so that a program for it would never run: leave it out, or \
         ask the operator to add it to index.contracts"
    )]
    NotIndexed(ContractId),
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
    /// Nobody waits for the answer any more.
    #[error("the trial was ended, because nobody waited for its answer any more")]
    Interrupted,
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
    Run(#[from] RunError),
    /// A table that two runs made grow at the same time has no place for the rows of the second.
    #[error("rows of a run do not fit to its table as it is now: {0}")]
    Outgrown(String),
    /// Something stored is not what it should be.
    #[error("{0} is damaged in the store: restore a backup, or delete the program")]
    Damaged(&'static str),
}

/// Whose trouble it is that something cannot be done for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The service's: its store fails.
    Store,
    /// The service's: the server that it asks for entries answers nobody.
    Upstream,
    /// The program's, or of what it is run on.
    Own,
}

impl ProgramError {
    /// Whose trouble it is.
    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::Store(_) => Cause::Store,
            Self::State(error) | Self::Run(RunError::State(error)) => match error {
                StateError::Store(_) => Cause::Store,
                StateError::Upstream(UpstreamError::OutOfReach(_)) => Cause::Upstream,
                _ => Cause::Own,
            },
            _ => Cause::Own,
        }
    }

    /// Whether it only says that another server has to be asked, in a turn in which that may be done.
    pub(super) fn asks(&self) -> bool {
        let (Self::State(error) | Self::Run(RunError::State(error))) = self else { return false };
        matches!(error, StateError::Upstream(UpstreamError::NotNow))
    }

    /// Whether its sentence is for the operator alone: it may name files, other servers, or what a library
    /// says.
    pub fn is_internal(&self) -> bool {
        matches!(
            self,
            Self::Tables(_)
                | Self::State(_)
                | Self::Transaction(_)
                | Self::Store(_)
                | Self::Run(_)
                | Self::Engine(_)
                | Self::Outgrown(_)
                | Self::NotReady(_)
                | Self::Damaged(_)
        )
    }

    /// The sentence for whoever asked: its own, or for what is internal one that says nothing of what is
    /// inside.
    pub fn sentence(&self) -> String {
        match self {
            Self::Tables(_) => {
                "the tables cannot be used right now: try again, and give the operator the request id \
                 when it persists"
                    .to_owned()
            }
            Self::State(error) | Self::Run(RunError::State(error)) => match error {
                StateError::Upstream(_) => {
                    format!("{}: try again in a moment", self.waits_for())
                }
                _ => INTERNAL.to_owned(),
            },
            error if error.is_internal() => INTERNAL.to_owned(),
            error => error.to_string(),
        }
    }

    /// Why a program has to wait, for its owner.
    pub(super) fn waits_for(&self) -> String {
        match self {
            Self::Store(_) | Self::State(StateError::Store(_)) => "the store fails".to_owned(),
            Self::State(StateError::Upstream(error))
            | Self::Run(RunError::State(StateError::Upstream(error))) => match error {
                UpstreamError::Behind(at, wanted) => format!(
                    "the server that is asked for ledger entries has got as far as ledger {at}, and \
                     {wanted} is run"
                ),
                UpstreamError::Busy => {
                    "too many questions are being asked of the server that knows ledger entries"
                        .to_owned()
                }
                UpstreamError::NotNow => {
                    "the server that knows ledger entries is asked in another turn".to_owned()
                }
                UpstreamError::Odd(_) => {
                    "the server that is asked for ledger entries answers what cannot be".to_owned()
                }
                UpstreamError::OutOfReach(_) | UpstreamError::Refused(_) => {
                    "the server that is asked for ledger entries is out of reach".to_owned()
                }
            },
            Self::Run(RunError::State(StateError::Store(_))) => "the store fails".to_owned(),
            error if error.is_internal() => {
                "a run cannot be made for a reason that the operator reads in the log".to_owned()
            }
            error => error.to_string(),
        }
    }
}

const INTERNAL: &str = "the service failed on this request: try again, and give the operator the \
                        request id when it persists";
impl From<EngineError> for ProgramError {
    fn from(error: EngineError) -> Self {
        match error.is_about_the_module() {
            true => Self::Module(error.to_string()),
            false => Self::Engine(error),
        }
    }
}
