//! Bytes to [`LedgerView`]: one borrowed view of a closed ledger for every consumer. Pure; does no I/O.
//!
//! Two implementations give the same answer: [`decode`] walks the bytes and borrows from them,
//! [`full`] decodes everything with `stellar-xdr`. The differential test compares them.

mod view;

pub use view::{
    EventType, EventView, HeaderView, LedgerView, MuxedAccountView, Placement, TransactionView,
};
