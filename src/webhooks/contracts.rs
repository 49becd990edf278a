//! Which contracts a subscription is about.

use orrery_ledger::domain::ContractId;

/// The contracts of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contracts {
    /// This one.
    One(ContractId),
    /// Any.
    Any,
}

impl Contracts {
    /// Whether a contract is one of them.
    pub fn has(&self, contract: &ContractId) -> bool {
        match self {
            Self::One(one) => one == contract,
            Self::Any => true,
        }
    }

    /// Returns the contract that is meant; `None` where it may be another one each time.
    pub fn one(&self) -> Option<ContractId> {
        match self {
            Self::One(one) => Some(*one),
            Self::Any => None,
        }
    }

    /// Returns all of them; `None` where any contract is.
    pub fn all(&self) -> Option<Vec<ContractId>> {
        match self {
            Self::One(one) => Some(vec![*one]),
            Self::Any => None,
        }
    }
}
