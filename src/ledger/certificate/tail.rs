//! Which signatures after the range count, and where the certificate ends: at the first ledger with
//! which as many organisations as the threshold have signed.

use std::collections::BTreeSet;

use crate::domain::{LedgerSeq, NodeId};
use crate::validators::Validators;

/// A signature that attests a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attestation {
    /// Name of the organisation.
    pub organisation: String,
    /// Its validator that has signed.
    pub validator: NodeId,
    /// The ledger that it has signed.
    pub ledger: LedgerSeq,
}

/// The signatures after the range of a certificate.
pub struct Tail<'v> {
    validators: &'v Validators,
    signed: BTreeSet<&'v str>,
    /// The signatures that count, in the order of the ledgers.
    pub counted: Vec<Attestation>,
}

impl<'v> Tail<'v> {
    /// Creates a tail without ledgers.
    pub fn new(validators: &'v Validators) -> Self {
        Self { validators, signed: BTreeSet::new(), counted: Vec::new() }
    }

    /// Adds the validator whose signature in a ledger attests the one before, if any. Returns
    /// whether it counts: it is the first of its organisation.
    pub fn add(&mut self, ledger: LedgerSeq, signer: Option<NodeId>) -> bool {
        let Some(validator) = signer else { return false };
        let Some(organisation) = self.validators.organisation_of(&validator) else { return false };
        if !self.signed.insert(organisation) {
            return false;
        }
        let organisation = organisation.to_owned();
        self.counted.push(Attestation { organisation, validator, ledger });
        true
    }

    /// Whether as many organisations as the threshold have signed.
    pub fn is_complete(&self) -> bool {
        self.counted.len() >= self.validators.threshold()
    }

    /// Returns the number of organisations that have signed, and of those that must have.
    pub fn progress(&self) -> (usize, usize) {
        (self.counted.len(), self.validators.threshold())
    }
}
