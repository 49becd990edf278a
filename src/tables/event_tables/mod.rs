//! The tables of a project of events, which is a program without code: each event of its contracts
//! is one row in the table of its declaration. [`Shapes`] is a summary of all events so far,
//! [`Layout`] the tables that follow from it, and [`Layout::rows`] the rows of one event. Nothing
//! here depends on the order in which events arrive, only on their places in the chain.

mod columns;
mod declarations;
mod declared;
mod fixed_tables;
mod kind;
mod layout;
mod member_changes;
mod naming;
mod packing;
mod rows;
mod shape;
mod shaped;
mod shapes;
mod storage_changes;
mod stored;
mod summarised;

use orrery_interfaces::Matched;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use serde::{Deserialize, Serialize};
use stellar_xdr::ScVal;

pub use self::declarations::Declarations;
pub use self::fixed_tables::EVENTS_VIEW;
pub use self::kind::Kind;
pub use self::layout::Layout;
pub use self::member_changes::{MemberChange, MemberChangeKind};
pub use self::packing::{FlatEvent, Packer};
pub use self::rows::Rows;
pub use self::shapes::{MOST_BYTES, Shapes};
pub use self::storage_changes::StorageChange;
pub use self::summarised::Summarised;

/// Place of an event in the chain.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Place {
    ledger: u32,
    application_order: u32,
    index: u32,
}

impl Place {
    /// Indexes from here on are those of events outside of operations, such as those of fees, which
    /// have none in answers.
    pub const OUTSIDE: u32 = 0xffff_fff0;

    /// The place of what has not occurred.
    const NONE: Self = Self { ledger: u32::MAX, application_order: u32::MAX, index: u32::MAX };

    /// The place of the event with this index in the transaction with this application order.
    pub fn new(ledger: LedgerSeq, application_order: u32, index: u32) -> Self {
        Self { ledger: ledger.0, application_order, index }
    }

    /// Index of the event in its transaction.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// An event of a project's contracts.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Place in the chain.
    pub place: Place,
    /// Id in answers of the API.
    pub id: u64,
    /// The contract that emitted it.
    pub contract: ContractId,
    /// The topics.
    pub topics: &'a [ScVal],
    /// The data.
    pub data: &'a ScVal,
    /// What is known of its declaration.
    pub declared: Declared<'a>,
}

/// The declaration of an event.
#[derive(Debug, Clone, Copy)]
pub enum Declared<'a> {
    /// A system event, which has none.
    System,
    /// No interface declares such an event.
    Nowhere,
    /// The declaration, and the declarations of the interface in which it was found: of those that
    /// were tried, the one at [`Matched::tried`].
    By(&'a Matched<'a>, &'a Declarations),
}

#[cfg(test)]
mod tests;
