//! How a trusted validator contradicts what is stored, in words for the operator.

use std::fmt;

use crate::domain::{LedgerHash, LedgerSeq, NodeId, Origin};

/// A trusted validator has signed a ledger that follows another one than the stored one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Contradiction {
    /// Where the ledger was read that contradicts.
    pub origin: Origin,
    /// The ledger that contradicts.
    pub ledger: LedgerSeq,
    /// The validator that has signed it.
    pub validator: NodeId,
    /// The validator's organisation.
    pub organisation: String,
    /// Hash of the ledger before, according to the validator.
    pub signed: LedgerHash,
    /// Hash of the stored ledger before.
    pub stored: LedgerHash,
    /// Where the stored ledger was read; `None` if that was before the last start.
    pub delivered: Option<Origin>,
    /// The newest stored ledger that is attested.
    pub attested: Option<LedgerSeq>,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, ledger, validator, organisation, signed, stored, .. } = self;
        let before = ledger.0.saturating_sub(1);
        write!(f, "validator {validator} of {organisation} signed ledger {ledger} ({origin}) on ")?;
        write!(f, "top of a ledger {before} with hash {signed}, but the stored ledger {before}, ")?;
        match &self.delivered {
            Some(delivered) => write!(f, "which {delivered} delivered, ")?,
            None => write!(f, "delivered before the last start, ")?,
        }
        write!(
            f,
            "has hash {stored}: its source is wrong, or the network was reset. Nothing more "
        )?;
        write!(f, "is stored unless validators attest it. Remove that source and import again ")?;
        match self.attested {
            Some(attested) => write!(f, "what follows ledger {attested}, the last attested one, "),
            None => write!(f, "all ledgers, of which none is attested, "),
        }?;
        write!(f, "into a new data directory or a restored backup")
    }
}
