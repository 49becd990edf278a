//! Rows of the index.

use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{RowCodec, Table, TransactionPosition, row_codec};

use super::creation::Creator;
use super::learnt::Learnt;
use super::named::Named;

/// Name of the feed consumer. What events say is added by another one ([`super::code_events`]).
pub const CONSUMER: &str = "membership";

/// Contracts that a stored transaction created.
pub const CREATED: Table<ContractId, Creation> = Table::new("created");
/// Contracts by those who created them.
pub const MADE: Table<(Creator, ContractId), ()> = Table::new("made");
/// Contracts by what a stored instance of theirs, or an event of theirs, names.
pub const RUNNERS: Table<(Named, ContractId), ()> = Table::new("runners");
/// Entries that references name (CAP-85) by modules that they have named: the SHA-256 of an entry's key.
pub const TAGS: Table<(Hash32, [u8; 32]), ()> = Table::new("tags");
/// Transactions whose metadata has been read for what a contract runs, the latest first.
pub const READ: Table<(ContractId, Later), ()> = Table::new("read");
/// Contracts with stored events: whether it is known what they run, or have run at some time.
pub const SEEN: Table<ContractId, bool> = Table::new("seen");
/// What was learnt, in the order in which it was.
pub const LEARNT: Table<u64, Learnt> = Table::new("learnt");
/// What is not known: one row.
pub const UNREAD: Table<(), Unread> = Table::new("unread");

/// That a contract was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Creation {
    /// The transaction.
    pub at: TransactionPosition,
    /// Hash of that transaction.
    pub transaction: Hash32,
    /// Who created it.
    pub creator: Creator,
}

row_codec!(Creation { at, transaction, creator });

/// A position of which the later has the smaller encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Later(pub TransactionPosition);

impl RowCodec for Later {
    fn write(&self, to: &mut Vec<u8>) {
        (!self.0.ledger.0, !self.0.application_order).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (ledger, application_order) = <(u32, u32)>::read(bytes)?;
        let (ledger, application_order) = (LedgerSeq(!ledger), !application_order);
        Some(Self(TransactionPosition { ledger, application_order }))
    }
}

/// What of the stored ledgers could not be read, and what was learnt so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unread {
    /// Number of contracts with stored events of which it is not known what they ran.
    pub code: u64,
    /// Number of contracts that were created in stored ledgers, nobody knows by whom.
    pub creations: u64,
    /// First ledger with one of those; 0 where there is none.
    pub first: LedgerSeq,
    /// Last ledger with one of those; 0 where there is none.
    pub last: LedgerSeq,
    /// Number of rows of what was learnt.
    pub(crate) learnt: u64,
}

row_codec!(Unread { code, creations, first, last, learnt });

impl Unread {
    /// Counts a creation.
    pub(crate) fn add_creation(&mut self, ledger: LedgerSeq) {
        let is_first = self.creations == 0;
        self.creations += 1;
        self.first = if is_first { ledger } else { self.first.min(ledger) };
        self.last = self.last.max(ledger);
    }
}
