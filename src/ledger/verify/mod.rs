//! Checks of a ledger. [`verify`] checks one ledger: that its header has the hash that came with it,
//! that transactions, results and the events of invocations are those that the header binds, and
//! that the validator that proposed it has signed it. [`verify_link`] checks that it follows the one
//! before.
//!
//! Nothing binds the events of classic operations, events about fees, changes of entries (except the
//! bucket list, which is not part of a ledger), and diagnostic events. Whose signatures count is a
//! matter of [`crate::validators`].

mod chain;
pub(crate) mod events;
mod fault;
pub(crate) mod outcome;
mod rewritten;
pub(crate) mod value;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::decode::LedgerView;
use crate::domain::{NetworkId, NodeId, TxHash};
use value::Value;

pub use chain::{Link, VerifyError, verify_header, verify_link, verify_repeat};
pub use events::Invocations;
pub use fault::{Fault, Rule};

/// What is done about ledgers that are not as their headers say, for reasons other than forgery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Which checks are made.
    pub checks: Checks,
    /// Transactions, results or events that the header does not bind.
    pub events: Events,
    /// Invocations with rewritten events (CAP-67) whose earlier form is not found.
    pub rewritten: Rewritten,
}

/// Which checks are made of one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checks {
    /// All of them.
    #[default]
    All,
    /// Only that the header has the hash that came with it: what the others are measured against.
    /// No setting selects this.
    HeaderHash,
}

/// What is done about transactions, results and events that their header does not bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Events {
    /// The ledger is refused.
    #[default]
    Refuse,
    /// The ledger is accepted, and the difference reported: for ledgers of load generators, which
    /// are merged from several.
    Report,
}

/// What is done about rewritten events (CAP-67) whose earlier form is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rewritten {
    /// The ledger is accepted, and the invocation counted.
    #[default]
    Store,
    /// The ledger is refused.
    Refuse,
}

/// What the checks of a ledger have found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// The validator whose valid signature attests the ledger before this one, trusted or not.
    pub signer: Option<NodeId>,
    /// Invocations, by how their events are bound.
    pub invocations: Invocations,
    /// What [`Events::Report`] let pass.
    pub reported: Option<Box<Fault>>,
}

/// Checks everything that one ledger shows: hash of the header, transaction set, results, events of
/// invocations, signature.
///
/// # Errors
/// [`VerifyError::HeaderHash`], or [`VerifyError::Fault`] with the first rule that is broken.
pub fn verify(
    ledger: &LedgerView<'_>,
    network: &NetworkId,
    policy: Policy,
) -> Result<Verified, VerifyError> {
    verify_header(&ledger.header)?;
    if policy.checks == Checks::HeaderHash {
        return Ok(Verified::default());
    }
    let fault = |rule| {
        let ledger = ledger.header.sequence;
        Box::new(Fault { ledger, transaction: None, operation: None, rule })
    };
    // The walk that made the view has accepted the header.
    let value = Value::of_header(ledger.header.xdr).map_err(|_| fault(Rule::Set))?;
    let mut verified = Verified::default();
    let content = verify_set(ledger, &value).map_err(fault).and_then(|()| {
        let (invocations, faults) = events::verify_events(ledger, network, policy.rewritten);
        verified.invocations = invocations;
        if results_hash(ledger) != *value.results {
            // One transaction alone is named: its result was changed, and its events show it.
            let alone = match faults.as_slice() {
                [only] => only.transaction,
                _ => None,
            };
            return Err(Box::new(Fault { transaction: alone, ..*fault(Rule::Results) }));
        }
        faults.into_iter().next().map_or(Ok(()), |first| Err(Box::new(first)))
    });
    match (content, policy.events) {
        (Ok(()), _) => {}
        (Err(found), Events::Report) => verified.reported = Some(found),
        (Err(found), Events::Refuse) => return Err(found.into()),
    }
    let signer = value.signer(network).map_err(fault)?;
    // The signature covers the ledger before only through the set.
    verified.signer = signer.filter(|_| verified.reported.is_none());
    Ok(verified)
}

/// Checks that the transaction set is the one that the header names.
fn verify_set(ledger: &LedgerView<'_>, value: &Value<'_>) -> Result<(), Rule> {
    if value.drops_set() {
        return match ledger.transactions.len() {
            _ if *value.set != [0; 32] => Err(Rule::DroppedSet),
            0 => Ok(()),
            count => Err(Rule::Dropped(count)),
        };
    }
    let pre_image = set_pre_image(ledger);
    let names = set_link(ledger.version == 0, pre_image[0]).ok_or(Rule::Set)?;
    if names != value.previous {
        let (names, previous) = (value::hash(names), value::hash(value.previous));
        return Err(Rule::SetLink { names, previous });
    }
    if sha256(&pre_image) == *value.set { Ok(()) } else { Err(Rule::Set) }
}

/// Returns the hash of the `TransactionResultSet` that a ledger's results form.
fn results_hash(ledger: &LedgerView<'_>) -> [u8; 32] {
    hash_results(ledger.transactions.iter().map(|one| (&one.hash, one.result)))
}

/// Returns the hash of a `TransactionResultSet`, of which `pairs` are the hashes and the XDR of the
/// results.
pub(crate) fn hash_results<'a>(
    pairs: impl ExactSizeIterator<Item = (&'a TxHash, &'a [u8])>,
) -> [u8; 32] {
    let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
    let mut hasher = Sha256::new_with_prefix(count.to_be_bytes());
    for (hash, result) in pairs {
        hasher.update(hash.as_bytes());
        hasher.update(result);
    }
    hasher.finalize().into()
}

/// Returns the bytes whose hash is `txSetHash`, in two parts. The number of envelopes in a
/// `TransactionSet`, which stands behind the hash of the previous ledger, is not hashed.
pub(crate) fn set_pre_image<'a>(ledger: &LedgerView<'a>) -> [&'a [u8]; 2] {
    let set = ledger.transaction_set;
    match (ledger.version, set.split_at_checked(32), set.get(36..)) {
        (0, Some((previous, _)), Some(envelopes)) => [previous, envelopes],
        _ => [set, &[]],
    }
}

/// Returns the hash of the previous ledger in the pre-image of a `txSetHash`: in a
/// `GeneralizedTransactionSet` a version precedes it.
pub(crate) fn set_link(is_plain: bool, pre_image: &[u8]) -> Option<&[u8; 32]> {
    pre_image.get(if is_plain { 0 } else { 4 }..)?.first_chunk()
}

/// Returns the hash of consecutive parts.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}
