//! Errors of requests to the programs.

use super::engine::{EngineError, RunError};
use super::engine::{StateError, UpstreamError};
use super::transaction::TransactionError;
use orrery_interfaces::ReadError;
use orrery_ledger::domain::{ContractId, LedgerSeq, ProgramId};
use orrery_store::StoreError;
use orrery_tables::TablesError;
use orrery_tables::query::QueryError;

/// Why a request to the programs failed. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no program with this id.
    #[error("there is no program {0}: see /rest/retroshade/list for yours")]
    Unknown(ProgramId),
    /// The program belongs to another owner.
    #[error("program {0} is not yours: only its owner may do this")]
    NotYours(ProgramId),
    /// The project name is taken on this network.
    #[error("the project name '{0}' is taken on this network: choose another")]
    ProjectExists(String),
    /// The owner has a project of this name.
    #[error(
        "'project_name' '{0}' is a project of yours already: give 'replace' to replace it by a new \
         version, or choose another name"
    )]
    OwnProject(String),
    /// There is no project with this name that could be replaced, or another owner's private one, which
    /// must look the same.
    #[error(
        "there is no project '{0}' of yours to replace: check its name, or make a new one without \
         replacing"
    )]
    UnknownProject(String),
    /// The project that was to be replaced is a public one of another owner.
    #[error("the project '{0}' belongs to another owner: only its owner may replace it")]
    OthersProject(String),
    /// The program is being replaced, or is to replace another one.
    #[error(
        "program {by} is about to replace the project '{project}': wait until it has, or delete program {by}"
    )]
    ReplacementRunning {
        /// Name of the project.
        project: String,
        /// The program that is to replace the one with this name.
        by: ProgramId,
    },
    /// The owner already has this many programs, the maximum.
    #[error("you have {0} programs, which is as many as one owner may have: delete one")]
    TooManyPrograms(usize),
    /// The projects of all owners, or of this one, have this many members, the maximum.
    #[error(
        "{} have {most} members, as many as there may be: {}",
        if *of_owner { "your projects" } else { "the projects of this service" },
        if *of_owner { "delete one, or name the contracts" } else { "name the contracts instead" }
    )]
    TooManyMembers {
        /// The maximum.
        most: usize,
        /// Whether it is that of one owner.
        of_owner: bool,
    },
    /// The owner already has this many subscriptions, the maximum.
    #[error("you have {0} subscriptions, which is as many as one owner may have: end one")]
    TooManySubscriptions(usize),
    /// There is no public project with this name.
    #[error("there is no public project '{0}': check its name with its owner")]
    NotPublic(String),
    /// The contract is already registered for the program.
    #[error("the contract {0} is registered for this program already: leave it out")]
    Registered(ContractId),
    /// The operator restricts indexing to a list of contracts, which does not contain this one.
    #[error(
        "the contract {0} is not indexed here, so that a program for it would never run: leave it out, or \
         ask the operator to add it to index.contracts"
    )]
    NotIndexed(ContractId),
    /// A value of the request is malformed.
    #[error("'{name}' {problem}")]
    Value {
        /// Name of the value, which begins the message.
        name: &'static str,
        /// Rest of the message: what is wrong, and what to give instead.
        problem: String,
    },
    /// The module has none of the functions of its contracts.
    #[error(
        "'code' has none of the functions of the contract {contract}, which has {functions}: it has {own}, and \
         each of its runs would fail; give the module for these contracts, or 'allow_unfit' if they are to \
         have its functions, or had them"
    )]
    Unfit {
        /// The first of the contracts.
        contract: ContractId,
        /// Some functions of the contract.
        functions: String,
        /// Some functions of the module.
        own: String,
    },
    /// The module cannot be a program. Contains the message.
    #[error("{0}")]
    Module(String),
    /// The supplied interface cannot be read. Contains the reason.
    #[error("spec cannot be read: {0}")]
    Supplied(String),
    /// The supplied interface is larger than one may be. Contains the message.
    #[error("spec cannot be read: {0}")]
    SuppliedTooLarge(String),
    /// The program's module is not loaded.
    #[error("program {0} has not been made ready to run")]
    NotReady(ProgramId),
    /// The rows of the owner have reached the size limit.
    #[error("the rows of '{0}' have reached the size limit of one owner: delete a program")]
    Full(String),
    /// A backfill of the program is in progress.
    #[error("a backfill of program {0} is under way: wait for it, or cancel it")]
    BackfillRunning(ProgramId),
    /// No backfill of the program was ever requested.
    #[error("no backfill of program {0} was asked for")]
    NoBackfill(ProgramId),
    /// What contracts hold is not recorded.
    #[error(
        "what contracts hold is not recorded here: leave 'storage' out, or ask the operator to turn it on \
         with [index] storage"
    )]
    StorageOff,
    /// The index of what contracts hold has not processed the ledger yet.
    #[error(
        "what contracts hold is not indexed up to ledger {0} yet: the project goes on when it is"
    )]
    DataNotIndexed(LedgerSeq),
    /// The client stopped waiting for the answer.
    #[error("the trial was cancelled, because the client no longer waits for its answer")]
    Interrupted,
    /// The transaction is not stored.
    #[error("the transaction {0} is not stored: give the hash of one that is")]
    UnknownTransaction(String),
    /// All slots are taken, or the owner already holds one.
    #[error("too many modules are being checked: try again in a moment")]
    Busy,
    /// The query failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The tables failed.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The engine failed.
    #[error(transparent)]
    Engine(EngineError),
    /// Reading the state before a transaction failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// A stored transaction cannot be decoded.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run had no outcome.
    #[error("a run failed: {0}")]
    Run(#[from] RunError),
    /// The rows of a run do not fit their table, because another run changed its schema in the
    /// meantime.
    #[error("rows of a run do not fit the current columns of their table: {0}")]
    SchemaConflict(String),
    /// A stored record cannot be decoded.
    #[error("{0} is damaged in the store: restore a backup, or delete the program")]
    Damaged(&'static str),
}

/// Which component causes a program's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The service: its store fails.
    Store,
    /// The service: the upstream server for ledger entries answers no requests.
    Upstream,
    /// The program, or the data that it is run on.
    Own,
}

impl ProgramError {
    /// Returns it as those see it who only read what the store has.
    pub(super) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            other => StoreError::Database(other.to_string()),
        }
    }

    /// Returns the component that causes the failure.
    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::Store(_) => Cause::Store,
            Self::State(error) | Self::Run(RunError::State(error)) => match error {
                StateError::Store(_) => Cause::Store,
                StateError::Upstream(UpstreamError::Unreachable(_)) => Cause::Upstream,
                _ => Cause::Own,
            },
            _ => Cause::Own,
        }
    }

    /// Returns whether the error only means that another server must be asked, in a turn that may
    /// wait for it.
    pub(super) fn needs_upstream(&self) -> bool {
        let (Self::State(error) | Self::Run(RunError::State(error))) = self else { return false };
        matches!(error, StateError::Upstream(UpstreamError::NotNow))
    }

    /// Returns whether the message is for the operator only, because it may name files, other
    /// servers or errors of libraries.
    pub fn is_internal(&self) -> bool {
        matches!(
            self,
            Self::Tables(_)
                | Self::State(_)
                | Self::Transaction(_)
                | Self::Store(_)
                | Self::Run(_)
                | Self::Engine(_)
                | Self::SchemaConflict(_)
                | Self::NotReady(_)
                | Self::Damaged(_)
        )
    }

    /// Returns the message for the user: the error's own, or a generic one when the error is
    /// internal.
    pub fn sentence(&self) -> String {
        match self {
            Self::Tables(_) => {
                "the tables cannot be used right now: try again, and give the operator the request id \
                 when it persists"
                    .to_owned()
            }
            Self::State(error) | Self::Run(RunError::State(error)) => match error {
                StateError::Upstream(_) => {
                    format!("{}: try again in a moment", self.wait_reason())
                }
                _ => INTERNAL.to_owned(),
            },
            error if error.is_internal() => INTERNAL.to_owned(),
            error => error.to_string(),
        }
    }

    /// Returns the reason why a program has to wait, for its owner.
    pub(super) fn wait_reason(&self) -> String {
        match self {
            Self::Store(_) | Self::State(StateError::Store(_)) => "the store fails".to_owned(),
            Self::State(StateError::Upstream(error))
            | Self::Run(RunError::State(StateError::Upstream(error))) => match error {
                UpstreamError::Behind(at, wanted) => format!(
                    "the server that is asked for ledger entries has reached ledger {at} only, and \
                     ledger {wanted} is being run"
                ),
                UpstreamError::Busy => {
                    "too many requests to the server for ledger entries are in progress".to_owned()
                }
                UpstreamError::NotNow => {
                    "the request to the server for ledger entries is postponed".to_owned()
                }
                UpstreamError::Inconsistent(_) => {
                    "the server that is asked for ledger entries contradicts itself".to_owned()
                }
                UpstreamError::Unreachable(_) | UpstreamError::Refused(_) => {
                    "the server that is asked for ledger entries is out of reach".to_owned()
                }
            },
            Self::Run(RunError::State(StateError::Store(_))) => "the store fails".to_owned(),
            error if error.is_internal() => {
                "a run failed for an internal reason: the operator finds it in the log".to_owned()
            }
            error => error.to_string(),
        }
    }
}

const INTERNAL: &str = "the service failed on this request: try again, and give the operator the \
                        request id when it persists";
impl From<ReadError> for ProgramError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge { .. } => Self::SuppliedTooLarge(error.to_string()),
            error => Self::Supplied(error.to_string()),
        }
    }
}

impl From<EngineError> for ProgramError {
    fn from(error: EngineError) -> Self {
        if error.is_about_the_module() {
            Self::Module(error.to_string())
        } else {
            Self::Engine(error)
        }
    }
}
