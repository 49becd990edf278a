//! What is kept of the events of some transactions besides the events themselves.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::spans::{Unnamed, just_before};
use super::unsure::Unsure;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::TransactionPosition;
use orrery_tables::event_tables::Shapes;

/// What the events of some transactions add to the summary of a project.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Shapes of the events.
    pub shapes: Shapes,
    /// Transactions with events of contracts whose code is not known.
    pub unsure: Unsure,
    /// Transactions with events of contracts of which it is not known whether they belong to the project.
    pub apart: Unsure,
    /// Transactions with events that may turn out to have a name by which the project selects events.
    pub unnamed: Unnamed,
    /// Contracts with events that no interface declares.
    pub nameless: Nameless,
    /// Changes of contract data of which something is not known.
    pub open: Open,
}

/// Changes of contract data of which something is not known: where the first of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Open(Option<(u32, u32)>);

impl Open {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the position before the first of them; `None` without any.
    pub fn after(&self) -> Option<TransactionPosition> {
        let (ledger, application_order) = self.0?;
        Some(just_before(TransactionPosition { ledger: LedgerSeq(ledger), application_order }))
    }

    /// Adds a transaction with such changes. Returns whether it is the first one.
    pub fn add(&mut self, at: TransactionPosition) -> bool {
        self.join(Self(Some((at.ledger.0, at.application_order))))
    }

    /// Adds others. Returns whether that changes anything.
    pub fn join(&mut self, more: Self) -> bool {
        let first = self.0.into_iter().chain(more.0).min();
        std::mem::replace(&mut self.0, first) != first
    }
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
