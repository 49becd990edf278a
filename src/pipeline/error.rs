//! Why ingestion ends.

use std::error::Error;

use super::contradiction::Contradiction;
use super::held::HeldError;
use orrery_ledger::decode::DecodeError;
use orrery_ledger::domain::Origin;
use orrery_ledger::verify::VerifyError;
use orrery_store::StoreError;

/// Error that ended ingestion. Ledgers that were stored before it stay stored.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The source failed.
    #[error("{0}")]
    Source(#[source] Box<dyn Error + Send + Sync>),
    /// A ledger cannot be decoded; it is never skipped.
    #[error("{origin}: {source}")]
    Decode {
        /// Where the ledger was read.
        origin: Origin,
        /// Error of the decoder.
        source: DecodeError,
    },
    /// The hash of a ledger's header does not match the header, or the header does not bind what
    /// the source delivered with it.
    #[error("{origin}: {source}")]
    Verify {
        /// Where the ledger was read.
        origin: Origin,
        /// Error of the verification.
        source: VerifyError,
    },
    /// A ledger does not link to the stored chain, or could not be prepared or stored.
    #[error("{origin}: {source}")]
    Store {
        /// Where the ledger was read.
        origin: Origin,
        /// Error of the store.
        source: StoreError,
    },
    /// Trusted validators have signed ledgers that follow another one than the stored one.
    #[error(transparent)]
    Contradicted(Box<Contradiction>),
    /// Ledgers were to be stored only once they are attested, and are not.
    #[error("{origin}: {source}")]
    Unattested {
        /// Where the last of them was read.
        origin: Origin,
        /// Why they are given up.
        source: HeldError,
    },
    /// Stored ledgers could not be made durable.
    #[error(transparent)]
    Flush(StoreError),
    /// A thread of the pipeline panicked.
    #[error("a worker of the pipeline stopped unexpectedly: see the log")]
    Worker,
}
