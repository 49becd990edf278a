//! Where the parts of a transaction are in the bytes of its ledger, and what they say when the rest of the
//! ledger is not at hand.

use std::ops::Range;

use super::envelope::{Envelope, Envelopes};
use super::error::DecodeError;
use super::ledger::AppliedTransaction;
use super::view::{LedgerView, TransactionView};
use super::walk::walk;
use super::xdr::{self, Part, Visit, XdrError};
use crate::domain::{NetworkId, TxHash};

/// Length of the hash at the beginning of a `TransactionResultPair`.
const HASH_LEN: usize = 32;

/// Where a transaction is in the `LedgerCloseMeta` of its ledger, as ranges of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionParts {
    /// XDR `TransactionEnvelope`.
    pub envelope: Range<usize>,
    /// XDR `TransactionResultPair`.
    pub outcome: Range<usize>,
    /// XDR `TransactionMeta`.
    pub meta: Range<usize>,
}

impl TransactionParts {
    /// Returns where a transaction of a decoded ledger is; `None` of a view that was not decoded from the
    /// bytes of a ledger.
    pub fn of(ledger: &LedgerView<'_>, transaction: &TransactionView<'_>) -> Option<Self> {
        let result = range_in(ledger.raw, transaction.result)?;
        let outcome = result.start.checked_sub(HASH_LEN)?..result.end;
        let begins_with_hash =
            ledger.raw.get(outcome.start..result.start)? == transaction.hash.as_bytes().as_slice();
        let envelope = range_in(ledger.raw, transaction.envelope)?;
        let meta = range_in(ledger.raw, transaction.meta)?;
        begins_with_hash.then_some(Self { envelope, outcome, meta })
    }
}

/// Returns where `part`, a slice of `whole`, is in it; `None` of any other slice.
fn range_in(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    (range.end <= whole.len()).then_some(range)
}

/// What the envelope and the result of a transaction say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoneTransaction<'a> {
    /// Hash of the transaction; of the outer transaction for a fee bump.
    pub hash: TxHash,
    /// Hash of the inner transaction of a fee bump; `None` for other transactions.
    pub inner_hash: Option<TxHash>,
    /// Whether it succeeded.
    pub successful: bool,
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
}

impl<'a> LoneTransaction<'a> {
    /// Reads a transaction from its XDR `TransactionEnvelope` and `TransactionResultPair`; `None` when they
    /// are not of one transaction on this network, as [`super::decode`] decides it.
    ///
    /// # Errors
    /// When the bytes are not such XDR.
    pub fn read(
        envelope: &'a [u8],
        outcome: &'a [u8],
        network: &NetworkId,
    ) -> Result<Option<Self>, DecodeError> {
        let mut envelopes = Envelopes::new(network);
        walk::<xdr::Envelope>(envelope, &mut envelopes)?;
        let mut applied = Outcome(None);
        walk::<xdr::Outcome>(outcome, &mut applied)?;
        let (Some(Envelope { hash, inner_hash, .. }), Some(applied)) =
            (envelopes.complete.pop(), applied.0)
        else {
            return Ok(None);
        };
        let are_one = applied.hash == hash
            && (applied.inner_hash.is_none() || applied.inner_hash == inner_hash);
        let AppliedTransaction { successful, result, .. } = applied;
        Ok(are_one.then_some(Self { hash, inner_hash, successful, result }))
    }
}

/// The result that was walked.
struct Outcome<'a>(Option<AppliedTransaction<'a>>);

impl<'a> Visit<'a> for Outcome<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        if part == Part::Outcome {
            self.0 = Some(AppliedTransaction::of_result(xdr)?);
        }
        Ok(())
    }
}
