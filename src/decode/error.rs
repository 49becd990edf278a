//! Why the bytes of a ledger are refused, in words for the operator.

use std::ops::RangeInclusive;

use crate::domain::{LedgerSeq, TxHash};

use super::MAX_PROTOCOL;
use super::ledger::close_meta_header;
use super::xdr::{Cursor, XdrError};

/// Why the bytes of a ledger are refused. Ingestion stops at such a ledger and never skips it.
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
        /// The ledger, if its header can be read.
        ledger: Option<LedgerSeq>,
        /// What is wrong.
        reason: XdrError,
        /// Where, in bytes from the start.
        position: usize,
        /// How many bytes there are.
        length: usize,
    },
    /// The bytes cannot be decoded, and the header says why: the network moved on.
    #[error(
        "ledger {ledger} is of protocol {protocol}, and this version of Orrery reads protocols up \
         to {MAX_PROTOCOL}: upgrade Orrery, ingestion then continues with this ledger"
    )]
    NewerProtocol {
        /// The ledger.
        ledger: LedgerSeq,
        /// Its protocol.
        protocol: u32,
    },
    /// The `LedgerCloseMeta` has a version that does not exist yet.
    #[error(
        "the ledger's metadata is of version {version}, and this version of Orrery reads versions \
         0 to 2: upgrade Orrery, or check that the source delivers LedgerCloseMeta"
    )]
    NewerMetadata {
        /// The version.
        version: u32,
    },
    /// The seconds of the close time are not those of its milliseconds (CAP-88).
    #[error(
        "ledger {ledger} closed at {seconds} s and at {milliseconds} ms, which is not the same \
         second: the data is damaged, compare with another source"
    )]
    CloseTimes {
        /// The ledger.
        ledger: LedgerSeq,
        /// UNIX seconds (`closeTime`).
        seconds: u64,
        /// UNIX milliseconds (`closeTimeMs`).
        milliseconds: u64,
    },
    /// There are not as many envelopes as results.
    #[error(
        "ledger {ledger} has {envelopes} transaction envelopes and {results} results: the data is \
         damaged, compare with another source"
    )]
    CountMismatch {
        /// The ledger.
        ledger: LedgerSeq,
        /// Envelopes in its transaction set.
        envelopes: usize,
        /// Results.
        results: usize,
    },
    /// Not one envelope has a result, which is what another network's ledger looks like.
    #[error(
        "none of the {envelopes} transaction envelopes of ledger {ledger} matches a result: the \
         ledger belongs to another network than the configured one (check the network passphrase \
         and the source), or it is damaged"
    )]
    NoEnvelopeMatches {
        /// The ledger.
        ledger: LedgerSeq,
        /// Envelopes in its transaction set.
        envelopes: usize,
    },
    /// Some envelopes have results, but this result has no envelope.
    #[error(
        "transaction {transaction} of ledger {ledger} has a result but no envelope: the data is \
         damaged, compare with another source"
    )]
    ResultWithoutEnvelope {
        /// The ledger.
        ledger: LedgerSeq,
        /// The hash that the result names.
        transaction: TxHash,
    },
    /// The transaction set holds a transaction twice.
    #[error(
        "the transaction set of ledger {ledger} holds transaction {transaction} more than once: \
         the data is damaged, compare with another source"
    )]
    RepeatedEnvelope {
        /// The ledger.
        ledger: LedgerSeq,
        /// The transaction.
        transaction: TxHash,
    },
    /// A transaction has two results.
    #[error(
        "ledger {ledger} holds more than one result of transaction {transaction}: the data is \
         damaged, compare with another source"
    )]
    RepeatedResult {
        /// The ledger.
        ledger: LedgerSeq,
        /// The transaction.
        transaction: TxHash,
    },
    /// The result names another inner transaction than the envelope holds.
    #[error(
        "the result of transaction {transaction} in ledger {ledger} names an inner transaction \
         that its envelope does not hold: the data is damaged, compare with another source"
    )]
    InnerHashMismatch {
        /// The ledger.
        ledger: LedgerSeq,
        /// The outer transaction.
        transaction: TxHash,
    },
    /// An event id (SEP-35) has 20 bits for the transaction.
    #[error("ledger {ledger} has {count} transactions, more than event ids can number")]
    TooManyTransactions {
        /// The ledger.
        ledger: LedgerSeq,
        /// Its transactions.
        count: usize,
    },
    /// An event id (SEP-35) has 12 bits for the operation.
    #[error(
        "transaction {transaction} of ledger {ledger} has {count} operations, more than event ids \
         can number"
    )]
    TooManyOperations {
        /// The ledger.
        ledger: LedgerSeq,
        /// The transaction.
        transaction: TxHash,
        /// Its operations.
        count: usize,
    },
}

/// Versions of `LedgerCloseMeta` that may come; a greater number is just something else.
const NEWER_VERSIONS: RangeInclusive<u32> = 3..=99;

impl DecodeError {
    /// The error for bytes that fail at `position`, with what their header can still tell.
    pub(super) fn undecodable(raw: &[u8], reason: XdrError, position: usize) -> Self {
        if let Some(version) = raw.first_chunk().copied().map(u32::from_be_bytes)
            && NEWER_VERSIONS.contains(&version)
        {
            return Self::NewerMetadata { version };
        }
        let header = close_meta_header(&mut Cursor::new(raw)).ok().map(|(_, header, _)| header);
        match header {
            Some(header) if header.protocol > MAX_PROTOCOL => {
                Self::NewerProtocol { ledger: header.sequence, protocol: header.protocol }
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
