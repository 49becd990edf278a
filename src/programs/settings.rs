//! Settings of the programs that the operator may choose.

use std::collections::BTreeSet;

use super::ProgramError;
use super::engine::{CheckRules, Limits};
use super::state::LookupLimits;
use crate::domain::ContractId;
use crate::tables::schema::SchemaLimits;

/// Settings that the operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits of a run.
    pub limits: Limits,
    /// Limits of a run's lookups on the upstream server for ledger entries.
    pub lookups: LookupLimits,
    /// Maximum size of one owner's rows, in bytes.
    pub owner_bytes: u64,
    /// Maximum number of programs per owner.
    pub owner_programs: usize,
    /// Maximum number of subscriptions to other owners' programs, per owner.
    pub owner_subscriptions: usize,
    /// The only contracts that are indexed; `None` when all are.
    pub indexed: Option<BTreeSet<ContractId>>,
}

impl Settings {
    /// Returns the rules that a module must meet before it runs.
    pub(super) fn check_rules(&self) -> CheckRules {
        CheckRules { memory: self.limits.memory, ..CheckRules::default() }
    }

    /// Checks that all these contracts are indexed: a program for a contract that is not would
    /// never run.
    pub(super) fn check_indexed(&self, contracts: &[ContractId]) -> Result<(), ProgramError> {
        let Some(indexed) = &self.indexed else { return Ok(()) };
        match contracts.iter().find(|id| !indexed.contains(id)) {
            Some(id) => Err(ProgramError::NotIndexed(*id)),
            None => Ok(()),
        }
    }

    /// Returns the limits for the growth of a table.
    pub(super) fn schema_limits(&self) -> SchemaLimits {
        SchemaLimits {
            columns: self.limits.columns,
            depth: self.limits.depth,
            ..SchemaLimits::default()
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            lookups: LookupLimits::default(),
            owner_bytes: 10 << 30,
            owner_programs: 20,
            owner_subscriptions: 20,
            indexed: None,
        }
    }
}
