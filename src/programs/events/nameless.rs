//! Contracts of a project with events that no interface declares.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::domain::ContractId;

/// Contracts with events that no interface declares; there are no more than the project has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeSet<String>", into = "BTreeSet<String>")]
pub struct Nameless(BTreeSet<ContractId>);

impl TryFrom<BTreeSet<String>> for Nameless {
    type Error = <ContractId as FromStr>::Err;

    fn try_from(stored: BTreeSet<String>) -> Result<Self, Self::Error> {
        stored.iter().map(|contract| contract.parse()).collect::<Result<_, _>>().map(Self)
    }
}

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
