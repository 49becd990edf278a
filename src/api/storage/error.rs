//! Why there is no answer about what a contract holds.

use serde_json::{Value, json};
use warp::http::StatusCode;

use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};

/// Why there is no answer about what a contract holds.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Nothing is recorded.
    #[error(
        "what contracts hold is not recorded here: the operator can turn it on with [index] storage"
    )]
    Off,
    /// What contracts held at the end of the ledger cannot be told.
    #[error("{}", not_stored(*ledger, *nearest))]
    LedgerNotStored {
        /// The ledger that was asked for; `None` for the newest one.
        ledger: Option<LedgerSeq>,
        /// The nearest ledgers for which it can.
        nearest: Option<LedgerRange>,
    },
    /// The list that a cursor continues is of such a ledger.
    #[error(
        "the list of ledger {ledger} cannot be continued: that ledger is not stored any more, so begin \
         again without 'cursor'"
    )]
    LedgerRemoved {
        /// The ledger.
        ledger: LedgerSeq,
        /// As above.
        nearest: Option<LedgerRange>,
    },
    /// There is no such entry.
    #[error("the contract has no entry with the key hash {key_hash} at the end of ledger {ledger}")]
    Absent {
        /// The SHA-256 of the key's XDR `LedgerKey`.
        key_hash: Hash32,
        /// The ledger.
        ledger: LedgerSeq,
    },
    /// The key belongs to another contract.
    #[error("the key hash {key_hash} belongs to the contract {contract}: ask for its storage")]
    OfAnotherContract {
        /// The SHA-256 of the key's XDR `LedgerKey`.
        key_hash: Hash32,
        /// The contract.
        contract: ContractId,
    },
    /// It is not known what the entry is.
    #[error("{}", unknown(key_hash, *ledger, *known_in))]
    Unknown {
        /// The SHA-256 of the key's XDR `LedgerKey`.
        key_hash: Hash32,
        /// The ledger.
        ledger: LedgerSeq,
        /// Last ledger in which the entry is live, if that is known.
        live_until: Option<LedgerSeq>,
        /// Other stored ledgers in which the contract is known.
        known_in: Option<LedgerRange>,
    },
    /// The order is not possible for so many entries. Contains the name of the parameter.
    #[error(
        "parameter '{0}' is possible for contracts of up to 100,000 entries, and this one has more: leave \
         it out, so that the list is ordered by 'key_hash'"
    )]
    TooManyEntries(&'static str),
    /// The order is not possible for so many entries whose newest change does not say where they stand.
    /// Contains the name of the parameter.
    #[error(
        "parameter '{0}' is possible where up to 10,000 entries have to be looked up one by one, such as \
         those that changed after the ledger, and here it would be more: leave it out, so that the list is \
         ordered by 'key_hash', or select fewer entries"
    )]
    TooManyLookups(&'static str),
    /// The path names another network.
    #[error(
        "this service has the network '{served}', and not '{asked}': ask it below /{served}/api, or ask a \
         service of the other network"
    )]
    OtherNetwork {
        /// The name in the path, shortened.
        asked: String,
        /// The name of the service's network.
        served: &'static str,
    },
    /// Parameters that a client of the Lab's form gave are malformed.
    #[error("{0}")]
    Issues(Issues),
}

/// What is wrong with parameters, in the form that clients of the Lab's backend expect.
#[derive(Debug, thiserror::Error)]
#[error("Invalid {of} parameters")]
pub struct Issues {
    /// `query` or `path`.
    pub of: &'static str,
    /// What is wrong.
    pub issues: Vec<Issue>,
}

/// What is wrong with a parameter.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Issue {
    /// Name of the parameter.
    pub path: &'static str,
    /// A sentence for people.
    pub message: String,
    /// A word for programs: those of the validator of the Lab's backend.
    pub code: &'static str,
}

impl StorageError {
    /// Returns the HTTP status and the stable value of the `code` field.
    pub fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Off => (StatusCode::CONFLICT, "storage_off"),
            Self::LedgerNotStored { .. } => (StatusCode::NOT_FOUND, "ledger_not_stored"),
            Self::LedgerRemoved { .. } => (StatusCode::GONE, "ledger_removed"),
            Self::Absent { .. } | Self::OfAnotherContract { .. } => {
                (StatusCode::NOT_FOUND, "entry_absent")
            }
            Self::OtherNetwork { .. } => (StatusCode::NOT_FOUND, "not_found"),
            Self::Unknown { .. } => (StatusCode::NOT_FOUND, "entry_unknown"),
            Self::TooManyEntries(_) | Self::TooManyLookups(_) | Self::Issues(_) => {
                (StatusCode::BAD_REQUEST, "bad_parameter")
            }
        }
    }

    /// Adds the members that an error of this kind has beside its sentence.
    pub fn add_to(&self, body: &mut Value) {
        match self {
            Self::LedgerNotStored { nearest, .. } | Self::LedgerRemoved { nearest, .. } => {
                body["nearest"] = json!(nearest);
            }
            Self::OfAnotherContract { contract, .. } => body["contract_id"] = json!(contract),
            Self::Unknown { live_until, known_in, .. } => {
                body["live_until_ledger"] = json!(live_until);
                body["known_in"] = json!(known_in);
            }
            Self::Off
            | Self::Absent { .. }
            | Self::TooManyEntries(_)
            | Self::TooManyLookups(_)
            | Self::OtherNetwork { .. }
            | Self::Issues(_) => {}
        }
    }
}

fn not_stored(ledger: Option<LedgerSeq>, nearest: Option<LedgerRange>) -> String {
    let what = match ledger {
        Some(ledger) => format!("ledger {ledger} is not stored, or its transactions are not"),
        None => "no ledger is stored yet".to_owned(),
    };
    match nearest {
        Some(LedgerRange { first, last }) => {
            format!("{what}: give a ledger of the nearest stored range, from {first} to {last}")
        }
        None => format!("{what}: ask again when the service has stored some"),
    }
}

fn unknown(key_hash: &Hash32, ledger: LedgerSeq, known_in: Option<LedgerRange>) -> String {
    let what = format!(
        "what the entry with the key hash {key_hash} held at the end of ledger {ledger} is not known \
         from the stored ledgers"
    );
    match known_in {
        Some(LedgerRange { first, last }) => {
            format!("{what}: the contract is known in the ledgers from {first} to {last}")
        }
        None => {
            format!("{what}: ask with 'key' in place of the hash to learn whether it is absent")
        }
    }
}
