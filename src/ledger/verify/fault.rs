//! What in a ledger differs from what its header binds.

use std::fmt;

use crate::domain::{LedgerHash, LedgerSeq, NodeId, TxHash};

/// A ledger is not what the network agreed on: the first rule that it breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ledger {ledger}{}: {rule}", In(self))]
pub struct Fault {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// The transaction, if one alone is at fault: the outer hash of a fee bump.
    pub transaction: Option<TxHash>,
    /// The 0-based operation, if one is at fault.
    pub operation: Option<u32>,
    /// The rule that is broken.
    pub rule: Rule,
}

/// A rule that a ledger breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// The transaction set was made for another previous ledger.
    #[error(
        "its transaction set follows a ledger with hash {names}, its header one with {previous}"
    )]
    SetLink {
        /// Hash of the previous ledger in the set.
        names: LedgerHash,
        /// Hash of the previous ledger in the header.
        previous: LedgerHash,
    },
    /// The transaction set is not the one in the header.
    #[error("its transactions are not those that its header names (txSetHash)")]
    Set,
    /// The network dropped the transaction set (CAP-83), and the ledger has transactions.
    #[error(
        "the network dropped its transaction set (CAP-83), and the source delivers {0} transactions"
    )]
    Dropped(usize),
    /// The network dropped the transaction set (CAP-83), and the header names one.
    #[error(
        "the network dropped its transaction set (CAP-83), and its header names one (txSetHash)"
    )]
    DroppedSet,
    /// The results are not those in the header.
    #[error("its results are not those that its header names (txSetResultHash)")]
    Results,
    /// The metadata of a successful transaction has more or fewer operations than its result.
    #[error("its metadata has {metadata} operations, its result {results}")]
    Operations {
        /// Operations in the metadata.
        metadata: u32,
        /// Operations in the result.
        results: u32,
    },
    /// The metadata of an invocation has a version that cannot hold its events.
    #[error("it invokes a contract, and its metadata is of version {0}, which holds no events")]
    Metadata(u32),
    /// A successful invocation has no return value.
    #[error("it invokes a contract, and its metadata has no return value")]
    NoReturnValue,
    /// Events of an operation that emits none.
    #[error("{0} events of an operation that emits none")]
    Events(u32),
    /// Diagnostic events stand among the events of an operation.
    #[error("diagnostic events stand among its events")]
    Diagnostic,
    /// Events and return value of an invocation are not those in its result.
    #[error("its events and return value are not those that its result names")]
    Invocation,
    /// Events of an asset's contract were rewritten (CAP-67), and no earlier form fits the result.
    #[error(
        "its events were rewritten to their form of protocol 23 (CAP-67), and their earlier form is \
         not found"
    )]
    Rewritten,
    /// A value without a signature.
    #[error("it has no signature of a validator, as every ledger since protocol 14 has (CAP-34)")]
    Unsigned,
    /// A signature that is not valid.
    #[error("the signature of validator {0} is not valid on this network")]
    Signature(NodeId),
}

impl Rule {
    /// Returns what an operator can do about a ledger that breaks the rule.
    pub(super) fn mend(&self) -> &'static str {
        match self {
            Self::Unsigned | Self::Signature(_) => {
                "the ledger is of another network, or its source is wrong: check the network, or use \
                 another source"
            }
            Self::Rewritten => "set trust.rewritten = \"store\" to store it, or use another source",
            _ => {
                "the source is wrong, use another one; only ledgers that a load generator has merged \
                 are so by themselves, and trust.events = \"report\" stores them"
            }
        }
    }
}

/// Where in the ledger: the transaction and the operation, as far as they are known.
struct In<'a>(&'a Fault);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { transaction, operation, .. } = self.0;
        if let Some(transaction) = transaction {
            write!(f, ", transaction {transaction}")?;
        }
        if let Some(operation) = operation {
            write!(f, ", operation {operation}")?;
        }
        Ok(())
    }
}
