//! Why a certificate is refused, or cannot be written.

use crate::decode::XdrError;
use crate::domain::{LedgerHash, LedgerSeq, NetworkId, TxHash};
use crate::verify::{Rule, VerifyError};

/// Why a certificate is refused, or cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The beginning is not that of a certificate.
    #[error(
        "this is not a certificate, or one of a format that this version of Orrery does not know: \
         give a file that `orrery prove` has written"
    )]
    NotACertificate,
    /// The range is empty.
    #[error("ledgers {first} to {last} are no range: the first is not above the last")]
    Range {
        /// Its first ledger.
        first: LedgerSeq,
        /// Its last ledger.
        last: LedgerSeq,
    },
    /// The certificate is of another network.
    #[error(
        "the certificate is of the network with the id {found}, and {wanted} is wanted: name its \
         network, and whose validators you trust there"
    )]
    Network {
        /// Network of the certificate.
        found: NetworkId,
        /// Network that is wanted.
        wanted: NetworkId,
    },
    /// A ledger of the certificate proves nothing.
    #[error("ledger {ledger} of the certificate proves nothing: {wrong}")]
    Ledger {
        /// The ledger.
        ledger: LedgerSeq,
        /// What is wrong with it.
        wrong: Wrong,
    },
    /// The digest at the end is another.
    #[error(
        "the events of ledgers {first} to {last} are not those that the certificate names at its \
         end: it was changed"
    )]
    Digest {
        /// First ledger of the range.
        first: LedgerSeq,
        /// Last ledger of the range.
        last: LedgerSeq,
    },
    /// Bytes follow the certificate.
    #[error("{count} bytes follow ledger {last}, with which the certificate ends: it was changed")]
    Trailing {
        /// Its last ledger.
        last: LedgerSeq,
        /// Number of bytes.
        count: usize,
    },
    /// A ledger was given that is not the next one.
    #[error("ledger {given} was given where ledger {wanted} is needed: give the ledgers in order")]
    NotNext {
        /// The ledger that was given.
        given: LedgerSeq,
        /// The ledger that is needed.
        wanted: LedgerSeq,
    },
    /// A ledger was given that is not what the network agreed on.
    #[error(transparent)]
    Refused(#[from] VerifyError),
    /// The result of an invocation does not name its events, because they were rewritten.
    #[error(
        "ledger {ledger}, transaction {transaction}: its events were rewritten to their form of \
         protocol 23 (CAP-67), and their earlier form is not found, so nothing proves them: take \
         the ledger from a source that does not rewrite events"
    )]
    Rewritten {
        /// The ledger.
        ledger: LedgerSeq,
        /// The transaction.
        transaction: TxHash,
    },
    /// The ledgers after the range do not attest it yet.
    #[error(
        "ledger {last} is not attested: up to ledger {newest}, validators of {signed} trusted \
         organisations have signed ledgers after it, and {needed} are needed: give later ledgers, \
         or prove an earlier range"
    )]
    NotAttested {
        /// Last ledger of the range.
        last: LedgerSeq,
        /// The newest ledger that was given.
        newest: LedgerSeq,
        /// Organisations that have signed.
        signed: usize,
        /// Organisations that must have signed.
        needed: usize,
    },
    /// Ledgers of the range are missing.
    #[error("ledger {next} is missing: ledgers {next} to {last} are needed, and those after them")]
    Missing {
        /// The first ledger that is missing.
        next: LedgerSeq,
        /// Last ledger of the range.
        last: LedgerSeq,
    },
}

/// Why a ledger of a certificate proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A part cannot be read.
    #[error("its {what} cannot be read ({reason})")]
    Unreadable {
        /// The part.
        what: &'static str,
        /// Violation of the encoding.
        reason: XdrError,
    },
    /// Its header has another sequence number.
    #[error("its header is that of ledger {0}")]
    Sequence(LedgerSeq),
    /// Its header links to another ledger.
    #[error("it follows a ledger with hash {names}, and the one before has hash {previous}")]
    Link {
        /// Hash that its header, or its transaction set, names.
        names: LedgerHash,
        /// Hash of the ledger before.
        previous: LedgerHash,
    },
    /// Its transaction set does not follow the ledger before.
    #[error("its transaction set does not follow the ledger before, which has hash {0}")]
    SetLink(LedgerHash),
    /// The results are not those in the header.
    #[error("its results are not those that its header names (txSetResultHash)")]
    Results,
    /// An invocation is one of several operations, which the network does not allow.
    #[error("transaction {0} invokes a contract beside other operations")]
    Operations(TxHash),
    /// An invocation is not the one in its result.
    #[error("events and return value of transaction {0} are not those that its result names")]
    Invocation(TxHash),
    /// A signature is not valid, or missing.
    #[error(transparent)]
    Signature(#[from] Rule),
    /// The transaction set is not the one in the header.
    #[error("its transaction set is not the one that its header names (txSetHash)")]
    Set,
    /// The kind of a ledger after the range is not known.
    #[error("it is of kind {0}, and there are kinds 0 to 2")]
    Kind(u32),
    /// The signature counts, and the transaction set is missing.
    #[error("its transaction set is missing, and the signature of {0} needs it")]
    NeedsSet(String),
    /// The signature does not count, and there is a transaction set.
    #[error(
        "its signature adds no trusted organisation, and its transaction set is there: the \
         certificate was made for other validators"
    )]
    NeedsNoSet,
    /// The threshold is reached, and the certificate goes on.
    #[error("with it enough organisations have signed, and the certificate does not end there")]
    Ends,
    /// The certificate ends, and the threshold is not reached.
    #[error(
        "the certificate ends there, and validators of {signed} trusted organisations have signed \
         the ledgers after its range, where {needed} are needed"
    )]
    TooFew {
        /// Organisations that have signed.
        signed: usize,
        /// Organisations that must have signed.
        needed: usize,
    },
    /// The sequence numbers have ended.
    #[error("no ledger follows it")]
    NoNext,
}
