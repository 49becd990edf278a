//! What is kept of the events of some transactions besides the events themselves.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Unsure;
use orrery_ledger::domain::ContractId;
use orrery_tables::event_tables::Shapes;

/// What the events of some transactions add to the summary of a project.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Shapes of the events.
    pub shapes: Shapes,
    /// Transactions with events of contracts whose code is not known.
    pub unsure: Unsure,
    /// Contracts with events that no interface declares.
    pub nameless: Nameless,
}

/// Contracts with events that no interface declares; there are no more than the project has. Stored in
/// the order of the strkeys, which is not that of the ids.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "BTreeSet<String>")]
pub struct Nameless(BTreeSet<ContractId>);

impl From<Nameless> for BTreeSet<String> {
    fn from(nameless: Nameless) -> Self {
        nameless.0.iter().map(ToString::to_string).collect()
    }
}

impl Nameless {
    /// Whether a contract is one of them.
    pub fn has(&self, contract: &ContractId) -> bool {
        self.0.contains(contract)
    }

    /// Adds a contract.
    pub fn add(&mut self, contract: ContractId) {
        self.0.insert(contract);
    }

    /// Adds others. Returns whether that changes anything.
    pub fn join(&mut self, more: &Self) -> bool {
        let before = self.0.len();
        self.0.extend(&more.0);
        self.0.len() != before
    }
}
