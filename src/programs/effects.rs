//! What the runs of a program on one ledger leave, before it is written.

use std::collections::BTreeSet;

use super::events::{Kinds, Summary, Versions};
use super::manifest::Manifest;
use super::records::{Execution, RunSource};
use super::rows::RunRows;
use orrery_contract_data::LAST_ORDER;
use orrery_ledger::domain::{ContractId, LedgerSeq, TxHash};
use orrery_store::{Arrival, TransactionPosition};
use orrery_tables::schema::ProgramSchema;

/// Size in bytes of the stored rows that the runs on one ledger may emit before the results so far
/// are written and the rest of the ledger becomes a part of its own. In memory, the values take
/// five to six times as much.
pub(super) const PART_BYTES: usize = 4 << 20;

/// Results of the runs of one program on one ledger.
pub(super) struct Effects {
    pub ledger: LedgerSeq,
    pub source: RunSource,
    /// Whether the ledger was newer than all ledgers stored before. Only the runs on such ledgers
    /// count when a program is stopped because it fails.
    pub arrival: Arrival,
    /// Place of the ledger in the feed; 0 when it does not come from the feed.
    pub place: u64,
    /// Contracts that were registered when the runs were started.
    pub contracts: Vec<ContractId>,
    pub schema: ProgramSchema,
    pub runs: Vec<Run>,
    /// What the events read so far add to the summary of a project of events.
    pub summary: Summary,
    /// Size of the emitted rows in stored form, in bytes.
    pub bytes: usize,
    /// First ledger of the range stored without a gap up to this ledger, as of before the first
    /// run.
    pub stored_from: Option<LedgerSeq>,
    /// First transaction that is left for another turn; `None` when all were run.
    pub rest: Option<TransactionPosition>,
    /// Whether, as far as the runs have got, all transactions of the contracts were available.
    pub complete: bool,
    /// What was known of interfaces when events were read: see `Interfaces::generation`.
    pub known: u64,
    /// The versions of a project's members with which the events were read.
    pub members: Option<Versions>,
    /// The only member that is read; all when `None`.
    pub only: Option<Only>,
    /// Transactions that a trial selects; `None` selects all.
    pub selected: Option<BTreeSet<TxHash>>,
    /// Transactions whose runs are repeated; `None` selects all.
    pub repeated: Option<BTreeSet<TransactionPosition>>,
}

/// The only member that is read of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Only {
    pub contract: ContractId,
    /// Whether changes of what it holds are read beside its events.
    pub has_data: bool,
}

/// Result of one run.
pub(super) struct Run {
    pub position: TransactionPosition,
    pub execution: Execution,
    pub fuel: u64,
    /// Rows of a program. Empty when the run failed or emitted nothing, and for a project of events.
    pub rows: RunRows,
    /// Events of a project, by kind.
    pub kinds: Kinds,
    /// Stored form of the rows, or of the events. Empty when there are none.
    pub encoded: Vec<u8>,
}

impl Run {
    /// Whether this is no run on a transaction, but what the end of a ledger has done to the data of
    /// contracts, or what was found before the first one: there is no record of it.
    pub(super) fn is_of_no_transaction(&self) -> bool {
        self.position.application_order == LAST_ORDER || self.position.ledger.0 == 0
    }
}

impl Effects {
    /// Creates effects without any runs.
    pub(super) fn none(manifest: &Manifest, ledger: LedgerSeq, source: RunSource) -> Self {
        Self {
            ledger,
            source,
            arrival: Arrival::Live,
            place: 0,
            contracts: manifest.contracts.clone(),
            schema: manifest.schema.clone(),
            runs: Vec::new(),
            summary: Summary::default(),
            bytes: 0,
            stored_from: None,
            rest: None,
            complete: false,
            known: 0,
            members: None,
            only: None,
            selected: None,
            repeated: None,
        }
    }

    /// Returns whether the results must be written before further runs are made. A trial writes
    /// nothing and has limits of its own.
    pub(super) fn is_part(&self) -> bool {
        self.bytes >= PART_BYTES && self.selected.is_none()
    }

    pub(super) fn add(&mut self, run: Run) {
        self.bytes += run.encoded.len();
        self.runs.push(run);
    }
}
