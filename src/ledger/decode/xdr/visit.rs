//! The parts of a ledger that the schema names, and how a walk tells a visitor about them.

use super::XdrError;

/// A part of a ledger; a `part` of the schema has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The hash of the header, as the source claims it.
    HeaderHash,
    /// The header.
    Header,
    /// Its close time in seconds.
    CloseTime,
    /// What the validators signed besides, with the close time in milliseconds if there is one.
    CloseValue,
    /// Its sequence number.
    Sequence,
    /// The transaction set of a ledger whose metadata has version 0.
    TransactionSetV0,
    /// The transaction set of a ledger, in versions 1 and 2.
    TransactionSetV1,
    /// An envelope of the transaction set.
    Envelope,
    /// The transaction in an envelope, or in the fee bump of an envelope.
    SignedTransaction,
    /// A transaction of version 0.
    SignedTransactionV0,
    /// The fee bump in an envelope.
    SignedFeeBump,
    /// The account that pays for a fee bump.
    FeeSource,
    /// Source of a transaction.
    Source,
    /// Source of a transaction of version 0.
    SourceV0,
    /// What only a smart-contract transaction has.
    SorobanData,
    /// Key of an entry in its footprint.
    FootprintKey,
    /// Address of a contract that is invoked, or of an account or contract that authorizes.
    Address,
    /// What determines the id of a contract that is created.
    Preimage,
    /// The result of a transaction, with its hash.
    Outcome,
    /// The metadata of a transaction.
    Meta,
    /// The metadata of all operations of a transaction.
    Operations,
    /// The same in version 4.
    OperationsV2,
    /// What only the metadata of a smart-contract transaction has, in version 3.
    SorobanMeta,
    /// The same in version 4.
    SorobanMetaV2,
    /// What the invocation of a smart-contract transaction returned.
    ReturnValue,
    /// An event of an operation.
    OperationEvent,
    /// All events of an operation.
    OperationEvents,
    /// An event of a transaction as a whole, with its stage.
    StagedEvent,
    /// A diagnostic event.
    Diagnostic,
    /// A topic of an event outside the list of diagnostic events.
    Topic,
    /// The data of an event outside the list of diagnostic events.
    EventData,
    /// A change that an operation made.
    OperationChange,
    /// A change that something else made; one of the following lists holds it.
    Change,
    /// Changes when the fee of a transaction was charged.
    FeeChanges,
    /// Changes of a transaction before its operations.
    ChangesBefore,
    /// Changes of a transaction after its operations.
    ChangesAfter,
    /// Changes when a part of a fee was refunded after all transactions.
    RefundChanges,
    /// Changes by upgrades of the network's settings.
    UpgradeChanges,
    /// Key of an entry that was evicted.
    EvictedKey,
    /// Unit of the minimum balance of accounts.
    BaseReserve,
    /// Size of all live contract data and code.
    StateSize,
}

/// Is told about the parts of a value during a walk.
pub trait Visit<'a> {
    /// Called when the walk has accepted a part, after all parts inside of it.
    ///
    /// Implementations are inlined into the walk, where `part` is constant, so parts that a visitor
    /// ignores cost nothing.
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError>;
}
