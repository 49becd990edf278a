//! Reasons for refusing the bytes of a ledger, as messages for the operator.

use std::fmt;
use std::ops::RangeInclusive;

use crate::domain::{LedgerSeq, TxHash};

use super::header::{MAX_PROTOCOL, close_meta_header, meta_version};
use super::xdr::{Cursor, XdrError};

/// Reason for refusing the bytes of a ledger. Ingestion stops at such a ledger and never skips it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not a `LedgerCloseMeta`.
    #[error(
        "{} cannot be decoded: {reason}, at byte {position} of {length}; the data is damaged, or \
         written by newer software than this version of Orrery understands: compare with another \
         source, or upgrade Orrery",
        named(*ledger)
    )]
    Malformed {
        /// Sequence number of the ledger; `None` when its header cannot be read.
        ledger: Option<LedgerSeq>,
        /// Violation of the XDR encoding.
        reason: XdrError,
        /// Position of the violation, in bytes from the start.
        position: usize,
        /// Total number of bytes.
        length: usize,
    },
    /// The bytes cannot be decoded, and the header has a protocol newer than [`MAX_PROTOCOL`].
    #[error(
        "ledger {0} is of protocol {1}, and this version of Orrery reads protocols up \
         to {MAX_PROTOCOL}: upgrade Orrery, ingestion then continues with this ledger"
    )]
    NewerProtocol(LedgerSeq, u32),
    /// The `LedgerCloseMeta` has a version that this program does not support.
    #[error(
        "the ledger's metadata is of version {0}, and this version of Orrery reads versions \
         0 to 2: upgrade Orrery, or check that the source delivers LedgerCloseMeta"
    )]
    NewerMetadata(u32),
    /// The close time in seconds differs from the seconds of the close time in milliseconds
    /// (CAP-88).
    #[error(
        "ledger {ledger} closed at {seconds} s and at {milliseconds} ms, which is not the same \
         second: the data is damaged, compare with another source"
    )]
    CloseTimes {
        /// Sequence number of the ledger.
        ledger: LedgerSeq,
        /// UNIX seconds (`closeTime`).
        seconds: u64,
        /// UNIX milliseconds (`closeTimeMs`).
        milliseconds: u64,
    },
    /// The numbers of envelopes and results differ.
    #[error(
        "ledger {ledger} has {envelopes} transaction envelopes and {results} results{}: the data is \
         damaged, compare with another source",
        Alone(*alone)
    )]
    CountMismatch {
        /// Sequence number of the ledger.
        ledger: LedgerSeq,
        /// Number of envelopes in the transaction set.
        envelopes: usize,
        /// Number of results.
        results: usize,
        /// The transaction that alone lacks its result, or has one too many; of a fee bump the outer hash.
        alone: Option<TxHash>,
    },
    /// No envelope has a result, as happens with a ledger of another network.
    #[error(
        "none of the {1} transaction envelopes of ledger {0} matches a result: the \
         ledger belongs to another network than the configured one (check the network passphrase \
         and the source), or it is damaged"
    )]
    NoEnvelopeMatches(LedgerSeq, usize),
    /// A result has no envelope, although other results have one.
    #[error(
        "transaction {1} of ledger {0} has a result but no envelope: the data is \
         damaged, compare with another source"
    )]
    ResultWithoutEnvelope(LedgerSeq, TxHash),
    /// The transaction set contains a transaction twice.
    #[error(
        "the transaction set of ledger {0} holds transaction {1} more than once: \
         the data is damaged, compare with another source"
    )]
    RepeatedEnvelope(LedgerSeq, TxHash),
    /// A transaction has two results.
    #[error(
        "ledger {0} holds more than one result of transaction {1}: the data is \
         damaged, compare with another source"
    )]
    RepeatedResult(LedgerSeq, TxHash),
    /// The inner transaction hash in a result differs from that of the envelope.
    #[error(
        "the result of transaction {1} in ledger {0} names an inner transaction \
         that its envelope does not hold: the data is damaged, compare with another source"
    )]
    InnerHashMismatch(LedgerSeq, TxHash),
    /// There are more transactions than the 20 bits for them in an event id (SEP-35) can number.
    #[error("ledger {0} has {1} transactions, more than event ids can number")]
    TooManyTransactions(LedgerSeq, usize),
    /// A transaction has more operations than the 12 bits for them in an event id (SEP-35) can
    /// number.
    #[error(
        "transaction {transaction} of ledger {ledger} has {count} operations, more than event ids \
         can number"
    )]
    TooManyOperations {
        /// Sequence number of the ledger.
        ledger: LedgerSeq,
        /// Hash of the transaction.
        transaction: TxHash,
        /// Number of operations.
        count: usize,
    },
}

/// Leading numbers that are reported as the version of a newer `LedgerCloseMeta`; greater ones mean
/// that the bytes are something else.
const NEWER_VERSIONS: RangeInclusive<u32> = 3..=99;

/// The transaction in which envelopes and results alone differ, if it is one.
struct Alone(Option<TxHash>);

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(transaction) => write!(f, ", which differ in transaction {transaction} alone"),
            None => Ok(()),
        }
    }
}

impl DecodeError {
    /// Returns the error for bytes that fail to decode at `position`, using their header as far as
    /// it can be read.
    pub(super) fn undecodable(raw: &[u8], reason: XdrError, position: usize) -> Self {
        if let Some(version) = meta_version(raw)
            && NEWER_VERSIONS.contains(&version)
        {
            return Self::NewerMetadata(version);
        }
        let header = close_meta_header(&mut Cursor::new(raw)).ok();
        match header {
            Some(header) if header.protocol > MAX_PROTOCOL => {
                Self::NewerProtocol(header.sequence, header.protocol)
            }
            _ => Self::Malformed {
                ledger: header.map(|header| header.sequence),
                reason,
                position,
                length: raw.len(),
            },
        }
    }
}

fn named(ledger: Option<LedgerSeq>) -> String {
    ledger.map_or_else(|| "the ledger".to_owned(), |sequence| format!("ledger {sequence}"))
}
