//! What a friendbot does: it sends coins to accounts and contracts of a network that this service
//! runs itself.

use futures_util::future::BoxFuture;
use stellar_xdr::{ScAddress, TransactionEnvelope, TransactionMeta};

/// Funds accounts and contracts.
pub trait Friendbot: Send + Sync {
    /// Creates an account with coins, or sends coins to a contract. Completes when the transaction
    /// was applied.
    fn fund(&self, address: ScAddress) -> BoxFuture<'_, Result<FundedTransaction, FundingError>>;
}

/// A successful funding transaction.
#[derive(Debug, Clone)]
pub struct FundedTransaction {
    /// Hash of the transaction.
    pub hash: [u8; 32],
    /// Envelope of the transaction.
    pub envelope: TransactionEnvelope,
    /// Metadata of the transaction: the changes that it made.
    pub meta: TransactionMeta,
}

/// Reason why no coins were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FundingError {
    /// The account already exists.
    Exists,
    /// Too many requests are waiting, or the transaction was not applied in time.
    Busy,
    /// The request cannot be met. Contains the sentence for the client.
    Refused(&'static str),
}
