//! The outcome of a transaction on contract entries.

use stellar_xdr::{ContractEvent, DiagnosticEvent, LedgerEntryChange, OperationResultTr, ScVal};

/// Outcome of a transaction that invokes a contract, or extends or restores a footprint.
pub(super) struct Execution {
    pub(super) result: OperationResultTr,
    /// `None` when the transaction failed and changed nothing.
    pub(super) effects: Option<Effects>,
    /// Refundable fee that was used, in stroops, rent included.
    pub(super) refundable_used: i64,
    pub(super) rent_fee: i64,
    /// What the host tells of a failed call; empty for a successful one, as from a node that keeps
    /// diagnostics of failures only.
    pub(super) diagnostics: Vec<DiagnosticEvent>,
}

/// Changes, events and return value of a successful execution.
pub(super) struct Effects {
    pub(super) changes: Vec<LedgerEntryChange>,
    pub(super) events: Vec<ContractEvent>,
    pub(super) return_value: Option<ScVal>,
}

impl Execution {
    pub(super) fn failed(result: OperationResultTr) -> Self {
        Self { result, effects: None, refundable_used: 0, rent_fee: 0, diagnostics: Vec::new() }
    }
}
