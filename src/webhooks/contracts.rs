//! Which contracts a subscription is about.

use orrery_ledger::domain::ContractId;

/// The contracts of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contracts {
    /// This one.
    One(ContractId),
    /// Those of the project with this name.
    Project(String),
    /// Any.
    Any,
}

impl Contracts {
    /// Whether a contract may be one of them.
    pub fn has(&self, contract: &ContractId) -> bool {
        match self {
            Self::One(one) => one == contract,
            // Its events say which.
            Self::Project(_) | Self::Any => true,
        }
    }

    /// Returns the contract that is meant; `None` where it may be another one each time.
    pub fn one(&self) -> Option<ContractId> {
        match self {
            Self::One(one) => Some(*one),
            Self::Project(_) | Self::Any => None,
        }
    }

    /// Returns the project whose contracts they are.
    pub fn project(&self) -> Option<&str> {
        match self {
            Self::Project(name) => Some(name),
            Self::One(_) | Self::Any => None,
        }
    }

    /// Returns all of them; `None` where that may be any.
    pub fn all(&self) -> Option<Vec<ContractId>> {
        match self {
            Self::One(one) => Some(vec![*one]),
            Self::Project(_) | Self::Any => None,
        }
    }
}
